"""What a connection sends leaves whole and in order, however little its peer takes at a time.

Over real sockets: the kernel decides how much of a frame fits. Output goes past the transport
while nothing waits in it, so every way in which a frame can be cut must join again.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby

import pytest

from jackin_broker import protocol
from jackin_broker.connection import SEND_BUFFER_BYTES, CapsuleConnection
from jackin_broker.frames import (
    HEADER_BYTES,
    DataFrame,
    FrameDecoder,
    Stream,
)

LIMIT_S = 20.0
MIB = 1024 * 1024
# The kernel's smallest: a frame leaves in dozens of parts.
TINY_BUFFER_BYTES = 4608

# A stream's bytes, or None and a message's.
Piece = tuple[Stream | None, bytes]
Scene = Callable[[CapsuleConnection, socket.socket], Awaitable[None]]


def unix_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    return ours, theirs


def play(scene: Scene, ours: socket.socket, theirs: socket.socket) -> None:
    async def go() -> None:
        _, connection = await asyncio.get_running_loop().connect_accepted_socket(
            CapsuleConnection, ours
        )
        theirs.setblocking(False)
        async with asyncio.timeout(LIMIT_S):
            with theirs:
                await scene(connection, theirs)
            await connection.close()

    asyncio.run(go())


async def pieces_from(peer: socket.socket, most_bytes: int, end: bytes) -> list[Piece]:
    """What arrives, up to the message that is the end."""
    decoder = FrameDecoder(max_message_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES)
    pieces: list[Piece] = []
    loop = asyncio.get_running_loop()
    while not pieces or pieces[-1] != (None, end):
        for frame in decoder.feed(await loop.sock_recv(peer, most_bytes)):
            is_data = isinstance(frame, DataFrame)
            pieces.append((frame.stream, frame.data) if is_data else (None, frame.body))
    return pieces


def joined(pieces: Iterable[Piece]) -> list[tuple[Stream | None, int, str]]:
    """Neighbours of one stream as one piece, by size and digest; None for messages."""
    runs = [
        (stream, b"".join(data for _, data in run))
        for stream, run in groupby(pieces, key=lambda piece: piece[0])
    ]
    return [(stream, len(data), hashlib.sha256(data).hexdigest()) for stream, data in runs]


@pytest.mark.parametrize("pair", [unix_pair, tcp_pair])
@pytest.mark.parametrize("peer_takes", [997, 65536, MIB])
@pytest.mark.parametrize("is_tiny", [True, False])
def test_what_is_sent_arrives_whole_and_in_order(
    pair: Callable[[], tuple[socket.socket, socket.socket]], peer_takes: int, is_tiny: bool
) -> None:
    chance = random.Random(peer_takes + is_tiny)
    sizes = [1, 2, 255, 256, 65536, protocol.DATA_FRAME_MAX_BYTES - 1, 3 * MIB // 4]
    said = [
        (chance.choice([Stream.STDOUT, Stream.STDERR, None]), chance.randbytes(size))
        for size in sizes * 2
    ]
    ours, theirs = pair()
    if is_tiny:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY_BUFFER_BYTES)

    async def scene(connection: CapsuleConnection, peer: socket.socket) -> None:
        end = protocol.AskResult(protocol.Outcome.ASK, "", "")
        reading = asyncio.ensure_future(pieces_from(peer, peer_takes, protocol.encode(end)))
        expected: list[Piece] = []
        for number, (stream, data) in enumerate(said):
            if stream is None:
                message = protocol.StdinCredit(number + 1)
                connection.send(message)
                expected.append((None, protocol.encode(message)))
            else:
                connection.send_data(stream, data)
                expected.append((stream, data))
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        connection.send(end)
        expected.append((None, protocol.encode(end)))
        assert joined(await reading) == joined(expected)

    play(scene, ours, theirs)


def test_a_peer_that_left_in_the_middle_of_a_frame_harms_nobody() -> None:
    ours, theirs = unix_pair()

    async def scene(connection: CapsuleConnection, peer: socket.socket) -> None:
        connection.send_data(Stream.STDOUT, bytes(4 * MIB))
        peer.close()
        while not connection.is_gone:
            connection.send_data(Stream.STDOUT, bytes(MIB))
            await asyncio.sleep(0)
        connection.send_data(Stream.STDOUT, b"late")

    play(scene, ours, theirs)


def test_the_kernel_is_asked_for_room_once_a_frame_did_not_fit_and_not_before() -> None:
    """Two hundred connections that say little cost what they always did."""
    ours, theirs = unix_pair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY_BUFFER_BYTES)
    before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert before < SEND_BUFFER_BYTES

    async def scene(connection: CapsuleConnection, peer: socket.socket) -> None:
        connection.send_data(Stream.STDOUT, b"a line\n")
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before
        connection.send_data(Stream.STDOUT, bytes(protocol.DATA_FRAME_MAX_BYTES - 1))
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before
        loop = asyncio.get_running_loop()
        left = 2 * (HEADER_BYTES + 1) + len(b"a line\n") + protocol.DATA_FRAME_MAX_BYTES - 1
        while left:
            left -= len(await loop.sock_recv(peer, left))

    play(scene, ours, theirs)
