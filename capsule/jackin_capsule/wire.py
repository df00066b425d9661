"""The capsule's half of the wire (DESIGN §5): JSON and frames by hand, and the way to the socket.

It refuses to know what messages mean. C modules only: `json`, `socket` and `struct` would double
the shim's start-up, so nothing here imports them unless the C ones are missing.
Invariants: a frame over its limit is refused from its header; what is not UTF-8 leaves as
`{"b64": …}`; every failure is a `Fault` with one line and one hint.
"""

import posix
import sys

from . import EXIT_NOT_RUN, Fault, end_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence
    from json.encoder import py_encode_basestring_ascii as quote

    from .jsontext import scan

    # Bytes are an argument or a path on its way out; they never come in.
    Json = None | bool | int | float | str | bytes | Sequence["Json"] | Mapping[str, "Json"]
    Message = dict[str, Json]
else:
    try:
        import _socket as socket
    except ImportError:  # an interpreter with another socket module
        import socket
    try:
        from _json import encode_basestring_ascii as quote
        from _json import make_scanner
    except ImportError:  # one that was built without the accelerator
        from .jsontext import quote, scan

        make_scanner = None

__all__ = ["EXIT_NOT_RUN", "Fault", "end_process", "socket"]

PROTOCOL = 1
DEFAULT_SOCKET = b"/jackin/run/broker.sock"
SOCKET_PATH_MAX_BYTES = 107  # sun_path holds 108 with its NUL (unix(7))
# The limits of protocol.py; a test compares them.
DATA_FRAME_MAX_BYTES = 256 * 1024
MESSAGE_FROM_CAPSULE_MAX_BYTES = 4 * 1024 * 1024
MESSAGE_TO_CAPSULE_MAX_BYTES = 16 * 1024 * 1024
# A broker whose accept queue stays full this long is stuck, not busy.
CONNECT_S = 10
MESSAGE = 0  # what `Frames` yields in the place of a stream's number
_HEADER = 4
_BRACE = 0x7B


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


class _Scanning:
    """What the C scanner reads of its context."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)


if not TYPE_CHECKING and make_scanner is not None:
    scan = make_scanner(_Scanning)


def encode(value: "Json") -> str:
    """JSON text, in ASCII. Bytes become text, or `{"b64": …}` when they are not UTF-8."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        try:
            return quote(value.decode())
        except UnicodeDecodeError:
            import binascii

            coded = binascii.b2a_base64(value, newline=False).decode()
            return f'{{"b64":"{coded}"}}'
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ",".join([f"{encode(k)}:{encode(v)}" for k, v in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([encode(item) for item in value]) + "]"
    return repr(value)


def message(kind: str, **fields: "Json") -> bytes:
    """The frame of a message, `type` first."""
    body = encode({"type": kind, **fields}).encode()
    if len(body) > MESSAGE_FROM_CAPSULE_MAX_BYTES:
        raise Fault(
            f"the arguments are {len(body)} bytes on the wire, over the limit of "
            f"{MESSAGE_FROM_CAPSULE_MAX_BYTES}",
            "pass long data on standard input or in a file of the project",
        )
    return len(body).to_bytes(_HEADER, "big") + body


def data(stream: int, content: bytes) -> bytes:
    """Data as frames, in order; nothing for nothing."""
    step = DATA_FRAME_MAX_BYTES - 1
    pieces = [content[start : start + step] for start in range(0, len(content), step)]
    return b"".join([(len(p) + 1).to_bytes(_HEADER, "big") + bytes((stream,)) + p for p in pieces])


def decode(body: bytes) -> "Message":
    """The object in a message's body.

    Raises: Fault when it is not one JSON object with a `type`.
    """
    try:
        text = body.decode()
        if "\\u" in text:  # escapes can hold lone surrogates, which C's scanner lets through
            from .jsontext import check_surrogates

            check_surrogates(text)
        found, end = scan(text, 0)
    except (ValueError, StopIteration, RecursionError, SystemError) as error:
        # SystemError: what C's scanner of 3.10 and 3.11 says while json.decoder is not loaded.
        raise broken("a message is not JSON") from error
    if text[end:].strip(" \t\r\n") or not isinstance(found, dict):
        raise broken("a message is not one JSON object")
    if not isinstance(found.get("type"), str):
        raise broken("a message has no type")
    return found


class Frames:
    """Feed it what arrives, in any pieces; data comes out at once, a message when it is whole.

    Shape: pairs of (1 or 2, some bytes of that stream) and (MESSAGE, the decoded object).
    """

    def __init__(self) -> None:
        self._held = bytearray()  # a header, or a message that is not whole
        self._want = _HEADER
        self._stream = 0
        self._left = 0  # bytes of the present data frame still to come

    @property
    def is_between_frames(self) -> bool:
        """Whether an end of the connection here would cut nothing in two."""
        return not self._held and not self._left

    @property
    def missing(self) -> int:
        """So many bytes end the present data frame and show what follows it; 0 between frames."""
        return self._left + _HEADER + 1 if self._left else 0

    def feed(self, arrived: memoryview) -> "Iterator[tuple[int, memoryview | Message]]":
        """What `arrived` completed, in order.

        Raises: Fault for an empty, over-long or unknown frame and for a broken message.
        """
        while arrived:
            if self._left:
                piece, arrived = arrived[: self._left], arrived[self._left :]
                self._left -= len(piece)
                yield self._stream, piece
                continue
            missing = self._want - len(self._held)
            self._held += arrived[:missing]
            arrived = arrived[missing:]
            while len(self._held) == self._want:
                if self._want > _HEADER and self._held[_HEADER] == _BRACE:
                    size = int.from_bytes(self._held[:_HEADER], "big")
                    if len(self._held) == _HEADER + size:
                        body = bytes(self._held[_HEADER:])
                        self._begin_again()
                        yield MESSAGE, decode(body)
                        break
                self._read_header()

    def _read_header(self) -> None:
        """Learn what comes from a length, or from a length and the first byte."""
        size = int.from_bytes(self._held[:_HEADER], "big")
        if not 0 < size <= MESSAGE_TO_CAPSULE_MAX_BYTES:
            raise broken(f"a frame of {size} bytes")
        if len(self._held) == _HEADER:
            self._want = _HEADER + 1
        elif self._held[_HEADER] == _BRACE:
            self._want = _HEADER + size
        elif self._held[_HEADER] not in (1, 2):
            raise broken(f"a frame of the unknown kind {self._held[_HEADER]:#04x}")
        elif size > DATA_FRAME_MAX_BYTES:
            raise broken(f"a data frame of {size} bytes")
        else:
            self._stream, self._left = self._held[_HEADER], size - 1
            self._begin_again()

    def _begin_again(self) -> None:
        self._held.clear()
        self._want = _HEADER


def socket_path() -> bytes:
    """Where the broker should be listening."""
    return posix.environ.get(b"JACKIN_BROKER_SOCKET") or DEFAULT_SOCKET


def connect() -> "socket.socket":
    """A connection to this capsule's broker: its socket, else the bridge's frames over TCP.

    Raises: Fault, in words of its own for each way in which it can fail.
    """
    names = (b"JACKIN_BROKER_ADDR", b"JACKIN_EXEC_URL")
    if posix.environ.get(b"JACKIN_BROKER_SOCKET") or not any(map(posix.environ.get, names)):
        return connect_to_socket()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(CONNECT_S))
        sock.connect(DEFAULT_SOCKET)
    except OSError:
        from .tcp import connect as connect_over_tcp

        sock.close()
        return connect_over_tcp()
    sock.setblocking(False)
    return sock


def connect_to_socket() -> "socket.socket":
    """A connection to broker.sock.

    Raises: Fault, in words of its own for each way in which it can fail.
    """
    path = socket_path()
    if len(path) > SOCKET_PATH_MAX_BYTES:
        raise Fault(
            f"JACKIN_BROKER_SOCKET is {len(path)} bytes long, a socket's path has at most "
            f"{SOCKET_PATH_MAX_BYTES}",
            "mount the broker's directory at a shorter path, or unset it for /jackin/run",
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux waits for a place in the accept queue as long as a send may take (unix(7)).
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(CONNECT_S))
        sock.connect(path)
    except OSError as error:
        from .problems import unreachable

        sock.close()
        raise unreachable(path, error) from error
    sock.setblocking(False)
    return sock


def _timeval(seconds: int) -> bytes:
    """C's struct timeval: two longs."""
    size = 8 if sys.maxsize > 2**32 else 4
    return seconds.to_bytes(size, sys.byteorder) + bytes(size)


def broken(what: str) -> Fault:
    """The fault in a peer that speaks otherwise."""
    return Fault(
        f"the broker sent what this shim does not understand: {what}",
        "shim and broker are of different versions, or something else listens at the socket: "
        "run `jackin-capsule doctor`",
    )
