"""Bytes ⇄ frames, incrementally.

A frame is a big-endian u32 length and so many bytes of body. A body that begins with `{` is a
JSON message; otherwise its first byte names a stream and the rest is raw bytes.
It refuses to know sockets and what messages mean. Invariants: a length that is over the limit is
refused from its header alone; no frame is ever empty; after an error the decoder stays broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from .errors import LocalProtocolError, PeerProtocolError
from .protocol import DATA_FRAME_MAX_BYTES

HEADER_BYTES: Final = 4
_BRACE: Final = 0x7B


class Stream(IntEnum):
    """The first byte of a data frame."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2


class MessageFrame(NamedTuple):
    """The JSON body of a message, not yet decoded."""

    body: bytes


class DataFrame(NamedTuple):
    """Raw bytes of one stream, possibly none."""

    stream: Stream
    data: bytes


Frame = MessageFrame | DataFrame


def message_frame(body: bytes, *, max_bytes: int) -> bytes:
    """The frame of a JSON body.

    Raises: LocalProtocolError when the body is too long or not a JSON object.
    """
    if len(body) > max_bytes:
        raise LocalProtocolError(f"a message of {len(body)} bytes is over the limit of {max_bytes}")
    if not body.startswith(b"{"):
        raise LocalProtocolError("a message is a JSON object")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def data_pieces(stream: Stream, data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Data as frames of at most DATA_FRAME_MAX_BYTES, in order, none of it copied.

    Shape: pairs of a frame's beginning and the bytes that follow it.
    """
    tag = bytes((stream,))
    view, step = memoryview(data), DATA_FRAME_MAX_BYTES - 1
    for start in range(0, len(data), step):
        piece = view[start : start + step]
        yield (len(piece) + 1).to_bytes(HEADER_BYTES, "big") + tag, piece


def data_frames(stream: Stream, data: bytes) -> list[bytes]:
    """Data as whole frames, in order; none for no data."""
    return [head + piece for head, piece in data_pieces(stream, data)]


class FrameDecoder:
    """Feed it what arrives, in any pieces; it returns the frames that became whole.

    `streams` are the ones that this peer may send: stdin from a capsule, none from an operator.
    """

    def __init__(self, *, max_message_bytes: int, streams: Iterable[Stream] = Stream) -> None:
        self._max_message_bytes = max_message_bytes
        self._streams = frozenset(streams)
        self._buffer = bytearray()
        self._broken = False

    @property
    def is_between_frames(self) -> bool:
        """Whether an end of the connection here would cut nothing in two."""
        return not self._buffer

    def feed(self, data: bytes, *, most: int | None = None) -> list[Frame]:
        """The frames that `data` completed, in order; at most `most`, the next call has the rest.

        Raises: PeerProtocolError for an empty, over-long or unknown frame.
        """
        if self._broken:
            raise PeerProtocolError("the stream was already broken")
        self._buffer += data
        frames: list[Frame] = []
        start = 0
        try:
            while len(frames) != most and (end := self._end_of_frame(start)) is not None:
                frames.append(_parse(bytes(memoryview(self._buffer)[start + HEADER_BYTES : end])))
                start = end
        except PeerProtocolError:
            self._broken = True
            raise
        del self._buffer[:start]
        return frames

    def _end_of_frame(self, start: int) -> int | None:
        """Where the frame at `start` ends, or None while it is not whole."""
        available = len(self._buffer) - start
        if available < HEADER_BYTES:
            return None
        size = int.from_bytes(self._buffer[start : start + HEADER_BYTES], "big")
        if size == 0:
            raise PeerProtocolError("an empty frame")
        if size > max(self._max_message_bytes, DATA_FRAME_MAX_BYTES):
            raise PeerProtocolError(f"a frame of {size} bytes is over every limit")
        if available > HEADER_BYTES:
            self._check_kind(self._buffer[start + HEADER_BYTES], size)
        end = start + HEADER_BYTES + size
        return end if end <= len(self._buffer) else None

    def _check_kind(self, first: int, size: int) -> None:
        if first == _BRACE:
            if size > self._max_message_bytes:
                raise PeerProtocolError(
                    f"a message of {size} bytes is over the limit of {self._max_message_bytes}"
                )
        elif first not in self._streams:
            raise PeerProtocolError(f"a frame begins with the unknown byte {first:#04x}")
        elif size > DATA_FRAME_MAX_BYTES:
            raise PeerProtocolError(
                f"a data frame of {size} bytes is over the limit of {DATA_FRAME_MAX_BYTES}"
            )


def _parse(body: bytes) -> Frame:
    if body[0] == _BRACE:
        return MessageFrame(body)
    return DataFrame(Stream(body[0]), body[1:])
