"""One MCP server process: the agent's bytes in, its bytes out, and its end.

It refuses to know what flows. Invariants: what it writes to its stdout reaches the capsule, what
it writes to its stderr reaches the broker's log alone; a reader that does not read stops it, a
writer that writes too much is held; `end` leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from ..connection import Channel
from ..display import show
from ..errors import DenialCode, Refusal
from ..frames import Stream
from ..intake import Intake
from .confined import server_command

_log = logging.getLogger(__name__)

_STDIN, _STDOUT, _STDERR = 0, 1, 2
# Lines of its stderr that go to the log; the rest of one server's are counted, not kept.
LOGGED_LINES_MAX: Final = 200
_LOGGED_LINE_CHARS: Final = 2000
# After KILL: only the kernel can take longer.
_REAP_S: Final = 5.0


class ServerProcess(asyncio.SubprocessProtocol):
    """A confined server; what an `Intake` hands the agent's bytes to."""

    def __init__(self, connection: Channel, intake: Intake) -> None:
        self._connection = connection
        self._intake = intake
        self._transport: asyncio.SubprocessTransport | None = None
        self._unread = 0  # bytes of stdin that wait in our buffer
        self._is_full = False
        self._words = b""
        self._logged = 0
        self.on_stopped: Callable[[int], None] | None = None
        loop = asyncio.get_running_loop()
        self.ended: Final[asyncio.Future[None]] = loop.create_future()
        self._emptied: Final[asyncio.Future[None]] = loop.create_future()

    @classmethod
    async def start(cls, link: socket.socket, connection: Channel, intake: Intake) -> ServerProcess:
        """A running server that has inherited `link`, which stays the caller's to close.

        Raises: Refusal(SPAWN_FAILED).
        """
        loop = asyncio.get_running_loop()
        command = await asyncio.to_thread(server_command, link.fileno())
        try:
            _, process = await loop.subprocess_exec(
                lambda: cls(connection, intake),
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env={},
                cwd="/",
                pass_fds=(link.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            raise Refusal(
                DenialCode.SPAWN_FAILED, f"the mcp server cannot be started: {error.strerror}"
            ) from error
        return process

    async def end(self) -> None:
        """Kill it, if it still runs, and wait for its end."""
        transport = self._transport
        if transport is None:
            return
        if self.ended.done() or transport.get_returncode() is not None:
            _log.warning("an mcp server ended by itself, status %s", transport.get_returncode())
        else:
            # Its group: where bubblewrap is killed as it starts, its child waits for it for ever.
            with suppress(ProcessLookupError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
        self.resume_output()
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAP_S):
                await asyncio.shield(self._emptied)
        transport.close()

    # --- asyncio's side -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDOUT:
            self._connection.send_data(Stream.STDOUT, data)
        else:
            self._words += data
            *lines, self._words = self._words.split(b"\n")
            self._words = self._words[-_LOGGED_LINE_CHARS:]
            for line in lines:
                self._log_line(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended, and all that it wrote was read."""
        if not self._emptied.done():
            self._emptied.set_result(None)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._consumed()

    def process_exited(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _log_line(self, line: bytes) -> None:
        self._logged += 1
        if self._logged <= LOGGED_LINES_MAX:
            _log.warning("an mcp server says: %s", show(line, limit=_LOGGED_LINE_CHARS).line)

    # --- Receiver -----------------------------------------------------------------------

    def write_stdin(self, data: bytes) -> None:
        """Pass the agent's bytes on; `Intake` holds the agent while too many wait."""
        pipe = self._pipe(_STDIN)
        self._unread += len(data)
        if pipe is None or pipe.is_closing():
            self._consumed()
            return
        cast(asyncio.WriteTransport, pipe).write(data)
        if not self._is_full:
            self._consumed()

    def close_stdin(self) -> None:
        """The agent will send no more; the server ends then."""
        pipe = self._pipe(_STDIN)
        if pipe is not None:
            pipe.close()

    def send_signal(self, number: int) -> None:
        """A server has no use for the agent's signals."""

    def resize(self, rows: int, cols: int) -> None:
        """A server has no terminal."""

    def pause_output(self) -> None:
        """The agent does not read."""
        pipe = self._pipe(_STDOUT)
        if pipe is not None:
            cast(asyncio.ReadTransport, pipe).pause_reading()

    def resume_output(self) -> None:
        """The agent reads again."""
        pipe = self._pipe(_STDOUT)
        if pipe is not None:
            cast(asyncio.ReadTransport, pipe).resume_reading()

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return None if self._transport is None else self._transport.get_pipe_transport(fd)

    def _consumed(self) -> None:
        size, self._unread = self._unread, 0
        if size:
            self._intake.stdin_consumed(size)
