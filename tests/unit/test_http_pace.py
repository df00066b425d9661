"""A body in tiny chunks: it is taken slice by slice, and the loop is everybody's in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import h11
import pytest
from starlette.types import Receive, Scope, Send

from jackin_broker.bridge import http_server
from jackin_broker.bridge.http_server import EmbeddedServer
from jackin_broker.bridge.tcp import listen_on
from jackin_broker.pace import FREE_PIECES, PIECES_PER_S, SLICE_BYTES, Pace

LIMIT_S = 20.0
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# A chunk of one byte takes six.
CHUNK_BYTES = 6
END = b"0\r\n\r\n"


def chunks(data: bytes, size: int = 1) -> bytes:
    pieces = (data[start : start + size] for start in range(0, len(data), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


class Gathering:
    """An application that keeps the bodies that came, and answers nothing before their end."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.got = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            self.got += len(message["body"])
            more = message["more_body"]
        self.bodies.append(bytes(body))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def run(scene: Callable[[Gathering, int], Awaitable[None]]) -> None:
    async def go() -> None:
        app = Gathering()
        server = EmbeddedServer(app)
        listener = listen_on("127.0.0.1", 0, 16)
        server.open(listener)
        try:
            async with asyncio.timeout(LIMIT_S):
                await scene(app, int(listener.getsockname()[1]))
        finally:
            server.stop_listening()
            await server.close()

    asyncio.run(go())


async def posted(port: int, said: bytes) -> bytes:
    """The first line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(said)
        return await reader.readline()
    finally:
        writer.close()


def count_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces of bodies were taken apart so far, as one number in a list."""
    count = [0]
    next_event = h11.Connection.next_event

    def counted(self: h11.Connection) -> Any:
        event = next_event(self)
        count[0] += isinstance(event, h11.Data)
        return event

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    return count


def test_between_two_turns_of_the_loop_no_more_than_a_slice_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transport reads a quarter megabyte at once: forty thousand one-byte chunks."""
    monkeypatch.setattr(http_server, "_SHUTDOWN_S", 0)  # a peer that rests is not waited for here
    count = count_pieces(monkeypatch)

    async def scene(app: Gathering, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED + chunks(bytes(60_000)))
        most = before = 0
        while app.got < 3 * SLICE_BYTES // CHUNK_BYTES:
            await asyncio.sleep(0)
            most, before = max(most, count[0] - before), count[0]
        assert 0 < most <= SLICE_BYTES // CHUNK_BYTES + FREE_PIECES
        writer.close()

    run(scene)


def test_a_body_in_tiny_chunks_arrives_whole_and_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackin_broker.pace.PIECES_PER_S", 100_000)
    said = bytes(range(256)) * 40

    async def scene(app: Gathering, port: int) -> None:
        assert (await posted(port, CHUNKED + chunks(said) + END)).startswith(b"HTTP/1.1 204")
        assert app.bodies == [said]

    run(scene)


@pytest.mark.parametrize("size", [512, 100_000])
def test_a_body_in_sensible_chunks_never_rests(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(Pace, "rest_s", _free_of_rest)
    said = bytes(1_000_000)

    async def scene(app: Gathering, port: int) -> None:
        assert (await posted(port, CHUNKED + chunks(said, size) + END)).startswith(b"HTTP/1.1 204")
        assert app.bodies == [said]
        assert (
            await posted(port, HEAD + b"Content-Length: %d\r\n\r\n" % len(said) + said)
        ).startswith(b"HTTP/1.1 204")

    run(scene)


_rest_s = Pace.rest_s


def _free_of_rest(self: Pace, now: float, pieces: int, size_bytes: int) -> float:
    assert _rest_s(self, now, pieces, size_bytes) == 0
    return 0.0


def test_an_application_that_takes_nothing_holds_the_peer() -> None:
    """What was received and not asked for stays with the peer, whatever the rests are."""

    class Late(Gathering):
        def __init__(self) -> None:
            super().__init__()
            self.may = asyncio.Event()

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self.may.wait()
            await super().__call__(scope, receive, send)

    async def go() -> None:
        app = Late()
        server = EmbeddedServer(app)
        listener = listen_on("127.0.0.1", 0, 16)
        server.open(listener)
        size = 32 * 1024 * 1024
        try:
            async with asyncio.timeout(LIMIT_S):
                reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
                writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
                connections = server.server_state.connections
                while not any(cast("Any", one).flow.read_paused for one in connections):  # noqa: ASYNC110 - uvicorn tells nobody
                    await asyncio.sleep(0)
                one: Any = next(iter(connections))
                assert len(one.cycle.body) + len(one._unread) < 1024 * 1024
                app.may.set()
                assert (await reader.readline()).startswith(b"HTTP/1.1 204")
                assert app.bodies == [bytes(size)]
                writer.close()
        finally:
            server.stop_listening()
            await server.close()

    asyncio.run(go())


def test_who_shares_a_pace_shares_its_rests() -> None:
    """A hundred connections of one capsule get no more of the loop than one."""
    pace = Pace()
    rests = [pace.rest_s(7.0, FREE_PIECES + PIECES_PER_S, 1) for _ in range(100)]
    assert [round(rest_s, 6) for rest_s in rests] == [float(second) for second in range(1, 101)]


def test_a_slice_of_few_pieces_costs_nothing_and_a_rest_is_forgotten() -> None:
    pace = Pace()
    assert pace.rest_s(0.0, FREE_PIECES, 1) == 0
    assert pace.rest_s(0.0, 10 * FREE_PIECES, 10 * SLICE_BYTES) == 0
    assert round(pace.rest_s(0.0, FREE_PIECES + PIECES_PER_S, 1), 6) == 1
    assert pace.rest_s(0.5, 1, 1) == 0
    assert round(pace.rest_s(9.0, FREE_PIECES + PIECES_PER_S, 1), 6) == 1
