"""What a request is examined under is of that moment, and is let go when nobody waits for it.

A whole broker in this process; requests come over the capsule's real socket.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from jackin_broker import session
from jackin_broker.daemon import Daemon
from jackin_broker.examine import Asked, examine
from jackin_broker.frames import FrameDecoder, MessageFrame, message_frame
from jackin_broker.plan import Plan
from jackin_broker.protocol import (
    MESSAGE_TO_CAPSULE_MAX_BYTES,
    PROTOCOL_VERSION,
    Ask,
    AskResult,
    ExecCommand,
    ExecDenied,
    ToCapsule,
    decode_to_capsule,
    encode,
)
from support.real import START_LIMIT_S

CONFIG: Final = """\
schema = 1
[broker]
keyring = "vault"
[env]
TOKEN = {{ value = "{value}", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["true"]
"""


def write_config(text: str) -> None:
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "jackin-exec" / "config.toml"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.touch(mode=0o600)
    config.write_text(text)


@asynccontextmanager
async def running(text: str) -> AsyncGenerator[Daemon]:
    """A broker with this configuration, closed on the way out."""
    write_config(text)
    daemon = Daemon(dict(os.environ))
    try:
        await daemon.start()
        async with asyncio.timeout(START_LIMIT_S):
            yield daemon
    finally:
        await daemon.close()


class Connection:
    """One connection of an agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, daemon: Daemon) -> Connection:
        path = str(daemon.paths.capsule_socket("web"))
        return cls(*await asyncio.open_unix_connection(path))

    async def answer(self, request: msgspec.Struct) -> ToCapsule:
        """The last word on a request."""
        body = encode(request)
        self._writer.write(message_frame(body, max_bytes=MESSAGE_TO_CAPSULE_MAX_BYTES))
        decoder = FrameDecoder(max_message_bytes=MESSAGE_TO_CAPSULE_MAX_BYTES)
        frames = decoder.feed(await self._reader.read())
        self._writer.close()
        await self._writer.wait_closed()
        bodies = [frame.body for frame in frames if isinstance(frame, MessageFrame)]
        return decode_to_capsule(bodies[-1])


def test_a_connection_that_is_held_over_a_reload_is_served_as_the_new_file_says(
    short_tmp: Path,
) -> None:
    """Else what was taken out can be asked for as long as somebody keeps a connection open."""

    async def scene() -> ToCapsule:
        text = CONFIG.format(value="tok" + secrets.token_hex(12))
        async with running(text) as daemon:
            held = await Connection.to(daemon)
            other = await Connection.to(daemon)
            # Whoever came first is in once the second was answered.
            assert isinstance(await other.answer(Ask(PROTOCOL_VERSION, "x")), AskResult)
            write_config("\n".join(line for line in text.splitlines() if "TOKEN" not in line))
            await daemon.reload()
            want = ("TOKEN",)
            return await held.answer(
                ExecCommand(PROTOCOL_VERSION, "true", cwd=str(short_tmp), want=want)
            )

    answer = asyncio.run(scene())
    assert isinstance(answer, ExecDenied), answer
    assert answer.code == "unknown_binding"


def test_what_is_found_out_after_a_request_was_given_up_is_let_go(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread cannot be cancelled: the directory that it opens would stay open for good."""
    begun, may_end, is_closed = threading.Event(), threading.Event(), threading.Event()

    def slow(asked: Asked) -> Plan:
        begun.set()
        may_end.wait(START_LIMIT_S)
        return examine(asked)

    def close(plan: Plan) -> None:
        plan.workdir.close()
        is_closed.set()

    async def scene() -> ToCapsule:
        async with running(CONFIG.format(value="tok" + secrets.token_hex(12))) as daemon:
            connection = await Connection.to(daemon)
            request = ExecCommand(PROTOCOL_VERSION, "true", cwd=str(short_tmp))
            asking = asyncio.ensure_future(connection.answer(request))
            await asyncio.to_thread(begun.wait, START_LIMIT_S)
        answer = await asking
        may_end.set()
        assert await asyncio.to_thread(is_closed.wait, START_LIMIT_S)
        return answer

    monkeypatch.setattr(session, "examine", slow)
    monkeypatch.setattr(Plan, "close", close)
    answer = asyncio.run(scene())
    assert isinstance(answer, ExecDenied), answer
    assert answer.code == "broker_stopping"
