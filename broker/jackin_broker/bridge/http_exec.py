"""`POST /exec`: the seed's protocol, one JSON request in and lines of JSON out.

Frames are compact and `type` comes first, because the seed's own shim matches prefixes. It refuses
to know tokens and policy. Source: the seed, "Protocol".
"""

from __future__ import annotations

import binascii
from typing import Final

import msgspec

from ..errors import PeerProtocolError
from ..frames import Stream
from ..protocol import (
    CLOSED_STDIN_MAX_BYTES,
    DATA_FRAME_MAX_BYTES,
    PROTOCOL_VERSION,
    ExecCommand,
    StdinKind,
    Text,
)
from .http_channel import HttpChannel, Outlet

MEDIA_TYPE: Final = "application/x-ndjson"
# The seed has no limit. This is 12 MiB of stdin; whoever has more streams it (`jackin-exec`, or
# the plain form), because here it has to be held whole.
BODY_MAX_BYTES: Final = 16 * 1024 * 1024
_HEADS: Final = {
    Stream.STDOUT: b'{"type":"stdout","data":"',
    Stream.STDERR: b'{"type":"stderr","data":"',
}
_TAIL: Final = b'"}\n'
_BLANKS: Final = b" \t\r\n"


class ExecBody(msgspec.Struct, frozen=True):
    """The request's body. `want`, `reason` and `timeout_s` are ours, beside the seed's three."""

    argv: tuple[Text, ...]
    stdin: str | None = None
    cwd: Text | None = None
    want: tuple[str, ...] = ()
    reason: str = ""
    timeout_s: float = 0


_bodies: Final = msgspec.json.Decoder(ExecBody)


def read_body(body: bytes) -> tuple[ExecCommand, bytes]:
    """The request in a body, and its stdin. An empty stdin is none (DESIGN §5).

    Raises: PeerProtocolError.
    """
    try:
        said = _bodies.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise PeerProtocolError(f"the body is not as it should be: {reason}") from error
    if not said.argv:
        raise PeerProtocolError("argv is empty")
    try:
        # base64(1) breaks its lines, and JSON carries the breaks.
        text = (said.stdin or "").encode().translate(None, _BLANKS)
        stdin = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise PeerProtocolError("stdin is not base64") from error
    request = ExecCommand(
        protocol=PROTOCOL_VERSION,
        command=said.argv[0],
        args=said.argv[1:],
        cwd=said.cwd or "",
        stdin=_kind_of(stdin),
        want=said.want,
        reason=said.reason,
        timeout_s=said.timeout_s,
        shim="http",
    )
    return request, stdin


def _kind_of(stdin: bytes) -> StdinKind:
    """What fits the window is closed; more is given piece by piece, like a stream."""
    if not stdin:
        return StdinKind.NONE
    return StdinKind.CLOSED if len(stdin) <= CLOSED_STDIN_MAX_BYTES else StdinKind.LIVE


class JsonChannel(HttpChannel):
    """The channel of one `POST /exec`: everything is a line of one response."""

    def __init__(self, request: ExecCommand, stdin: bytes) -> None:
        super().__init__(request)
        self.lines: Final = Outlet(self)
        self.outlets.append(self.lines)
        self.held_bytes = len(stdin)
        self._stdin = memoryview(stdin)
        self._has_stdin = bool(stdin)
        self._is_over = False

    def write(self, stream: Stream, data: bytes) -> None:
        if not self._is_over:
            self.lines.put(_HEADS[stream] + binascii.b2a_base64(data, newline=False) + _TAIL)

    def end(self, exit_code: int) -> None:
        if not self._is_over:
            self._is_over = True
            self.lines.put(b'{"type":"exit","code":%d}\n' % exit_code)
            self.lines.end()

    async def close(self) -> None:
        await super().close()
        self._stdin = memoryview(b"")  # not when the collector finds it: that may be much later

    def feed(self) -> None:
        while self._has_stdin and self.may_feed:
            if not self._stdin:
                self._has_stdin = False
                self.end_stdin()
                return
            piece = self._stdin[:DATA_FRAME_MAX_BYTES]
            self._stdin = self._stdin[DATA_FRAME_MAX_BYTES:]
            self.give_stdin(bytes(piece))
