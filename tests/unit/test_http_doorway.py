"""The HTTP doorway's limits, with the clock turned forward: slow bodies and readers, long ones."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from jackin_broker import protocol
from jackin_broker.bridge import http_doorway as bridge
from jackin_broker.bridge import http_exec, http_server
from jackin_broker.bridge.http_channel import HttpChannel
from jackin_broker.bridge.http_exec import JsonChannel, read_body
from jackin_broker.bridge.http_hosts import is_our_host
from jackin_broker.bridge.http_plain import PlainChannel, read_form
from jackin_broker.bridge.tcp import listen_on
from jackin_broker.bridge.tokens import BridgeKey, new_key
from jackin_broker.capsules import Capsule
from jackin_broker.config import Config
from jackin_broker.config.model import CapsuleConfig, CapsuleKind
from jackin_broker.connection import WRITE_HIGH_BYTES, CapsuleConnection
from jackin_broker.errors import PeerProtocolError
from jackin_broker.frames import DataFrame, Frame, MessageFrame, Stream
from jackin_broker.protocol import ExecCommand, ExecDenied, ExecResult, ExecStarted, StdinKind
from jackin_broker.services import Services
from jackin_broker.session import Session

LIMIT_S = 20.0
KEY = new_key()


class Records:
    """A record that counts."""

    def __init__(self) -> None:
        self.refused = 0

    async def record_refusal(self, *_: object, **__: object) -> None:
        self.refused += 1


RECORDS = Records()


class FakeServices:
    """What a doorway reads before any session begins."""

    def __init__(self) -> None:
        self.config = Config()
        self.audit = RECORDS


def capsule() -> Capsule:
    config = CapsuleConfig("vm", CapsuleKind.REMOTE, (0,), ("true",))
    return Capsule("vm", config, {}, CapsuleKind.REMOTE, frozenset({0}))


@asynccontextmanager
async def served(
    key: Callable[[], BridgeKey | None] = lambda: KEY,
) -> AsyncGenerator[tuple[bridge.HttpDoorway, int]]:
    """A doorway that listens, and its port."""
    listener = listen_on("127.0.0.1", 0, 16)
    port = int(listener.getsockname()[1])
    services = cast("Services", FakeServices())
    door = bridge.HttpDoorway(services, capsule(), listener, key, "127.0.0.1")
    try:
        yield door, port
    finally:
        await door.close()


async def answer(port: int, said: bytes) -> bytes:
    """What comes back, to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    try:
        return await reader.read()
    finally:
        writer.close()


def run(scene: Callable[[bridge.HttpDoorway, int], Awaitable[None]]) -> None:
    async def go() -> None:
        async with asyncio.timeout(LIMIT_S), served() as (door, port):
            await scene(door, port)

    asyncio.run(go())


def head(length: int, token: str = KEY.token) -> bytes:
    lines = f"POST /exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    return lines.encode() + b"Content-Length: %d\r\n\r\n" % length


def test_a_head_that_does_not_come_to_its_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_S", 0.05)

    async def scene(_: bridge.HttpDoorway, port: int) -> None:
        try:
            assert await answer(port, b"POST /exec HT") == b""
        except ConnectionResetError:
            return

    run(scene)


def test_a_body_that_does_not_come_in_time_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "BODY_S", 0.05)

    async def scene(_: bridge.HttpDoorway, port: int) -> None:
        assert (await answer(port, head(100) + b"{")).startswith(b"HTTP/1.1 408")

    run(scene)


def test_a_body_that_is_too_long_is_413_before_it_is_all_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_exec, "BODY_MAX_BYTES", 1000)

    async def scene(_: bridge.HttpDoorway, port: int) -> None:
        assert (await answer(port, head(1 << 40) + b" " * 2000)).startswith(b"HTTP/1.1 413")

    run(scene)


@pytest.mark.parametrize("place", ["/exec", "/plain"])
def test_a_token_that_is_taken_back_while_the_body_comes_begins_nothing(place: str) -> None:
    keys: list[BridgeKey | None] = [KEY]

    async def go() -> None:
        async with asyncio.timeout(LIMIT_S), served(lambda: keys[0]) as (door, port):
            said = body_of(b"") if place == "/exec" else b"argv=true"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head(len(said)).replace(b"/exec", place.encode()) + said[:3])
            await until(lambda: cast("Any", door)._body_bytes == 3)
            keys[0] = None
            writer.write(said[3:])
            assert (await reader.read()).startswith(b"HTTP/1.1 401")
            assert not door.capsule.callers
            writer.close()

    asyncio.run(go())


def test_bodies_of_one_capsule_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "BODIES_MAX_BYTES", 1500)

    async def scene(_: bridge.HttpDoorway, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(2000) + b" " * 1000)
        await writer.drain()
        answers = [await answer(port, head(2000) + b" " * 1000)]
        writer.close()
        assert answers[0].startswith(b"HTTP/1.1 503")
        assert reader is not None

    run(scene)


def test_a_body_without_the_token_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = RECORDS.refused

    async def scene(_: bridge.HttpDoorway, port: int) -> None:
        assert (await answer(port, head(1 << 40, "0" * 64))).startswith(b"HTTP/1.1 401")
        assert RECORDS.refused == before + 1

    run(scene)


def test_of_connections_over_the_limit_the_longest_silent_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has no token cannot keep the others out by connecting and saying nothing."""
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 2)

    async def scene(_: bridge.HttpDoorway, port: int) -> None:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert (await answer(port, head(0))).startswith(b"HTTP/1.1 400")
        with suppress(ConnectionResetError):
            assert await held[0][0].read() == b""
        assert not held[1][0].at_eof()
        for pair in held:
            pair[1].close()

    run(scene)


class Longing(Session):
    """A session that goes on until its peer goes."""

    async def run(self) -> None:
        await self._intake.gone
        self._intake.close()
        await self._connection.close()


def body_of(stdin: bytes) -> bytes:
    text = base64.b64encode(stdin).decode()
    return json.dumps({"argv": ["true"], "stdin": text}).encode()


def test_bodies_that_come_at_the_same_time_are_no_way_round_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridge, "Session", Longing)

    async def scene(door: bridge.HttpDoorway, port: int) -> None:
        limit = Config().limits.connections_per_capsule
        said = body_of(b"")
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(limit + 1)]
        for _, writer in clients:  # each is counted as long as it has sent no more than this
            writer.write(head(len(said)))
        await until(lambda: len(cast("Any", door)._server.server_state.tasks) == limit + 1)
        for _, writer in clients:
            writer.write(said)
        # The others are sessions that have not said a word.
        readers = [asyncio.ensure_future(reader.readline()) for reader, _ in clients]
        done, waiting = await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
        assert [one.result().split()[1] for one in done] == [b"503"]
        assert len(door.capsule.callers) == len(waiting) == limit
        for _, writer in clients:
            writer.close()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(scene)


def test_a_stdin_that_is_held_counts_until_its_session_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridge, "Session", Longing)
    monkeypatch.setattr(bridge, "BODIES_MAX_BYTES", 3000)

    async def scene(door: bridge.HttpDoorway, port: int) -> None:
        said = body_of(bytes(2000))
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(len(said)) + said)
        await until(lambda: len(door.capsule.callers) == 1)
        assert (await answer(port, head(len(said)) + said)).startswith(b"HTTP/1.1 503")
        writer.close()
        await until(lambda: not door.capsule.callers)
        assert cast("Any", door)._body_bytes == 0

    run(scene)


async def until(is_so: Callable[[], bool]) -> None:
    """Return when it is; `run` bounds the wait."""
    while not is_so():  # noqa: ASYNC110 - the doorway tells nobody
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("text", ["QUJD", "QU\nJD\n", " QU\tJ\r\nD"])
def test_stdin_may_have_its_lines_broken(text: str) -> None:
    said = json.dumps({"argv": ["true"], "stdin": text}).encode()
    assert read_body(said)[1] == b"ABC"


@pytest.mark.parametrize("text", ["QUJ", "QU*D", "QU\u00fcD", "QU\u00a0JD", "="])
def test_stdin_that_is_no_base64_is_the_peers_error(text: str) -> None:
    with pytest.raises(PeerProtocolError):
        read_body(json.dumps({"argv": ["true"], "stdin": text}).encode())


def test_a_second_request_on_a_connection_ends_it() -> None:
    async def scene(_: bridge.HttpDoorway, port: int) -> None:
        try:
            said = await answer(port, (head(0, "0" * 64)) * 2)
        except ConnectionResetError:
            return
        assert said.count(b"HTTP/1.1") <= 1

    run(scene)


def test_a_peer_that_takes_nothing_counts_as_gone_after_a_while() -> None:
    """Frames over TCP; the kernel says of no process there that it ended."""

    async def go() -> None:
        ours, theirs = socket.socketpair()
        handler = Sink()
        with theirs:
            loop = asyncio.get_running_loop()
            _, connection = await loop.connect_accepted_socket(
                lambda: CapsuleConnection(stall_s=0.05), ours
            )
            connection.attach(handler)
            connection.send_data(Stream.STDOUT, bytes(8 << 20))
            async with asyncio.timeout(LIMIT_S):
                await handler.gone.wait()
            await connection.close()

    asyncio.run(go())


class Sink:
    """A handler that writes down what it is told."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.flows: list[bool] = []
        self.gone = asyncio.Event()

    def frame_received(self, frame: Frame) -> None:
        self.frames.append(frame)

    def peer_broke(self, error: PeerProtocolError) -> None:
        raise error

    def peer_gone(self) -> None:
        self.gone.set()

    def output_may_flow(self, flows: bool) -> None:
        self.flows.append(flows)


def with_channel(
    made: Callable[[], HttpChannel], scene: Callable[[Any, Sink], Awaitable[None]]
) -> None:
    async def go() -> None:
        channel, handler = made(), Sink()
        channel.attach(handler)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.sleep(0)  # one turn: the request is given
            await scene(channel, handler)
            await channel.close()

    asyncio.run(go())


REQUEST = ExecCommand(protocol.PROTOCOL_VERSION, "cat", stdin=StdinKind.LIVE)


def test_a_response_that_nobody_takes_pauses_the_command_and_goes_on_when_it_is() -> None:
    async def scene(channel: JsonChannel, handler: Sink) -> None:
        channel.send_data(Stream.STDOUT, bytes(WRITE_HIGH_BYTES))
        assert handler.flows == [False]
        assert await channel.lines.take()
        assert handler.flows == [False, True]

    with_channel(lambda: JsonChannel(REQUEST, b""), scene)


def test_stdin_is_given_while_the_session_takes_it_and_no_longer() -> None:
    data = bytes(3 * protocol.DATA_FRAME_MAX_BYTES)

    async def scene(channel: JsonChannel, handler: Sink) -> None:
        given = [f.data for f in handler.frames if isinstance(f, DataFrame)]
        assert b"".join(given) == data
        assert isinstance(handler.frames[-1], MessageFrame)
        assert b"StdinEof" in handler.frames[-1].body

    with_channel(lambda: JsonChannel(REQUEST, data), scene)

    async def held(channel: JsonChannel, handler: Sink) -> None:
        count = len(handler.frames)
        channel.hold(True)
        channel.feed()
        assert len(handler.frames) == count

    with_channel(lambda: JsonChannel(REQUEST, data), held)


def test_a_refusal_before_anything_is_the_verdict_and_one_after_is_words_and_126() -> None:
    async def before(channel: JsonChannel, _: Sink) -> None:
        channel.send(ExecDenied("not_allowed", "no"))
        assert isinstance(channel.verdict.result(), ExecDenied)

    async def after(channel: JsonChannel, _: Sink) -> None:
        channel.send(protocol.ExecPending("id", 1, 1.0))
        channel.send(ExecDenied("operator_denied", "no", "ask"))
        assert channel.verdict.result() is None
        lines = (await channel.lines.take()).splitlines()
        assert lines[0].startswith(b'{"type":"stderr","data":"')
        assert lines[-1] == b'{"type":"exit","code":126}'

    async def absent(channel: JsonChannel, _: Sink) -> None:
        channel.send(ExecDenied("spawn_failed", "no such command", exit_code=127))
        assert channel.verdict.result() is None
        assert (await channel.lines.take()).endswith(b'{"type":"exit","code":127}\n')

    for scene in (before, after, absent):
        with_channel(lambda: JsonChannel(REQUEST, b""), scene)


def test_a_session_that_ends_without_a_word_is_no_success() -> None:
    async def unstarted(channel: JsonChannel, _: Sink) -> None:
        await channel.close()
        assert channel.verdict.result() is not None

    async def started(channel: JsonChannel, _: Sink) -> None:
        channel.send(ExecStarted("id", protocol.Target.HOST))
        await channel.close()
        assert (await channel.lines.take()).endswith(b'"exit","code":124}\n')

    for scene in (unstarted, started):
        with_channel(lambda: JsonChannel(REQUEST, b""), scene)


def test_what_a_limit_kept_back_is_said_on_stderr() -> None:
    """The protocol has no field for it, and a cut that nobody tells of looks like the whole."""

    async def scene(channel: JsonChannel, handler: Sink) -> None:
        channel.send(ExecStarted("id", protocol.Target.HOST))
        channel.send_data(Stream.STDOUT, b"fir")
        ended = protocol.EndedBy.EXIT
        result = ExecResult(0, 0, 0, ended, stdout_bytes=700, stderr_bytes=1, truncated=True)
        channel.send(result)
        lines = (await channel.outlets[0].take()).splitlines()
        chunks = [json.loads(line) for line in lines]
        assert [chunk["type"] for chunk in chunks] == ["stdout", "stderr", "exit"]
        said = base64.b64decode(chunks[1]["data"])
        assert b"700 bytes on stdout and 1 on stderr in all" in said

    with_channel(lambda: JsonChannel(REQUEST, b""), scene)


def test_the_plain_forms_outputs_are_each_for_one_request() -> None:
    async def scene(channel: PlainChannel, handler: Sink) -> None:
        channel.outlet("stdout")
        with pytest.raises(PeerProtocolError):
            channel.outlet("stdout")
        channel.take_stdin()
        with pytest.raises(PeerProtocolError):
            channel.take_stdin()
        channel.send(ExecResult(3, 0, 0, protocol.EndedBy.EXIT))
        assert await channel.status == 3

    with_channel(lambda: PlainChannel(REQUEST, KEY), scene)


def test_a_plain_call_whose_outputs_nobody_asks_for_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jackin_broker.bridge.http_plain.ATTACH_S", 0.01)

    async def scene(channel: PlainChannel, handler: Sink) -> None:
        channel.outlet("stdout")
        await handler.gone.wait()

    with_channel(lambda: PlainChannel(REQUEST, KEY), scene)


@pytest.mark.parametrize(
    "form", [b"", b"cwd=/", b"argv=a&stdin=maybe", b"&".join([b"argv=x"] * 70_000)]
)
def test_a_form_that_is_wrong_is_the_peers_error(form: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        read_form(form)


def test_a_form_carries_any_bytes() -> None:
    said = read_form(b"argv=a%00b&argv=%ff+%26&argv=&cwd=%2Fx&stdin=live&want=A%2CB&reason=why")
    argv = [protocol.bytes_from_text(one) for one in said.args]
    assert argv == [b"\xff &", b""]
    assert (said.stdin, said.want, said.reason) == (StdinKind.LIVE, ("A", "B"), "why")


@pytest.mark.parametrize(
    "name", ["", "evil", "evil:80", "127.0.0.1.evil", "[evil]", "a:b:c", ":80"]
)
def test_a_host_that_is_not_ours(name: str) -> None:
    assert not is_our_host(name, "vm.internal")


@pytest.mark.parametrize(
    "name", ["vm.internal:5", "VM.internal", "10.0.0.1:80", "[::1]:80", "::1", "localhost"]
)
def test_a_host_that_is_ours(name: str) -> None:
    assert is_our_host(name, "vm.internal")


def test_no_host_is_configured_does_not_mean_every_host() -> None:
    assert not is_our_host("", "")
