"""The broker's end of a capsule's connection, over a real socket: pacing, breakage, the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from jackin_broker import protocol
from jackin_broker.connection import CapsuleConnection
from jackin_broker.errors import PeerProtocolError
from jackin_broker.frames import (
    DataFrame,
    Frame,
    FrameDecoder,
    MessageFrame,
    Stream,
    data_frames,
    message_frame,
)
from jackin_broker.pace import SLICE_PIECES

LIMIT_S = 20.0


class Witness:
    """A handler that writes down what it is told."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.broke: list[PeerProtocolError] = []
        self.gone = asyncio.Event()
        self.flows: list[bool] = []
        self.something = asyncio.Event()

    def frame_received(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.something.set()

    def peer_broke(self, error: PeerProtocolError) -> None:
        self.broke.append(error)
        self.something.set()

    def peer_gone(self) -> None:
        self.gone.set()

    def output_may_flow(self, flows: bool) -> None:
        self.flows.append(flows)


Scene = Callable[[CapsuleConnection, Witness, socket.socket], Awaitable[None]]


def play(scene: Scene) -> None:
    async def go() -> None:
        ours, theirs = socket.socketpair()
        theirs.settimeout(LIMIT_S)
        with theirs:
            _, connection = await asyncio.get_running_loop().connect_accepted_socket(
                CapsuleConnection, ours
            )
            witness = Witness()
            connection.attach(witness)
            async with asyncio.timeout(LIMIT_S):
                await scene(connection, witness, theirs)
            theirs.close()
            await connection.close()

    asyncio.run(go())


def cancel_frame() -> bytes:
    return message_frame(
        protocol.encode(protocol.Cancel()), max_bytes=protocol.MESSAGE_FROM_CAPSULE_MAX_BYTES
    )


def test_frames_arrive_whole_however_they_are_cut() -> None:
    async def scene(_: CapsuleConnection, witness: Witness, peer: socket.socket) -> None:
        wire = cancel_frame() + b"".join(data_frames(Stream.STDIN, b"abc"))
        for byte in wire:
            peer.sendall(bytes((byte,)))
            await asyncio.sleep(0)
        while len(witness.frames) < 2:
            witness.something.clear()
            await witness.something.wait()
        assert isinstance(witness.frames[0], MessageFrame)
        assert witness.frames[1] == DataFrame(Stream.STDIN, b"abc")

    play(scene)


def test_after_a_broken_frame_nothing_more_is_looked_at() -> None:
    async def scene(_: CapsuleConnection, witness: Witness, peer: socket.socket) -> None:
        peer.sendall(b"\xff\xff\xff\xff{" + cancel_frame())
        await witness.something.wait()
        assert len(witness.broke) == 1
        peer.sendall(cancel_frame())
        await asyncio.sleep(0.05)
        assert witness.frames == []
        assert len(witness.broke) == 1

    play(scene)


def test_a_peer_that_does_not_read_stops_the_output_and_bounds_what_is_held() -> None:
    async def scene(connection: CapsuleConnection, witness: Witness, peer: socket.socket) -> None:
        piece = b"x" * 65536
        sent = 0
        while not witness.flows:
            connection.send_data(Stream.STDOUT, piece)
            sent += len(piece)
            assert sent < 64 * 1024 * 1024
        assert witness.flows == [False]
        decoder = FrameDecoder(max_message_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES)
        received = 0
        peer.setblocking(False)
        while received < sent:
            data = await asyncio.get_running_loop().sock_recv(peer, 1 << 20)
            received += sum(len(f.data) for f in decoder.feed(data) if isinstance(f, DataFrame))
        assert witness.flows == [False, True]

    play(scene)


def test_the_last_word_arrives_before_the_end() -> None:
    async def scene(connection: CapsuleConnection, _: Witness, peer: socket.socket) -> None:
        connection.send(protocol.ExecDenied("expired", "nobody answered"))
        closing = asyncio.ensure_future(connection.close())
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        wire = b""
        while data := await loop.sock_recv(peer, 65536):
            wire += data
        peer.close()
        await closing
        (frame,) = FrameDecoder(max_message_bytes=1 << 20).feed(wire)
        assert isinstance(frame, MessageFrame)
        denied = protocol.decode_to_capsule(frame.body)
        assert denied == protocol.ExecDenied("expired", "nobody answered")

    play(scene)


def test_the_last_word_arrives_though_the_peer_had_more_to_say() -> None:
    """Closing on unread bytes resets the connection, and the message is lost with it."""

    async def scene(connection: CapsuleConnection, _: Witness, peer: socket.socket) -> None:
        connection.hold(True)
        peer.sendall(b"".join(data_frames(Stream.STDIN, b"x" * 50_000)))
        connection.send(protocol.ExecDenied("expired", "nobody answered"))
        closing = asyncio.ensure_future(connection.close())
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        wire = b""
        while data := await loop.sock_recv(peer, 65536):
            wire += data
        peer.close()
        await closing
        assert b"nobody answered" in wire

    play(scene)


def test_an_end_from_the_peer_is_noticed() -> None:
    async def scene(_: CapsuleConnection, witness: Witness, peer: socket.socket) -> None:
        peer.shutdown(socket.SHUT_WR)
        await witness.gone.wait()

    play(scene)


def test_a_flood_of_tiny_frames_leaves_the_loop_to_others() -> None:
    """A quarter megabyte is read at once, and one-byte frames are six bytes each."""

    async def scene(_: CapsuleConnection, witness: Witness, peer: socket.socket) -> None:
        peer.setblocking(False)
        flood = data_frames(Stream.STDIN, b"x")[0] * 40_000
        loop = asyncio.get_running_loop()
        sending = loop.create_task(loop.sock_sendall(peer, flood))
        most = before = 0
        while len(witness.frames) < 3 * SLICE_PIECES:
            await asyncio.sleep(0)
            most, before = max(most, len(witness.frames) - before), len(witness.frames)
        assert most == SLICE_PIECES
        sending.cancel()

    play(scene)


def test_tiny_frames_all_arrive_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackin_broker.pace.PIECES_PER_S", 1_000_000)

    async def scene(_: CapsuleConnection, witness: Witness, peer: socket.socket) -> None:
        peer.setblocking(False)
        said = bytes(range(256)) * 40
        wire = b"".join(data_frames(Stream.STDIN, bytes((byte,)))[0] for byte in said)
        await asyncio.get_running_loop().sock_sendall(peer, wire)
        while len(witness.frames) < len(said):
            witness.something.clear()
            await witness.something.wait()
        assert b"".join(frame[-1] for frame in witness.frames) == said

    play(scene)
