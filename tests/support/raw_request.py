"""A request on a capsule's socket without a shim: hundreds of them fit one test.

It refuses to know what is asked. Every read is bounded.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final, TypeVar

import msgspec

from jackin_broker.frames import DataFrame, Frame, FrameDecoder, message_frame
from jackin_broker.protocol import (
    MESSAGE_FROM_CAPSULE_MAX_BYTES,
    MESSAGE_TO_CAPSULE_MAX_BYTES,
    PROTOCOL_VERSION,
    ExecCommand,
    decode_to_capsule,
    encode,
)

# A loaded two-core machine; only a hang takes longer.
LIMIT_S: Final = 30.0

M = TypeVar("M", bound=msgspec.Struct)


class RawRequest:
    """One command, asked for. `reply` reads what the broker says of it, in order."""

    def __init__(self, path: str, *argv: str, cwd: str | os.PathLike[str] = "/") -> None:
        self._socket: Final = socket.socket(socket.AF_UNIX)
        # Linux waits for a place in the accept queue as long as a send may take (unix(7)).
        limit = struct.pack("ll", int(LIMIT_S), 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._socket.connect(path)
        self._socket.settimeout(LIMIT_S)
        self._decoder: Final = FrameDecoder(max_message_bytes=MESSAGE_TO_CAPSULE_MAX_BYTES)
        self._frames: list[Frame] = []
        request = ExecCommand(PROTOCOL_VERSION, argv[0], argv[1:], os.fspath(cwd))
        body = encode(request)
        self._socket.sendall(message_frame(body, max_bytes=MESSAGE_FROM_CAPSULE_MAX_BYTES))

    def reply(self, kind: type[M]) -> M:
        """The next message, which must be of this kind; output before it is passed over."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if isinstance(frame, DataFrame):
                    continue
                message = decode_to_capsule(frame.body)
                assert isinstance(message, kind), message
                return message
            data = self._socket.recv(65_536)
            assert data, "the broker closed the connection"
            self._frames.extend(self._decoder.feed(data))

    def close(self) -> None:
        """Go away."""
        self._socket.close()
