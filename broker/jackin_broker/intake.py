"""What a caller sends: its first message, its stdin, its signals, and that it went away.

It refuses to know policy. Invariants: stdin that is held stays below the window; signals and
`Cancel` are seen at once, whatever stdin does; a caller is gone when its connection ends or its
process does, whichever is noticed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from . import protocol
from .connection import CapsuleConnection
from .errors import PeerProtocolError
from .frames import DataFrame, Frame, MessageFrame, Stream
from .peer import Caller
from .protocol import EndedBy, FromCapsule, StdinKind
from .runner.running import Running

# Credit is given back in pieces of a data frame, so that messages stay few.
CREDIT_STEP_BYTES: Final = protocol.DATA_FRAME_MAX_BYTES // 2

T = TypeVar("T")


class CallerGone(Exception):
    """The caller went away or took its request back."""

    def __init__(
        self, ended_by: EndedBy, words: str, *, error: PeerProtocolError | None = None
    ) -> None:
        super().__init__(words)
        self.ended_by: Final = ended_by
        self.words: Final = words
        self.error: Final = error


async def either(one: asyncio.Future[Any], other: asyncio.Future[Any]) -> None:
    """Return when one of the two is done; neither is cancelled."""
    await asyncio.wait((one, other), return_when=asyncio.FIRST_COMPLETED)


class Intake:
    """The frames of one connection, sorted."""

    def __init__(self, connection: CapsuleConnection, caller: Caller) -> None:
        loop = asyncio.get_running_loop()
        self._connection = connection
        self._caller = caller
        self._first: asyncio.Future[FromCapsule] = loop.create_future()
        self._stdin_whole: asyncio.Future[None] = loop.create_future()
        self._kind = StdinKind.NONE
        self._early = bytearray()
        self._stdin_ended = False
        self._running: Running | None = None
        self._pending_bytes = 0
        self._credit = False
        self._credit_due = 0
        self._output_flows = True
        self.gone: asyncio.Future[CallerGone] = loop.create_future()
        loop.add_reader(caller.pidfd, self._caller_ended)
        connection.attach(self)

    def close(self) -> None:
        """Stop watching; the futures that nobody awaited are dropped in silence."""
        asyncio.get_running_loop().remove_reader(self._caller.pidfd)
        for future in (self._first, self._stdin_whole, self.gone):
            if future.done() and not future.cancelled():
                future.exception()
            else:
                future.cancel()

    async def while_there(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, unless the caller goes away first; then it is cancelled.

        Raises: CallerGone, and whatever `work` raises.
        """
        task = asyncio.ensure_future(work)
        try:
            await either(task, self.gone)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self.gone.done() and task.cancelled():
            raise self.gone.result()
        return task.result()

    # --- before the run -----------------------------------------------------------------

    async def first_message(self) -> FromCapsule:
        """The message that opens the connection.

        Raises: PeerProtocolError, CallerGone.
        """
        await either(self._first, self.gone)
        if self._first.done():
            return self._first.result()
        raise self.gone.result()

    async def closed_stdin(self, kind: StdinKind) -> bytes:
        """All of a closed stdin; nothing for the other kinds, which are not waited for.

        Raises: PeerProtocolError when more comes than a closed one may have.
        """
        self._kind = kind
        if kind is StdinKind.CLOSED:
            await self._stdin_whole
        elif kind is StdinKind.NONE and self._early:
            raise PeerProtocolError("stdin was declared none, but some came")
        return bytes(self._early) if kind is StdinKind.CLOSED else b""

    def run(self, running: Running, *, credit: bool) -> None:
        """Pass everything on to the command from now on, first what is here already."""
        self._running, self._credit = running, credit
        running.on_stopped = lambda number: self._connection.send(protocol.ExecStopped(number))
        if not self._output_flows:
            running.pause_output()
        if self._kind is StdinKind.NONE:
            running.close_stdin()
            return
        if self._early:
            early = bytes(self._early)
            self._early.clear()
            running.write_stdin(early)
        if self._stdin_ended:
            running.close_stdin()

    def stdin_consumed(self, size: int) -> None:
        """The command took so many bytes."""
        self._pending_bytes -= size
        if self._credit:
            self._credit_due += size
            if self._credit_due >= CREDIT_STEP_BYTES:
                self._connection.send(protocol.StdinCredit(self._credit_due))
                self._credit_due = 0
        if self._pending_bytes < protocol.STDIN_WINDOW_BYTES:
            self._connection.hold(False)

    # --- FrameHandler -------------------------------------------------------------------

    def frame_received(self, frame: Frame) -> None:
        try:
            if isinstance(frame, DataFrame):
                self._take_data(frame)
            else:
                self._take_message(frame)
        except PeerProtocolError as error:
            self.peer_broke(error)

    def peer_broke(self, error: PeerProtocolError) -> None:
        if not self._first.done():
            self._first.set_exception(error)
        elif not self._stdin_whole.done() and self._kind is StdinKind.CLOSED:
            self._stdin_whole.set_exception(error)
        else:
            self.leave(EndedBy.CALLER_GONE, "the caller broke the protocol", error=error)

    def peer_gone(self) -> None:
        self.leave(EndedBy.CALLER_GONE, "the caller went away")

    def output_may_flow(self, flows: bool) -> None:
        self._output_flows = flows
        if self._running is not None:
            if flows:
                self._running.resume_output()
            else:
                self._running.pause_output()

    def _caller_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._caller.pidfd)
        self.leave(EndedBy.CALLER_GONE, "the calling process ended")

    def leave(
        self, ended_by: EndedBy, words: str, *, error: PeerProtocolError | None = None
    ) -> None:
        """End the request, whatever it is doing; the first reason counts."""
        if not self.gone.done():
            self.gone.set_result(CallerGone(ended_by, words, error=error))

    # --- one frame ----------------------------------------------------------------------

    def _take_data(self, frame: DataFrame) -> None:
        if not self._first.done():
            raise PeerProtocolError("the first frame must be a message")
        if frame.stream is not Stream.STDIN:
            raise PeerProtocolError("a capsule sends stdin alone")
        if self._stdin_ended:
            raise PeerProtocolError("stdin came after its end")
        self._pending_bytes += len(frame.data)
        if self._running is not None:
            if self._kind is StdinKind.NONE:
                raise PeerProtocolError("stdin was declared none, but some came")
            self._running.write_stdin(frame.data)
        else:
            self._early += frame.data
        if self._pending_bytes > protocol.STDIN_WINDOW_BYTES:
            if self._kind is StdinKind.CLOSED and self._running is None:
                raise PeerProtocolError(
                    f"a closed stdin holds at most {protocol.CLOSED_STDIN_MAX_BYTES} bytes"
                )
            self._connection.hold(True)

    def _take_message(self, frame: MessageFrame) -> None:
        message = protocol.decode_from_capsule(frame.body)
        if not self._first.done():
            self._first.set_result(message)
            return
        match message:
            case protocol.StdinEof():
                self._end_stdin()
            case protocol.Signal(number):
                if self._running is not None:
                    self._running.send_signal(number)
            case protocol.Resize():
                pass  # no command of this version has a terminal
            case protocol.Cancel():
                self.leave(EndedBy.CANCELLED, "the caller took the request back")
            case _:
                raise PeerProtocolError("only one request a connection")

    def _end_stdin(self) -> None:
        if self._stdin_ended:
            raise PeerProtocolError("stdin ended twice")
        self._stdin_ended = True
        if not self._stdin_whole.done():
            self._stdin_whole.set_result(None)
        if self._running is not None:
            self._running.close_stdin()
