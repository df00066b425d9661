"""A session's channel whose other end speaks HTTP: frames in and out, without a socket of its own.

It refuses to know policy and what the bytes of a response look like: `http_exec.py` and
`http_plain.py` do. Invariants: the verdict is one of two: let in, or refused without a prompt; what
waits to be taken is bounded by pausing the command; the peer is reported gone once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

import msgspec

from .. import protocol
from ..connection import WRITE_HIGH_BYTES, FrameHandler
from ..frames import DataFrame, MessageFrame, Stream
from ..protocol import (
    EXIT_ENDED,
    EXIT_NOT_RUN,
    EndedBy,
    Error,
    ExecCommand,
    ExecDenied,
    ExecPending,
    ExecResult,
    ExecStarted,
    StdinEof,
)

# Reading goes on when half of it was taken, so that it does not stop and go with every piece.
WRITE_LOW_BYTES: Final = WRITE_HIGH_BYTES // 2
# This protocol has no field for it.
_TRUNCATED: Final = (
    b"jackin-exec: the operator's limit kept a part of the output back: it was %d bytes on stdout "
    b"and %d on stderr in all\n"
)
_ENDINGS: Final = {
    EndedBy.TIME_LIMIT: b"the command reached its time limit and was ended",
    EndedBy.OPERATOR: b"the operator ended the command",
    EndedBy.BROKER_STOPPING: b"the broker stopped and ended the command",
    EndedBy.GUESSING: b"the command was ended: its output came too close to a credential too often",
}


class Outlet:
    """Bytes on their way into one response."""

    def __init__(self, channel: HttpChannel) -> None:
        self._channel = channel
        self._pieces: deque[bytes] = deque()
        self._news: Final = asyncio.Event()
        self._is_ended = False
        self.size = 0

    def put(self, data: bytes) -> None:
        """Queue bytes; after the end they go nowhere."""
        if data and not self._is_ended:
            self._pieces.append(data)
            self.size += len(data)
            self._news.set()

    def end(self) -> None:
        """Nothing more comes."""
        self._is_ended = True
        self._news.set()

    async def take(self) -> bytes:
        """All that waits, as soon as there is any; nothing at the end."""
        while not self._pieces:
            if self._is_ended:
                return b""
            self._news.clear()
            await self._news.wait()
        taken = b"".join(self._pieces)
        self._pieces.clear()
        self.size = 0
        self._channel.taken()
        return taken


class HttpChannel(ABC):
    """The channel of one call. Subclasses say what output and end are in the response."""

    def __init__(self, request: ExecCommand) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._handler: FrameHandler | None = None
        self._is_held = False
        self._is_gone = False
        self._is_paused = False
        self._is_started = False
        self.outlets: list[Outlet] = []
        self.held_bytes = 0  # of a body, as long as the session is there
        # None: let in, the response has begun. Otherwise what was said instead.
        self.verdict: Final[asyncio.Future[ExecDenied | Error | None]] = self._loop.create_future()

    # --- what a session calls -----------------------------------------------------------

    def attach(self, handler: FrameHandler) -> None:
        """Give the request to the session, then its stdin."""
        self._handler = handler
        self._loop.call_soon(self._begin)

    def hold(self, held: bool) -> None:
        """Stop giving stdin, or go on."""
        self._is_held = held
        if not held:
            self._loop.call_soon(self.feed)

    def send(self, message: msgspec.Struct) -> None:
        """What the session says, as far as this protocol has words for it."""
        match message:
            case ExecPending() | ExecStarted():
                self._is_started = self._is_started or isinstance(message, ExecStarted)
                self._decide(None)
            case ExecResult(exit_code):
                if message.truncated:
                    self.write(
                        Stream.STDERR, _TRUNCATED % (message.stdout_bytes, message.stderr_bytes)
                    )
                if (words := _ENDINGS.get(message.ended_by)) is not None:
                    self.write(Stream.STDERR, b"jackin-exec: error: %s\n" % words)
                self._finish(exit_code)
            case ExecDenied(_, reason, hint, exit_code):
                self._refuse(message, f"{reason} ({message.code})", hint, exit_code)
            case Error(_, reason):
                self._refuse(message, reason, "", EXIT_NOT_RUN)
            case _:
                pass  # credit and stops: nobody here could act on them

    def send_data(self, stream: Stream, data: bytes) -> None:
        """Queue output; the command waits while the peer takes none."""
        if data:
            self.write(stream, data)
        if not self._is_paused and self.waiting_bytes > WRITE_HIGH_BYTES:
            self._is_paused = True
            if self._handler is not None:
                self._handler.output_may_flow(False)

    async def close(self) -> None:
        """The session has ended; what waits is the response's to send."""
        self._handler = None
        self._decide(Error("internal_error", "the broker failed, nothing was run"))
        self.end(EXIT_ENDED if self._is_started else EXIT_NOT_RUN)

    # --- what a response calls ----------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """What was not taken yet."""
        return sum(outlet.size for outlet in self.outlets)

    def taken(self) -> None:
        """Some output was taken."""
        if self._is_paused and self.waiting_bytes <= WRITE_LOW_BYTES:
            self._is_paused = False
            if self._handler is not None:
                self._handler.output_may_flow(True)

    def peer_gone(self) -> None:
        """The other end went away."""
        if not self._is_gone:
            self._is_gone = True
            if self._handler is not None:
                self._handler.peer_gone()

    # --- what a subclass says -----------------------------------------------------------

    @abstractmethod
    def write(self, stream: Stream, data: bytes) -> None:
        """Put output into an outlet."""

    @abstractmethod
    def end(self, exit_code: int) -> None:
        """Put the end there, once; again is nothing."""

    @abstractmethod
    def feed(self) -> None:
        """Give stdin to the session while it takes any."""

    # --- ours ---------------------------------------------------------------------------

    @property
    def may_feed(self) -> bool:
        """Whether the session takes stdin now."""
        return self._handler is not None and not self._is_held and not self._is_gone

    def give_stdin(self, data: bytes) -> None:
        """A piece of stdin."""
        if self._handler is not None and data:
            self._handler.frame_received(DataFrame(Stream.STDIN, data))

    def end_stdin(self) -> None:
        """The end of stdin."""
        if self._handler is not None:
            self._handler.frame_received(MessageFrame(protocol.encode(StdinEof())))

    def _begin(self) -> None:
        if self._handler is not None:
            self._handler.frame_received(MessageFrame(protocol.encode(self._request)))
            if self._is_gone:
                self._handler.peer_gone()
            self.feed()

    def _decide(self, verdict: ExecDenied | Error | None) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)

    def _refuse(self, message: ExecDenied | Error, line: str, hint: str, exit_code: int) -> None:
        """A denial: the verdict itself, or words on stderr and a status once it was let in."""
        if isinstance(message, ExecDenied) and exit_code != EXIT_NOT_RUN:
            self._decide(None)  # it was allowed, and there is no such command: a status of its own
        self._decide(message)
        words = f"jackin-exec: error: {line}\n"
        if hint:
            words += f"jackin-exec: hint: {hint}\n"
        self.write(Stream.STDERR, words.encode("utf-8", "backslashreplace"))
        self.end(EXIT_ENDED if self._is_started else exit_code)

    def _finish(self, exit_code: int) -> None:
        self._decide(None)
        self.end(exit_code)
