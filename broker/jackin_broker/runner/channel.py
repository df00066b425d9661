"""The broker's end of the channel to a capsule's init.

It refuses to know what is run. Who is at the other end was decided before: the recorded init, by
the kernel's word (`peer.is_runner`). Invariants: one channel a capsule, a newer one of the same
init takes its place; nothing that init sends after its first message means anything.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from .. import protocol
from ..capsules import Capsule
from ..errors import PeerProtocolError
from ..frames import FrameDecoder, MessageFrame, message_frame
from ..init_protocol import InitReady, Isolation, decode_from_init
from ..protocol import Kill, Look, Spawn

_log = logging.getLogger(__name__)

# Init says what it can do in the same moment in which it connects.
READY_LIMIT_S: Final = 10.0
_READY_MAX_BYTES: Final = 4096


class InitChannel:
    """A capsule's `Runner`."""

    def __init__(self, sock: socket.socket, ready: InitReady) -> None:
        self._sock = sock
        self._ready = ready

    @property
    def isolation(self) -> Isolation:
        """What keeps the agent from reading a command."""
        return self._ready.isolation

    @property
    def skills(self) -> frozenset[str]:
        """What it can do beside running commands."""
        return self._ready.skills

    def spawn(self, request_id: str, descriptors: Sequence[int]) -> None:
        """Have a command started; the descriptors stay the caller's to close.

        Raises: OSError, also when init takes nothing any more.
        """
        socket.send_fds(self._sock, [_frame(Spawn(request_id))], list(descriptors))

    def look(self, look_id: str, descriptors: Sequence[int]) -> None:
        """Have a command looked for; the descriptors stay the caller's to close.

        Raises: OSError, also when init takes nothing any more.
        """
        socket.send_fds(self._sock, [_frame(Look(look_id))], list(descriptors))

    def kill(self, request_id: str, number: int) -> None:
        """Signal a command's leader; nothing when init has gone."""
        with suppress(OSError):
            self._sock.send(_frame(Kill(request_id, number)))

    def close(self) -> None:
        """Let init go; whoever serves this channel closes the socket."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


async def serve_init(sock: socket.socket, capsule: Capsule) -> None:
    """Let init run the capsule's commands until it goes. Closes the socket."""
    with sock:
        try:
            ready = await _ready(sock)
        except (PeerProtocolError, TimeoutError, OSError) as error:
            _log.warning("init of capsule %s: %s", capsule.name, error)
            return
        channel = InitChannel(sock, ready)
        capsule.take_runner(channel)
        _log.info("capsule %s runs commands, isolation %s", capsule.name, ready.isolation.value)
        try:
            await _gone(sock)
        finally:
            if capsule.runner is channel:
                capsule.take_runner(None)


async def _ready(sock: socket.socket) -> InitReady:
    """Raises: PeerProtocolError, TimeoutError, OSError."""
    decoder = FrameDecoder(max_message_bytes=_READY_MAX_BYTES)
    async with asyncio.timeout(READY_LIMIT_S):
        while True:
            data = await asyncio.get_running_loop().sock_recv(sock, _READY_MAX_BYTES)
            if not data:
                raise PeerProtocolError("it left without a word")
            for frame in decoder.feed(data):
                if not isinstance(frame, MessageFrame):
                    raise PeerProtocolError("it sent data")
                return decode_from_init(frame.body)


async def _gone(sock: socket.socket) -> None:
    """Return when the other end closed."""
    with suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(sock, _READY_MAX_BYTES):
            pass


def _frame(message: Spawn | Look | Kill) -> bytes:
    return message_frame(protocol.encode(message), max_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES)
