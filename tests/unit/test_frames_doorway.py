"""Frames over TCP before a session: a peer that does not prove the token gets no further."""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from jackin_broker.bridge import tcp
from jackin_broker.bridge.tcp import FramesDoorway, listen_on
from jackin_broker.bridge.tokens import BridgeKey, new_key
from jackin_broker.capsules import Capsule
from jackin_broker.config import Config
from jackin_broker.config.model import CapsuleConfig, CapsuleKind
from jackin_broker.services import Services
from jackin_capsule import tcp as shim
from jackin_capsule.wire import message

LIMIT_S = 20.0
NAME = "secret-name"


class Records:
    """A record that counts what it is told."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    async def record_refusal(self, *_: object, reason: str, **__: object) -> None:
        self.refused.append(reason)


class FakeServices:
    """What a doorway reads before a session begins."""

    config = Config()

    def __init__(self) -> None:
        self.audit = Records()


class Met(FramesDoorway):
    """A doorway that counts who got in, and serves nobody."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.met = 0

    async def _serve(self, connection: Any, caller: Any) -> None:
        assert caller.is_bridged
        self.met += 1
        await connection.close()


@asynccontextmanager
async def opened(
    key: BridgeKey | None, kind: type[Met] | None = None
) -> AsyncGenerator[tuple[Met, int]]:
    config = CapsuleConfig(NAME, CapsuleKind.REMOTE, (0,), ("true",))
    capsule = Capsule(NAME, config, {}, CapsuleKind.REMOTE, frozenset({0}))
    listener = listen_on("127.0.0.1", 0, 16)
    port = int(listener.getsockname()[1])
    services = cast("Services", FakeServices())
    door = (kind or Met)(services, capsule, listener, lambda: key)
    try:
        yield door, port
    finally:
        await door.close()


Scene = Callable[[Met, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def play(scene: Scene, key: BridgeKey | None) -> None:
    async def go() -> None:
        async with asyncio.timeout(LIMIT_S), opened(key) as (door, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await scene(door, reader, writer)
            finally:
                writer.close()

    asyncio.run(go())


async def heard(reader: asyncio.StreamReader, *, has_proved: bool = False) -> dict[str, Any]:
    size = struct.unpack(">I", await reader.readexactly(4))[0]
    body = await reader.readexactly(size)
    assert has_proved or NAME.encode() not in body
    return dict(msgspec.json.decode(body))


async def greet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nonce: bytes
) -> dict[str, Any]:
    writer.write(message("Hello", protocol=1, nonce=nonce.hex()))
    return await heard(reader)


def test_who_proves_the_token_is_let_in_and_the_broker_proved_it_too() -> None:
    key = new_key()

    async def scene(door: Met, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours = secrets.token_bytes(32)
        said = await greet(reader, writer, ours)
        theirs = bytes.fromhex(said["nonce"])
        assert said["proof"] == shim.proof(key.token, shim.BROKER, ours, theirs)
        writer.write(message("Proof", proof=shim.proof(key.token, shim.CALLER, ours, theirs)))
        assert await reader.read() == b""
        assert door.met == 1

    play(scene, key)


@pytest.mark.parametrize("kind", ["wrong token", "reflected", "empty", "of the other role"])
def test_another_proof_is_refused_and_on_record(kind: str) -> None:
    key = new_key()

    async def scene(door: Met, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours = secrets.token_bytes(32)
        said = await greet(reader, writer, ours)
        theirs = bytes.fromhex(said["nonce"])
        proof = {
            "wrong token": shim.proof("0" * 64, shim.CALLER, ours, theirs),
            "reflected": said["proof"],
            "empty": "",
            "of the other role": shim.proof(key.token, shim.BROKER, ours, theirs),
        }[kind]
        writer.write(message("Proof", proof=proof))
        denied = await heard(reader)
        assert (denied["type"], denied["code"]) == ("ExecDenied", "peer_refused")
        assert door.met == 0
        records = cast("Records", cast("Any", door)._services.audit)
        assert records.refused == ["the token is wrong or no longer valid"]

    play(scene, key)


def test_a_proof_of_another_connection_is_worth_nothing() -> None:
    key = new_key()

    async def go() -> None:
        async with asyncio.timeout(LIMIT_S), opened(key) as (door, port):
            ours = secrets.token_bytes(32)
            first = await asyncio.open_connection("127.0.0.1", port)
            said = await greet(*first, ours)
            good = shim.proof(key.token, shim.CALLER, ours, bytes.fromhex(said["nonce"]))
            second = await asyncio.open_connection("127.0.0.1", port)
            await greet(*second, ours)
            second[1].write(message("Proof", proof=good))
            assert (await heard(second[0]))["code"] == "peer_refused"
            assert door.met == 0
            for _, writer in (first, second):
                writer.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    "said",
    [
        struct.pack(">I", 513) + b"{",
        struct.pack(">I", 0),
        struct.pack(">I", 1 << 31),
        message("Proof", proof="0" * 64),
        message("ExecCommand", protocol=1, command="true"),
        message("Hello", protocol=1, nonce="00"),
        message("Hello", protocol=2, nonce="00" * 32),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_handshake_ends_it(said: bytes) -> None:
    async def scene(door: Met, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        assert (await heard(reader))["type"] == "ExecDenied"
        assert door.met == 0

    play(scene, new_key())


def test_without_a_key_nobody_is_let_in() -> None:
    async def scene(door: Met, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await greet(reader, writer, bytes(32)))["code"] == "peer_refused"

    play(scene, None)


def test_a_handshake_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "HANDSHAKE_S", 0.05)

    async def scene(door: Met, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await greet(reader, writer, bytes(32))
        if said["type"] == "Challenge":  # on a busy machine it is too late for that already
            said = await heard(reader)
        assert said["reason"] == "the handshake was not completed"

    play(scene, new_key())


class Staying(Met):
    """A doorway whose callers stay until it closes."""

    async def _serve(self, connection: Any, caller: Any) -> None:
        self.met += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await connection.close()


def test_callers_that_prove_the_token_at_the_same_moment_share_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each had looked whether there was room before any of them had a place."""
    key, most = new_key(), 2
    limits = msgspec.structs.replace(Config().limits, connections_per_capsule=most)
    config = msgspec.structs.replace(Config(), limits=limits)
    monkeypatch.setattr(FakeServices, "config", config)

    async def go() -> None:
        async with asyncio.timeout(LIMIT_S), opened(key, Staying) as (door, port):
            callers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
            ours = secrets.token_bytes(32)
            theirs = [
                bytes.fromhex((await greet(reader, writer, ours))["nonce"])
                for reader, writer in callers
            ]
            for (_, writer), nonce in zip(callers, theirs, strict=True):
                proof = shim.proof(key.token, shim.CALLER, ours, nonce)
                writer.write(message("Proof", proof=proof))
            waits = [asyncio.ensure_future(heard(reader, has_proved=True)) for reader, _ in callers]
            for _, one in zip(
                range(len(callers) - most), asyncio.as_completed(waits), strict=False
            ):
                assert (await one)["code"] == "too_many_pending"
            assert len(door.capsule.callers) == most
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            for _, writer in callers:
                writer.close()

    asyncio.run(go())


def test_who_connects_and_says_nothing_cannot_keep_the_others_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as there is room for at all: the one that came first makes room."""
    key = new_key()
    monkeypatch.setattr("jackin_broker.doorway.REFUSED_MAX", 1)

    async def go() -> None:
        async with asyncio.timeout(LIMIT_S), opened(key) as (door, port):
            limit = Config().limits.connections_per_capsule
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(limit + 1)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            ours = secrets.token_bytes(32)
            theirs = bytes.fromhex((await greet(reader, writer, ours))["nonce"])
            writer.write(message("Proof", proof=shim.proof(key.token, shim.CALLER, ours, theirs)))
            assert await reader.read() == b""
            assert door.met == 1
            assert await silent[0][0].read() == b""
            for _, one in (*silent, (reader, writer)):
                one.close()

    asyncio.run(go())
