"""What an MCP server is told of its capsule, and what it makes of answers that are rare."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jackin_broker import protocol
from jackin_broker.bindings import Binding, ValueSource
from jackin_broker.capsules import Capsule
from jackin_broker.client import Connection, Facts, Link
from jackin_broker.config.model import CapsuleConfig, CapsuleKind, Config, Limits
from jackin_broker.errors import BrokerUnreachable, Refusal
from jackin_broker.frames import Stream, data_frames, message_frame
from jackin_broker.mcp_hosting import host
from jackin_broker.mcp_hosting.host import facts_of
from jackin_broker.mcp_hosting.messages import (
    DATAGRAM_MAX_BYTES,
    NAMES_MAX,
    NotOpened,
    Open,
    decode_to_server,
)
from jackin_broker.peer import bridge_caller
from jackin_broker.protocol import EndedBy, ExecCommand, ExecResult, ExecStarted, Mcp, Target
from jackin_mcp.ledger import KEPT_RESULTS, Ledger
from jackin_mcp.request import Request, State
from jackin_mcp.results import result_of
from jackin_mcp.tools import describe, tools_for
from jackin_mcp.transcript import Budget

COMMAND = ExecCommand(protocol.PROTOCOL_VERSION, "true")
LIMIT_S = 20.0


def facts(bindings: dict[str, Binding], binaries: tuple[str, ...] = ()) -> Facts:
    config = CapsuleConfig("web", CapsuleKind.NONE, (1000,), host_binaries=binaries)
    capsule = Capsule("web", config, {}, CapsuleKind.NONE, frozenset({1000}))
    return facts_of(capsule, Config(bindings=bindings, capsules={"web": config}), Mcp(1, "/work"))


def lent(name: str, label: str = "") -> Binding:
    return Binding(name, ValueSource("the value"), on_demand=True, label=label)


def test_names_and_labels_are_told_and_nothing_else() -> None:
    told = facts({"B": lent("B", "of b"), "A": lent("A")}, ("gh",))
    assert [one.name for one in told.bindings] == ["A", "B"]
    assert b"the value" not in protocol.encode(told)
    assert "- B: of b" in describe(told)
    assert told.cwd == "/work"


def test_what_is_given_at_launch_is_not_lendable() -> None:
    assert tools_for(facts({"GIVEN": Binding("GIVEN", ValueSource("x"))})) == []


def test_more_names_than_fit_are_counted() -> None:
    told = facts({f"N{n}": lent(f"N{n}") for n in range(NAMES_MAX + 7)})
    assert (len(told.bindings), told.left_out) == (NAMES_MAX, 7)
    assert "7 more name(s)" in describe(told)


def test_names_too_long_for_a_datagram_leave_a_tool_all_the_same() -> None:
    told = facts({(name := f"N{n}" + "x" * 2000): lent(name) for n in range(150)})
    assert len(protocol.encode(told)) < DATAGRAM_MAX_BYTES
    assert (told.bindings, told.left_out) == ((), 150)
    assert len(tools_for(told)) == 3


@pytest.mark.parametrize("is_valid", [True, False])
def test_what_is_asked_for_at_once_is_counted_at_once_and_needs_a_valid_token(
    is_valid: bool,
) -> None:
    """A burst is no way round the budget, and an old connection none round a revoked token."""

    async def go() -> list[str]:
        capsule = Capsule(
            "web", CapsuleConfig("web", CapsuleKind.NONE, (0,)), {}, CapsuleKind.NONE, frozenset()
        )
        caller = bridge_caller("192.0.2.1", lambda: is_valid)
        services = SimpleNamespace(config=Config(limits=Limits(connections_per_capsule=2)))
        served = cast("Any", host)._Served(services, Mcp(1, "/work"), capsule, caller)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            for one in (ours, theirs):
                one.setblocking(False)
            served._link = ours
            for number in range(3):
                theirs.send(protocol.encode(Open(number)))
                served._asked()
            served._end_sessions()
            await served._settle()
            said: list[str] = []
            with suppress(BlockingIOError):
                while True:
                    words, descriptors, _, _ = socket.recv_fds(theirs, DATAGRAM_MAX_BYTES, 1)
                    said.append(type(decode_to_server(words)).__name__)
                    for fd in descriptors:
                        os.close(fd)
        assert not capsule.callers
        return said

    assert asyncio.run(go()) == (["Opened", "Opened", "NotOpened"] if is_valid else [])


# --- the client's side of a connection ---------------------------------------------------------


def played(play: Callable[[Connection, socket.socket], Awaitable[Any]]) -> Any:
    """What `play` returns, with a connection and the broker's end of it."""

    async def run() -> Any:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        connection = Connection(reader, writer)
        try:
            async with asyncio.timeout(LIMIT_S):
                return await play(connection, theirs)
        finally:
            theirs.close()
            connection.close()
            with suppress(ConnectionResetError):  # the broker's end went with a message unread
                await writer.wait_closed()

    return asyncio.run(run())


def frame(message: Any) -> bytes:
    body = protocol.encode(message)
    return message_frame(body, max_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES)


def test_a_broker_that_goes_while_it_runs_is_lost_and_not_denied() -> None:
    async def play(connection: Connection, broker: socket.socket) -> Any:
        request = Request(connection, COMMAND, b"", Budget())
        moved = request.moved
        broker.send(frame(ExecStarted("r1", Target.HOST)) + data_frames(Stream.STDOUT, b"half")[0])
        await moved.wait()
        assert request.state is State.RUNNING
        moved = request.moved
        broker.close()
        await moved.wait()
        return result_of(request, "2025-11-25")

    result = played(play)
    found = result.structured_content
    assert result.is_error
    assert (found["status"], found["stdout"]) == ("lost", "half")
    assert "look before sending it again" in found["denied"]["hint"]


def test_a_message_over_the_limit_is_refused_before_it_is_sent() -> None:
    async def play(connection: Connection, _broker: socket.socket) -> Any:
        long = ExecCommand(protocol.PROTOCOL_VERSION, "true", ("x" * 5_000_000,))
        request = Request(connection, long, b"", Budget())
        await request.moved.wait()
        return result_of(request, "2025-11-25")

    found = played(play).structured_content
    assert (found["status"], found["denied"]["code"]) == ("denied", "bad_request")


def test_the_oldest_results_are_forgotten_and_what_runs_never_is() -> None:
    async def play(connection: Connection, broker: socket.socket) -> Any:
        ledger, budget = Ledger(), Budget()
        running = Request(connection, COMMAND, b"", budget)
        ledger.keep(running)
        settled: list[Request] = []
        for number in range(KEPT_RESULTS + 5):
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            request = Request(Connection(reader, writer), COMMAND, b"", budget)
            moved = request.moved
            result = ExecResult(0, 0, 0.1, EndedBy.EXIT, request_id=f"id{number}")
            theirs.send(frame(result))
            await moved.wait()
            theirs.close()
            await writer.wait_closed()
            ledger.keep(request)
            settled.append(request)
        found = [ledger.get(one.id) is not None for one in settled]
        assert found == [False] * 5 + [True] * KEPT_RESULTS
        assert ledger.get(running.id) is running
        running.withdraw()

    played(play)


def test_a_refused_connection_says_why_and_a_lost_broker_ends_the_wait() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link = Link(ours)
        asked = asyncio.ensure_future(link.connect())
        await asyncio.sleep(0)
        theirs.recv(1000)
        theirs.send(protocol.encode(NotOpened(1, "too_many_pending", "enough", "wait")))
        with pytest.raises(Refusal) as refused:
            await asked
        assert refused.value.code.value == "too_many_pending"
        asked = asyncio.ensure_future(link.connect())
        await asyncio.sleep(0)
        theirs.close()
        with pytest.raises(BrokerUnreachable):
            await asked
        with pytest.raises(BrokerUnreachable):
            await link.facts()

    asyncio.run(run())
