"""uvicorn inside the broker's loop: on a socket that is bound already, without its signal handlers.

It refuses to know requests: whole ones go to an ASGI application. Invariants: one request a
connection; a peer that has not sent a whole head within the handshake's deadline is cut off; one
that takes nothing for STALL_S is cut off; there are never more connections than CONNECTIONS_MAX; a
body in tiny chunks is taken slice by slice, with rests (`pace.py`), so that others' turns come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Generator
from typing import Any, Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ..pace import SLICE_BYTES, Pace
from .tcp import HANDSHAKE_S, STALL_S

_log = logging.getLogger(__name__)

# The seed's body is JSON and has no limit of its own in the head; ours are few headers.
HEAD_MAX_BYTES: Final = 16 * 1024
# Of one doorway, whether they have a token or not: a budget of sessions and as many that are being
# told no. Each is a descriptor, for ten seconds at most where there is no token.
CONNECTIONS_MAX: Final = 512
# After the sessions have ended: what is queued leaves, then connections are cut.
_SHUTDOWN_S: Final = 5


class _State(ServerState):
    """What all connections of one server share."""

    def __init__(self) -> None:
        super().__init__()
        self.pace: Final = Pace()


class _Counted(h11.Connection):
    """A connection that counts the pieces of its body."""

    pieces = 0

    def next_event(self) -> Any:
        event = super().next_event()
        self.pieces += isinstance(event, h11.Data)
        return event


class _Flow(FlowControl):
    """uvicorn's holding of a peer, who goes on only when we hold it no more either."""

    def __init__(self, transport: asyncio.Transport, on_resume: Callable[[], object]) -> None:
        super().__init__(transport)
        self._on_resume = on_resume

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._on_resume()


class DeadlineProtocol(H11Protocol):
    """One connection of uvicorn's, with the deadlines and rests that it does not have."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.conn: _Counted = _Counted(h11.SERVER, HEAD_MAX_BYTES)
        self._timer: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._unread = bytearray()
        self._came_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own signature
        super().connection_made(transport)
        self.flow = _Flow(transport, lambda: self.loop.call_soon(self._go_on))
        self._came_at = self.loop.time()
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()
        if transport.is_closing():
            return
        # Paused means: something waits that the peer has not taken.
        transport.set_write_buffer_limits(high=0)
        self._watch(HANDSHAKE_S, self._head_is_late)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._go_on()

    def _go_on(self) -> None:
        """Work on what was received, until the peer is to be held."""
        while self._unread and self._rest is None and not self.flow.read_paused:
            if self.transport.is_closing():
                return
            if self._has_request and not self.cycle.more_body:
                self.transport.abort()  # one a connection; more would hide that the peer left
                return
            before = self.conn.pieces
            piece = bytes(memoryview(self._unread)[:SLICE_BYTES])
            del self._unread[:SLICE_BYTES]
            super().data_received(piece)
            pace = cast(_State, self.server_state).pace
            taken = self.conn.pieces - before
            if rest_s := pace.rest_s(self.loop.time(), taken, len(piece)):
                self._rest = self.loop.call_later(rest_s, self._rested)
        if self._unread or self._rest is not None or self.flow.read_paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _rested(self) -> None:
        self._rest = None
        self._go_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_watch()
        self._unread.clear()
        if self._rest is not None:
            self._rest.cancel()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Cut off who has been silent longest: callers without a token must not fill the door."""
        ours: list[DeadlineProtocol] = [
            one for one in self.connections if isinstance(one, DeadlineProtocol)
        ]
        silent = [one for one in ours if not one._has_request]
        min(silent, key=lambda one: one._came_at).transport.abort()

    @property
    def _has_request(self) -> bool:
        return bool(self.cycle)  # None before the first, whatever its annotation says

    def _head_is_late(self) -> None:
        if not self._has_request:
            self.transport.abort()

    def _watch(self, limit_s: float, action: Any) -> None:
        self._end_watch()
        self._timer = self.loop.call_later(limit_s, action)

    def _end_watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class EmbeddedServer(uvicorn.Server):
    """uvicorn's server as a guest: it takes no signals and wakes nobody while nothing happens."""

    def __init__(self, application: Any) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                loop="none",
                http=DeadlineProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                proxy_headers=False,  # whoever calls would name its own address
                server_header=False,
                date_header=False,
                h11_max_incomplete_event_size=HEAD_MAX_BYTES,
                timeout_graceful_shutdown=_SHUTDOWN_S,
            )
        )
        self.server_state = _State()
        self._ends: Final = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the broker's."""
        yield

    async def main_loop(self) -> None:
        """uvicorn looks ten times a second whether it is to end; here somebody says so."""
        await self._ends.wait()

    def open(self, listener: socket.socket) -> None:
        """Serve on a listening socket from now on."""
        self._listener = listener
        self._serving = asyncio.get_running_loop().create_task(self.serve([listener]))
        self._serving.add_done_callback(_report)

    def stop_listening(self) -> None:
        """Let nobody in any more; what is in goes on."""
        for server in getattr(self, "servers", []):
            server.close()
        if self._listener is not None:
            self._listener.close()

    async def close(self) -> None:
        """End: what is queued leaves, bounded."""
        self._ends.set()
        if self._serving is not None:
            await asyncio.wait([self._serving])
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _report(serving: asyncio.Task[None]) -> None:
    """A server that failed is in the log, not only in a task that nobody asks."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        _log.error("the HTTP doorway failed", exc_info=error)
