"""What broker and MCP server say to each other on the socket that the server inherited.

One datagram is one JSON message; a `Opened` carries one descriptor, a connected socket that
speaks the frames of `frames.py` as the agent. It refuses to know sockets.
Invariant: nothing here is a value; names and labels are what the agent may know anyway.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..errors import PeerProtocolError
from ..texts import Text

# One datagram holds it, within the kernel's default send buffer of 212,992 bytes.
DATAGRAM_MAX_BYTES: Final = 128 * 1024
# A label is a phrase; a longer one would crowd the others out of a tool's description.
LABEL_MAX_CHARS: Final = 120
# More names than an agent reads; what is left out is counted.
NAMES_MAX: Final = 200


class Lendable(msgspec.Struct, frozen=True):
    """A binding, as the agent may know it."""

    name: str
    label: str = ""


class Facts(msgspec.Struct, frozen=True, tag="Facts"):
    """What a capsule's commands can have; sent first, and again whenever it changes.

    `cwd` is the agent's. `left_out` counts the names that did not fit.
    """

    capsule: str
    cwd: Text
    bindings: tuple[Lendable, ...]
    binaries: tuple[str, ...]
    pending_s: float
    left_out: int = 0


class Open(msgspec.Struct, frozen=True, tag="Open"):
    """A connection for one request, please."""

    number: int


class Opened(msgspec.Struct, frozen=True, tag="Opened"):
    """Here it is: the descriptor beside this message."""

    number: int


class NotOpened(msgspec.Struct, frozen=True, tag="NotOpened"):
    """There is none, and why."""

    number: int
    code: str
    reason: str
    hint: str = ""


ToServer = Facts | Opened | NotOpened

_to_server = msgspec.json.Decoder(ToServer)
_from_server = msgspec.json.Decoder(Open)


def decode_to_server(datagram: bytes) -> ToServer:
    """The broker's message.

    Raises: PeerProtocolError.
    """
    try:
        return _to_server.decode(datagram)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeerProtocolError("the broker sent a broken message") from error


def decode_from_server(datagram: bytes) -> Open:
    """The server's message.

    Raises: PeerProtocolError.
    """
    try:
        return _from_server.decode(datagram)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeerProtocolError("the mcp server sent a broken message") from error
