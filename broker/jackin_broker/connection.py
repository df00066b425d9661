"""One connection from a capsule, as frames in and frames out, with pacing both ways.

It refuses to know what messages mean: whole frames go to a `FrameHandler`. Invariants: nothing
that the peer sends or fails to read grows memory past the constants here; a broken frame is
reported once and nothing after it is looked at; a flood of tiny frames leaves the loop to others
(`pace.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final, Protocol

import msgspec

from . import protocol
from .errors import PeerProtocolError
from .frames import Frame, FrameDecoder, Stream, data_pieces, message_frame
from .pace import SLICE_PIECES, Pace

# What may lie unsent before the command is paused: two data frames, so that a fast reader
# never waits for us and a slow one costs half a megabyte.
WRITE_HIGH_BYTES: Final = 2 * protocol.DATA_FRAME_MAX_BYTES
# What the kernel is asked to hold of a peer that reads less than we write: two data frames (it
# counts what it holds twice over). In its default not one fits, and each left in two parts.
SEND_BUFFER_BYTES: Final = 2 * protocol.DATA_FRAME_MAX_BYTES
# How long a last message may take to leave; a caller that does not read loses it.
FAREWELL_S: Final = 5.0
# How long a peer that got its last message may take to close its end.
LINGER_S: Final = 1.0


class FrameHandler(Protocol):
    """What a connection reports to; every call comes from the loop."""

    def frame_received(self, frame: Frame) -> None:
        """A whole frame arrived."""

    def peer_broke(self, error: PeerProtocolError) -> None:
        """The peer sent what cannot be a frame; nothing more will be reported but the end."""

    def peer_gone(self) -> None:
        """The peer closed, or the connection broke."""

    def output_may_flow(self, flows: bool) -> None:
        """Whether more output can be taken now."""


class Channel(Protocol):
    """What a session needs of whoever carries its frames: a socket's connection, or HTTP."""

    def attach(self, handler: FrameHandler) -> None:
        """Report to this handler from now on."""

    def hold(self, held: bool) -> None:
        """Stop reading from the peer, or go on."""

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message. After the peer went it goes nowhere."""

    def send_data(self, stream: Stream, data: bytes) -> None:
        """Queue output."""

    async def close(self) -> None:
        """Let what is queued leave, bounded, and end."""


class CapsuleConnection(asyncio.Protocol):
    """The broker's end. Made before its handler is known; frames wait for `attach`.

    With `stall_s` a peer that takes nothing of what waits for so long counts as gone. Those who
    share `pace` share the rests of floods.
    """

    def __init__(self, *, stall_s: float | None = None, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._rest: asyncio.TimerHandle | None = None
        self._is_held = False
        self._stall_s = stall_s
        self._stall: asyncio.TimerHandle | None = None
        self._decoder = FrameDecoder(max_message_bytes=protocol.MESSAGE_FROM_CAPSULE_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._has_room = False
        self._handler: FrameHandler | None = None
        self._is_broken = False
        self._drained: asyncio.Event = asyncio.Event()
        self._drained.set()
        self._gone: asyncio.Event = asyncio.Event()

    @property
    def is_gone(self) -> bool:
        """Whether the peer closed, or the connection broke."""
        return self._gone.is_set()

    def attach(self, handler: FrameHandler) -> None:
        """Report to this handler from now on."""
        self._handler = handler
        self.hold(False)

    def hold(self, held: bool) -> None:
        """Stop reading from the peer, or go on."""
        self._is_held = held
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_held or self._rest is not None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- asyncio's side -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._fd = transport.get_extra_info("socket").fileno()
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._go_on(data)

    def _go_on(self, data: bytes = b"") -> None:
        """Report what came whole, until the peer is to rest."""
        taken = SLICE_PIECES
        while taken == SLICE_PIECES and self._handler is not None and not self._is_broken:
            try:
                frames = self._decoder.feed(data, most=SLICE_PIECES)
            except PeerProtocolError as error:
                self._is_broken = True
                self._handler.peer_broke(error)
                return
            data, taken, size = b"", len(frames), 0
            for frame in frames:
                size += len(frame[-1])
                self._handler.frame_received(frame)
            loop = asyncio.get_running_loop()
            if rest_s := self._pace.rest_s(loop.time(), taken, size):
                self._rest = loop.call_later(rest_s, self._rested)
                self._read_or_not()
                return

    def _rested(self) -> None:
        self._rest = None
        self._go_on()
        self._read_or_not()

    def _end_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def eof_received(self) -> bool:
        """An end from the peer ends it all: a caller that wants output keeps both halves open."""
        self._lost()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._drained.set()
        self._end_stall()
        self._end_rest()
        self._lost()

    def pause_writing(self) -> None:
        self._drained.clear()
        self._watch_stall()
        if self._handler is not None:
            self._handler.output_may_flow(False)

    def resume_writing(self) -> None:
        self._drained.set()
        self._end_stall()
        if self._handler is not None:
            self._handler.output_may_flow(True)

    def _watch_stall(self) -> None:
        if self._stall_s is not None and self._transport is not None:
            loop = asyncio.get_running_loop()
            self._stall = loop.call_later(self._stall_s, self._transport.abort)

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _lost(self) -> None:
        if not self.is_gone:
            self._gone.set()
            if self._handler is not None:
                self._handler.peer_gone()

    # --- our side -----------------------------------------------------------------------

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message. After the peer went it goes nowhere."""
        if self._transport is not None:
            body = protocol.encode(message)
            self._transport.write(
                message_frame(body, max_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES)
            )

    def send_data(self, stream: Stream, data: bytes) -> None:
        """Queue output."""
        for head, piece in data_pieces(stream, data):
            if self._transport is not None:
                self._write(self._transport, head, piece)

    def _write(self, transport: asyncio.Transport, head: bytes, piece: memoryview) -> None:
        """Without joining the two, and past the transport while nothing waits in it."""
        sent = 0
        if not (transport.get_write_buffer_size() or transport.is_closing()):
            try:
                sent = os.writev(self._fd, (head, piece))
            except OSError:  # nothing fits now, or it broke: the transport finds out which
                sent = 0
        if sent == len(head) + len(piece):
            return
        self._make_room(transport)
        if sent < len(head):
            transport.write(head[sent:])
        transport.write(piece[max(0, sent - len(head)) :])

    def _make_room(self, transport: asyncio.Transport) -> None:
        """Not before a frame did not fit: most connections never carry so much."""
        channel = transport.get_extra_info("socket")
        if not self._has_room and channel.family == socket.AF_UNIX:  # TCP does it by itself
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._has_room = True

    async def close(self) -> None:
        """Let what is queued leave, bounded by FAREWELL_S, and end the connection.

        What the peer still sends is read and dropped for a moment: closing on unread bytes
        would reset the connection, and the last message with it.
        """
        transport = self._transport
        if transport is None:
            return
        self._handler = None
        self._end_rest()
        transport.set_write_buffer_limits(high=0)  # `_drained` now means: nothing is left
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._drained.wait()
            transport.write_eof()
            self.hold(False)
            async with asyncio.timeout(LINGER_S):
                await self._gone.wait()
        except OSError:  # too late, or a TCP peer that reset it: nothing more can leave
            transport.abort()
        except asyncio.CancelledError:  # the broker stops; nobody else closes it
            transport.abort()
            raise
        else:
            transport.close()
