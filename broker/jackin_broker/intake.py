"""What a caller sends: its first message, its stdin, its signals, and that it went away.

It refuses to know policy. Invariants: stdin that is held stays below the window; signals and
`Cancel` are seen at once, whatever stdin does; a caller is gone when its connection ends or its
process does, whichever is noticed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from . import protocol
from .connection import Channel
from .errors import PeerProtocolError
from .frames import DataFrame, Frame, MessageFrame, Stream
from .peer import Caller
from .protocol import EndedBy, FromCapsule, StdinKind

# Credit is given back in pieces of a data frame, so that messages stay few.
CREDIT_STEP_BYTES: Final = protocol.DATA_FRAME_MAX_BYTES // 2
# A key at a terminal is answered at once: whoever types Ctrl-C learns that somebody is there.
KEY_STEP_BYTES: Final = 1
# Longer than the redactor holds a few bytes back in silence (output.SILENCE_S).
STOP_NOTICE_S: Final = 0.06
# A shim sends signals once it has heard of the start; we may still be writing that down.
EARLY_SIGNALS_MAX: Final = 32

T = TypeVar("T")


class Receiver(Protocol):
    """Who takes what the caller sends: a running command, or an MCP server."""

    on_stopped: Callable[[int], None] | None

    def write_stdin(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def send_signal(self, number: int) -> None: ...
    def pause_output(self) -> None: ...
    def resume_output(self) -> None: ...


class TerminalEnd(Protocol):
    """Our end of a command's terminal."""

    def resize(self, rows: int, cols: int) -> None: ...


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

    def __init__(self, connection: Channel, caller: Caller) -> None:
        loop = asyncio.get_running_loop()
        self._connection = connection
        self._caller = caller
        self._first: asyncio.Future[FromCapsule] = loop.create_future()
        self._stdin_whole: asyncio.Future[None] = loop.create_future()
        self._kind = StdinKind.NONE
        self._early = bytearray()
        self._stdin_ended = False
        self._running: Receiver | None = None
        self._pending_bytes = 0
        self._credit = False
        self._credit_due = 0
        self._credit_step = CREDIT_STEP_BYTES
        self._early_signals: list[int] = []
        self._terminal: TerminalEnd | None = None
        self._resized: protocol.Resize | None = None  # as long as there is no terminal yet
        self._output_flows = True
        self.gone: asyncio.Future[CallerGone] = loop.create_future()
        if caller.pidfd is not None:
            loop.add_reader(caller.pidfd, self._caller_ended)
        connection.attach(self)

    def close(self) -> None:
        """Stop watching; the futures that nobody awaited are dropped in silence."""
        self._stop_watching()
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
            self._check_gathered()  # what came before its kind was known
            self._connection.hold(False)
            await self._stdin_whole
        elif kind is StdinKind.NONE and self._early:
            raise PeerProtocolError("stdin was declared none, but some came")
        return bytes(self._early) if kind is StdinKind.CLOSED else b""

    def run(
        self,
        running: Receiver,
        *,
        credit: bool,
        terminal: TerminalEnd | None = None,
        given: bytes | None = None,
    ) -> None:
        """Pass everything on to the command from now on, first what is here already.

        `given`: what stdin holds instead, when the caller has none (delivery `stdin`).
        """
        self._running, self._credit = running, credit
        running.on_stopped = self._command_stopped
        if not self._output_flows:
            running.pause_output()
        if terminal is not None:
            self._terminal, self._credit_step = terminal, KEY_STEP_BYTES
            if self._resized is not None:
                terminal.resize(self._resized.rows, self._resized.cols)
        for number in self._early_signals:
            running.send_signal(number)
        if self._kind is StdinKind.NONE:
            if given is not None:
                self._credit = False  # nothing says how much of a value was read
                self._pending_bytes += len(given)
                running.write_stdin(given)
            running.close_stdin()
            return
        if self._early:
            early = bytes(self._early)
            self._early.clear()
            running.write_stdin(early)
        if self._stdin_ended:
            running.close_stdin()

    def _command_stopped(self, number: int) -> None:
        """Its last words go first: who hears of the stop stops too, and shows no more."""
        stopped = protocol.ExecStopped(number)
        asyncio.get_running_loop().call_later(STOP_NOTICE_S, self._connection.send, stopped)

    def stdin_consumed(self, size: int) -> None:
        """The command took so many bytes."""
        self._pending_bytes -= size
        if self._credit:
            self._credit_due += size
            if self._credit_due >= self._credit_step:
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

    def _stop_watching(self) -> None:
        if self._caller.pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._caller.pidfd)

    def _caller_ended(self) -> None:
        self._stop_watching()
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
        if self._kind is StdinKind.CLOSED and self._running is None:
            self._check_gathered()
        elif self._pending_bytes > protocol.STDIN_WINDOW_BYTES:
            self._connection.hold(True)

    def _check_gathered(self) -> None:
        if self._pending_bytes > protocol.CLOSED_STDIN_MAX_BYTES:
            raise PeerProtocolError(
                f"a closed stdin holds at most {protocol.CLOSED_STDIN_MAX_BYTES} bytes"
            )

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
                elif len(self._early_signals) < EARLY_SIGNALS_MAX:
                    self._early_signals.append(number)
            case protocol.Resize(rows, cols):
                self._resized = message
                if self._terminal is not None:
                    self._terminal.resize(rows, cols)
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
