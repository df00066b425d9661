"""The plain form of `POST /exec`, for a client that has neither JSON nor base64: sh and curl.

`POST /plain` takes the request as a form and answers with an id; below `/plain/ID` are `stdin`
(sent), `stdout`, `stderr` (as they are) and `status` (the exit status in decimal, at the end).
docs/host-exec-bridge.md has it in full. It refuses to know tokens and policy.
Invariants: a call lives as long as its requests do: one that is cut off, or not made in time, ends
the command; ids are unguessable and are of one capsule's doorway alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import Final
from urllib.parse import unquote_to_bytes

from ..errors import PeerProtocolError
from ..frames import Stream
from ..protocol import (
    ARGS_MAX_COUNT,
    DATA_FRAME_MAX_BYTES,
    PROTOCOL_VERSION,
    ExecCommand,
    StdinKind,
    text_from_bytes,
)
from .http_channel import HttpChannel, Outlet
from .tokens import BridgeKey

# As on broker.sock: two megabytes of arguments, percent-encoded.
FORM_MAX_BYTES: Final = 4 * 1024 * 1024
# Between the id and the requests for both outputs; curl needs ten milliseconds for each.
ATTACH_S: Final = 10.0
# Between the end and the request for the status.
STATUS_S: Final = 10.0
_ID_BYTES: Final = 16


def read_form(body: bytes) -> ExecCommand:
    """The request in a form: `argv` for each argument, `cwd`, `stdin`, `want`, `reason`.

    Raises: PeerProtocolError.
    """
    if body.count(b"&") >= ARGS_MAX_COUNT:
        raise PeerProtocolError(f"the form has more than {ARGS_MAX_COUNT} fields")
    fields: dict[bytes, list[bytes]] = {}
    for pair in body.split(b"&"):
        name, _, value = pair.replace(b"+", b" ").partition(b"=")
        fields.setdefault(unquote_to_bytes(name), []).append(unquote_to_bytes(value))
    argv = [text_from_bytes(value) for value in fields.get(b"argv", [])]
    if not argv:
        raise PeerProtocolError("argv is missing")
    want = b",".join(fields.get(b"want", [])).decode("utf-8", "replace")
    kind = _last(fields, b"stdin") or StdinKind.NONE.value.encode()
    try:
        stdin = StdinKind(kind.decode("ascii", "replace"))
    except ValueError as error:
        raise PeerProtocolError("stdin is one of none, closed, live") from error
    return ExecCommand(
        protocol=PROTOCOL_VERSION,
        command=argv[0],
        args=tuple(argv[1:]),
        cwd=text_from_bytes(_last(fields, b"cwd")),
        stdin=stdin,
        want=tuple(name for name in want.split(",") if name),
        reason=_last(fields, b"reason").decode("utf-8", "replace"),
        shim="plain",
    )


def _last(fields: dict[bytes, list[bytes]], name: bytes) -> bytes:
    return fields.get(name, [b""])[-1]


class PlainChannel(HttpChannel):
    """The channel of one call in the plain form."""

    def __init__(self, request: ExecCommand, key: BridgeKey) -> None:
        super().__init__(request)
        self.key: Final = key  # what began the call may ask for it until it has ended
        self.id: Final = secrets.token_hex(_ID_BYTES)
        self.stdout: Final = Outlet(self)
        self.stderr: Final = Outlet(self)
        self.outlets += [self.stdout, self.stderr]
        self.status: Final[asyncio.Future[int]] = self._loop.create_future()
        self._is_asked_for: set[Outlet] = set()
        self._stdin: deque[bytes] = deque()
        self._stdin_ended = False
        self._room: Final = asyncio.Event()
        self.has_stdin: Final = request.stdin is not StdinKind.NONE
        self._stdin_taken = False
        self._timer = self._loop.call_later(ATTACH_S, self.peer_gone)

    def write(self, stream: Stream, data: bytes) -> None:
        (self.stdout if stream is Stream.STDOUT else self.stderr).put(data)

    def end(self, exit_code: int) -> None:
        self.stdout.end()
        self.stderr.end()
        if not self.status.done():
            self.status.set_result(exit_code)

    def outlet(self, name: str) -> Outlet:
        """An output, to be sent by one response alone.

        Raises: PeerProtocolError when somebody has it already.
        """
        outlet = self.stdout if name == "stdout" else self.stderr
        if outlet in self._is_asked_for:
            raise PeerProtocolError(f"{name} was asked for already")
        self._is_asked_for.add(outlet)
        if len(self._is_asked_for) == len(self.outlets):
            self._timer.cancel()
        return outlet

    def take_stdin(self) -> None:
        """One request sends stdin.

        Raises: PeerProtocolError when it was not announced, or another one does.
        """
        if not self.has_stdin or self._stdin_taken:
            raise PeerProtocolError("stdin was not announced, or comes twice")
        self._stdin_taken = True

    async def put_stdin(self, data: bytes) -> None:
        """Queue a piece of stdin; returns when there is room for another."""
        for start in range(0, len(data), DATA_FRAME_MAX_BYTES):
            self._stdin.append(data[start : start + DATA_FRAME_MAX_BYTES])
        self.feed()
        while self._stdin and not self._is_gone and not self.status.done():
            self._room.clear()
            await self._room.wait()

    def close_stdin(self) -> None:
        """No more of it comes."""
        self._stdin_ended = True
        self.feed()

    def feed(self) -> None:
        while self._stdin and self.may_feed:
            self.give_stdin(self._stdin.popleft())
        if self._stdin_ended and not self._stdin and self.may_feed:
            self._stdin_ended = False
            self.end_stdin()
        self._room.set()

    def peer_gone(self) -> None:
        super().peer_gone()
        self._room.set()

    async def close(self) -> None:
        await super().close()
        self._timer.cancel()
        self._room.set()
