"""The HTTP doorway on paths that are nearly right, on large forms, on a stdin that it holds."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from jackin_broker import protocol
from jackin_broker.bridge import http_plain
from jackin_broker.bridge.http_doorway import HttpDoorway
from jackin_broker.bridge.http_exec import JsonChannel
from jackin_broker.bridge.tcp import listen_on
from jackin_broker.bridge.tokens import new_key
from jackin_broker.capsules import Capsule
from jackin_broker.config import Config
from jackin_broker.config.model import CapsuleConfig, CapsuleKind
from jackin_broker.errors import PeerProtocolError
from jackin_broker.protocol import ExecCommand, StdinKind
from jackin_broker.services import Services

LIMIT_S = 20.0
KEY = new_key()


class FakeServices:
    """What a doorway reads before any session begins."""

    def __init__(self) -> None:
        self.config = Config()


@asynccontextmanager
async def served() -> AsyncGenerator[int]:
    """The port of a doorway that listens."""
    config = CapsuleConfig("vm", CapsuleKind.REMOTE, (0,), ("true",))
    capsule = Capsule("vm", config, {}, CapsuleKind.REMOTE, frozenset({0}))
    listener = listen_on("127.0.0.1", 0, 16)
    services = cast("Services", FakeServices())
    door = HttpDoorway(services, capsule, listener, lambda: KEY, "127.0.0.1")
    try:
        async with asyncio.timeout(LIMIT_S):
            yield int(listener.getsockname()[1])
    finally:
        await door.close()


async def answer(port: int, method: str, path: str, body: bytes = b"") -> bytes:
    """All that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {KEY.token}\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("path", ["/exec/", "/plain/", "/exec//", "//exec", "/plain/x/stdout/"])
def test_a_path_that_is_nearly_right_is_not_redirected(path: str) -> None:
    """A redirect repeats the `Host` that the caller chose; a client may send its token there."""

    async def go() -> bytes:
        async with served() as port:
            return await answer(port, "POST", path)

    head, _, _ = asyncio.run(go()).partition(b"\r\n\r\n")
    assert head.split()[1] in (b"404", b"405")
    assert b"location" not in head.lower()


def test_a_large_form_is_read_while_others_are_served_and_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two megabytes of percent-encoding take a moment, in a thread; not a thread for each."""
    may_end = threading.Event()
    at_once: list[int] = []
    inside = [0]

    def read_slowly(body: bytes) -> ExecCommand:
        inside[0] += 1
        at_once.append(inside[0])
        assert may_end.wait(LIMIT_S)
        inside[0] -= 1
        raise PeerProtocolError("read")

    monkeypatch.setattr(http_plain, "read_form", read_slowly)

    async def go() -> None:
        async with served() as port:
            forms = [
                asyncio.ensure_future(answer(port, "POST", "/plain", b"argv=true"))
                for _ in range(3)
            ]
            while not at_once:  # noqa: ASYNC110 - a thread tells nobody
                await asyncio.sleep(0.01)
            try:
                assert b" 400 " in await answer(port, "POST", "/exec", b"{")
                assert not any(form.done() for form in forms)
            finally:
                may_end.set()
            assert all(b" 400 " in said for said in await asyncio.gather(*forms))
            assert at_once == [1, 1, 1]

    asyncio.run(go())


class Held(bytearray):
    """Bytes of which one can see whether they are still held."""


def test_a_stdin_is_let_go_of_when_its_session_ends() -> None:
    """A channel is in cycles: what waits for the collector may be twelve megabytes for minutes."""

    async def go() -> None:
        stdin = Held(b"x" * 1000)
        held = weakref.ref(stdin)
        request = ExecCommand(protocol.PROTOCOL_VERSION, "cat", stdin=StdinKind.CLOSED)
        channel = JsonChannel(request, cast("Any", stdin))
        del stdin
        assert held() is not None
        await channel.close()
        assert held() is None

    asyncio.run(go())
