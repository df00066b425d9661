"""`jackin-capsule mcp` against a broker that does what a test says: lines, ids, reconnecting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackin_broker.frames import DataFrame, Stream
from jackin_broker.protocol import ExecDenied, Mcp
from support.mcp_client import RawClient
from support.real import end_process
from support.scripted_broker import Peer, ScriptedBroker, ShimPrograms, interpreters, scripted

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}


class Server:
    """The broker's end of a relay's connection, speaking lines."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._held = b""

    def line(self) -> dict[str, Any]:
        """The next line of the client."""
        while b"\n" not in self._held:
            item = self.peer.receive()
            assert isinstance(item, DataFrame), item
            self._held += item.data
        line, self._held = self._held.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def say(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        self.peer.send_data(Stream.STDOUT, line)


@pytest.fixture(params=interpreters())
def programs(
    request: pytest.FixtureRequest, short_tmp: Path
) -> Iterator[tuple[ScriptedBroker, ShimPrograms]]:
    with scripted(short_tmp, request.param) as made:
        yield made


@pytest.fixture
def broker(programs: tuple[ScriptedBroker, ShimPrograms]) -> ScriptedBroker:
    return programs[0]


@pytest.fixture
def client(programs: tuple[ScriptedBroker, ShimPrograms], short_tmp: Path) -> Iterator[RawClient]:
    shims = programs[1]
    made = RawClient([shims.program("jackin-capsule"), "mcp"], shims.env, short_tmp)
    yield made
    end_process(made.process)


def connect(broker: ScriptedBroker) -> Server:
    server = Server(broker.accept())
    server.peer.expect(Mcp)
    return server


def greet(broker: ScriptedBroker, client: RawClient) -> Server:
    """A connection with its handshake done."""
    number = client.request("initialize", HELLO)
    server = connect(broker)
    assert server.line()["method"] == "initialize"
    server.say(id=number, result={})
    client.answer(number)
    client.send(method="notifications/initialized")
    assert server.line()["method"] == "notifications/initialized"
    return server


def test_the_first_message_names_the_directory(
    broker: ScriptedBroker, client: RawClient, short_tmp: Path
) -> None:
    client.request("ping")
    assert broker.accept().expect(Mcp) == Mcp(1, cwd=str(short_tmp))


def test_lines_go_both_ways_whole_however_they_are_cut(
    broker: ScriptedBroker, client: RawClient
) -> None:
    server = greet(broker, client)
    long = "ü" * 500_000
    number = client.request("tools/call", {"long": long})
    assert server.line()["params"]["long"] == long
    answer = json.dumps({"jsonrpc": "2.0", "id": number, "result": {"long": long}}).encode() + b"\n"
    for start in range(0, len(answer), 77_777):
        server.peer.send_data(Stream.STDOUT, answer[start : start + 77_777])
    assert client.answer(number)["result"]["long"] == long


def test_a_line_that_is_cut_by_the_end_never_reaches_the_client(
    broker: ScriptedBroker, client: RawClient
) -> None:
    server = greet(broker, client)
    number = client.request("tools/call")
    server.line()
    server.peer.send_data(Stream.STDOUT, b'{"jsonrpc": "2.0", "id"')
    server.peer.close()
    assert client.answer(number)["error"]["code"] == -32000


def test_every_call_in_flight_gets_an_error_and_the_next_one_a_new_connection(
    broker: ScriptedBroker, client: RawClient
) -> None:
    server = greet(broker, client)
    first, second = client.request("tools/call"), client.request("tools/call")
    answered = client.request("ping")
    for _ in range(3):
        server.line()
    server.say(id=answered, result={})
    client.answer(answered)
    server.peer.close()
    for number in (first, second):
        error = client.answer(number)["error"]
        assert "went away" in error["message"]
        assert error["data"]["hint"]
    number = client.request("tools/list")
    again = connect(broker)
    replayed = again.line()
    assert (replayed["method"], replayed["params"]) == ("initialize", HELLO)
    assert again.line() == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert again.line()["id"] == number
    again.say(id=replayed["id"], result={"capabilities": {}})
    again.say(id=number, result={"tools": []})
    assert client.answer(number)["result"] == {"tools": []}
    client.wait_for_notification("notifications/tools/list_changed")
    assert client.notifications == []


def test_a_client_without_a_handshake_gets_none_replayed(
    broker: ScriptedBroker, client: RawClient
) -> None:
    """The stateless era: every request says all that there is to say."""
    for _ in range(2):
        number = client.request("server/discover")
        server = connect(broker)
        assert server.line()["id"] == number
        server.peer.close()
        assert "error" in client.answer(number)


def test_what_is_about_a_connection_that_ended_opens_none(
    broker: ScriptedBroker, client: RawClient
) -> None:
    server = greet(broker, client)
    number = client.request("tools/call")
    server.line()
    server.peer.close()
    client.answer(number)
    client.cancel(number)
    last = client.request("ping")
    again = connect(broker)
    methods = [again.line()["method"] for _ in range(3)]
    assert methods == ["initialize", "notifications/initialized", "ping"]
    again.say(id=last, result={})
    assert client.answer(last)["result"] == {}


def test_a_cancelled_call_gets_no_error_when_the_broker_goes(
    broker: ScriptedBroker, client: RawClient
) -> None:
    server = greet(broker, client)
    cancelled, other = client.request("tools/call"), client.request("tools/call")
    client.cancel(cancelled)
    for _ in range(3):
        server.line()
    server.peer.close()
    client.answer(other)
    assert not client.is_answered(cancelled)


def test_a_refusal_of_the_broker_is_the_answer(broker: ScriptedBroker, client: RawClient) -> None:
    number = client.request("initialize", HELLO)
    server = connect(broker)
    server.peer.send(ExecDenied("too_many_pending", "there are enough", "end one of them"))
    error = client.answer(number)["error"]
    assert error["message"] == "there are enough (too_many_pending); end one of them"


def test_without_a_broker_each_request_says_what_to_do(
    broker: ScriptedBroker, client: RawClient
) -> None:
    broker.close()
    broker.path.unlink()
    for _ in range(2):
        error = client.answer(client.request("initialize", HELLO))["error"]
        assert "no broker's socket" in error["message"]
        assert "jackin-broker" in error["data"]["hint"]


def test_its_stdin_is_the_clients_life(broker: ScriptedBroker, client: RawClient) -> None:
    server = greet(broker, client)
    client.request("tools/call")
    server.line()
    assert client.end() == 0
    assert server.peer.receive() is None


def test_an_id_may_be_a_word_and_one_is_not_the_number(
    broker: ScriptedBroker, client: RawClient
) -> None:
    server = greet(broker, client)
    client.send(id="7", method="tools/call")
    client.send(id=7, method="tools/call")
    assert [server.line()["id"] for _ in range(2)] == ["7", 7]
    server.say(id=7, result={})
    assert client.answer(7)["result"] == {}
    server.peer.close()
    assert client.answer("7")["error"]["code"] == -32000


def test_a_broken_frame_is_an_error_and_no_output(
    broker: ScriptedBroker, client: RawClient
) -> None:
    server = greet(broker, client)
    number = client.request("tools/call")
    server.line()
    server.peer.send_raw(b"\0\0\0\0")
    assert "does not understand" in client.answer(number)["error"]["message"]


def test_a_line_without_an_end_is_not_held_for_ever(
    broker: ScriptedBroker, client: RawClient
) -> None:
    server = greet(broker, client)
    assert client.process.stdin is not None
    client.process.stdin.write(b'{"x": "' + b"x" * (40 * 1024 * 1024))
    client.send_line(b'"}')
    number = client.request("ping")
    assert server.line()["id"] == number, "nothing of the long line was passed on"
    server.say(id=number, result={})
    client.answer(number)
    assert "pass long data in a file" in client.answer(None)["error"]["message"]


def test_it_takes_no_arguments(programs: tuple[ScriptedBroker, ShimPrograms]) -> None:
    status, out, err = programs[1].run("mcp", "--verbose", name="jackin-capsule")
    assert (status, out) == (126, "")
    assert "takes none" in err
