"""What a helper process and the broker say to each other, and what such a process does first.

A helper is a child of the broker that does what can block or must be killable, one message at a
time, on a socket that is its stdin. A message is a big-endian u32 length and so many bytes.
It refuses to know what they mean. Nothing here logs, prints or names what passes through.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Final

from ..hardening import die_with_parent, forbid_dumps

HEADER_BYTES: Final = 4
# The longest value, 1 MiB (see `base.VALUE_MAX_BYTES`), with names and framing beside it.
MESSAGE_MAX_BYTES: Final = 1024 * 1024 + 64 * 1024


def frame(body: bytes) -> bytes:
    """The bytes of one message.

    Raises: ValueError when it is too long.
    """
    if len(body) > MESSAGE_MAX_BYTES:
        raise ValueError("a message between broker and helper is too long")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class HelperChannel:
    """The helper's end. Made first of all: it hardens the process before any value comes."""

    def __init__(self) -> None:
        forbid_dumps()
        die_with_parent()
        # Ctrl-C is for the program that started us; it ends us by closing the socket.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._socket = socket.socket(fileno=os.dup(0))

    def receive(self) -> bytes | None:
        """The next message, or None when the broker is done with this helper."""
        header = self._exactly(HEADER_BYTES)
        if header is None:
            return None
        size = int.from_bytes(header, "big")
        return self._exactly(size) if size <= MESSAGE_MAX_BYTES else None

    def send(self, body: bytes) -> None:
        """Send one message."""
        self._socket.sendall(frame(body))

    def _exactly(self, size: int) -> bytes | None:
        pieces = bytearray()
        while len(pieces) < size:
            piece = self._socket.recv(size - len(pieces))
            if not piece:
                return None
            pieces += piece
        return bytes(pieces)
