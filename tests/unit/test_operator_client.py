"""The operator's client against a broker's side that speaks the real frames."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker.errors import BrokerUnreachable, DenialCode, JackinError, Refusal
from jackin_broker.operator_client import START_HINT, BlockingClient, OperatorClient, ask_broker
from jackin_broker.operator_protocol import (
    OPERATOR_PROTOCOL_VERSION,
    Attach,
    Attached,
    Decide,
    Decided,
    Failed,
    ListRequests,
    Push,
    RequestChanged,
    Requests,
    Stop,
    view_digest,
)
from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook

ATTACH = Attach(seq=0, protocol=OPERATOR_PROTOCOL_VERSION)
WAIT_S = 20.0


@pytest.fixture
def playbook(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        yield running


def test_one_call_gets_its_reply(playbook: OperatorPlaybook) -> None:
    playbook.ask(a_request())
    reply = ask_broker(playbook.path, ListRequests(seq=0))
    assert reply == Requests(1, (a_request(),))


def test_a_failure_is_raised_with_its_code_and_words(playbook: OperatorPlaybook) -> None:
    playbook.refusals[Stop] = Failed(0, "bad_request", "this broker does not stop")
    with pytest.raises(Refusal, match="does not stop") as caught:
        ask_broker(playbook.path, Stop(seq=0))
    assert caught.value.code is DenialCode.BAD_REQUEST


def test_a_failure_with_an_unknown_code_keeps_its_words(playbook: OperatorPlaybook) -> None:
    playbook.attach_answer = Failed(0, "from_the_future", "not today", "try tomorrow")
    with pytest.raises(JackinError, match="not today") as caught:
        ask_broker(playbook.path, ATTACH)
    assert not isinstance(caught.value, Refusal)
    assert caught.value.hint == "try tomorrow"


def test_no_broker_says_how_to_start_one(short_tmp: Path) -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        ask_broker(short_tmp / "operator.sock", ListRequests(seq=0))
    assert caught.value.hint == START_HINT

    async def connect() -> None:
        await OperatorClient.connect(short_tmp / "operator.sock")

    with pytest.raises(BrokerUnreachable):
        asyncio.run(connect())


def test_a_broker_that_never_answers_does_not_hang_the_caller(short_tmp: Path) -> None:
    path = short_tmp / "operator.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(BrokerUnreachable, match="did not answer"):
            ask_broker(path, ListRequests(seq=0), timeout_s=0.05)

        async def call() -> None:
            client = await OperatorClient.connect(path)
            try:
                await client.call(ListRequests(seq=0), timeout_s=0.05)
            finally:
                await client.close()

        with pytest.raises(BrokerUnreachable, match="did not answer"):
            asyncio.run(call())


def test_pushes_wait_until_they_are_read(playbook: OperatorPlaybook) -> None:
    with BlockingClient(playbook.path) as client:
        assert isinstance(client.call(ATTACH), Attached)
        playbook.ask(a_request("r1"), a_request("r2"))
        assert isinstance(client.call(ListRequests(seq=0)), Requests)
        assert client.next_push(WAIT_S) == RequestChanged(a_request("r1"))
        assert client.next_push(WAIT_S) == RequestChanged(a_request("r2"))
        assert client.next_push(0.01) is None
        playbook.drop()
        with pytest.raises(BrokerUnreachable):
            client.next_push(WAIT_S)


def test_calls_and_pushes_share_one_connection(playbook: OperatorPlaybook) -> None:
    view = a_request()

    async def scene() -> tuple[Decided, list[Push], str]:
        client = await OperatorClient.connect(playbook.path)
        await client.call(ATTACH)
        playbook.ask(view)
        many = [client.call(ListRequests(seq=0)) for _ in range(20)]
        assert all(isinstance(reply, Requests) for reply in await asyncio.gather(*many))
        decide = Decide(seq=0, id=view.id, digest=view_digest(view), approve=True)
        decided = await client.call(decide)
        assert isinstance(decided, Decided)
        playbook.drop()
        pushes = [push async for push in client]
        await client.close()
        return decided, pushes, client.ended_because

    decided, pushes, why = asyncio.run(asyncio.wait_for(scene(), WAIT_S))
    assert decided.accepted
    assert pushes
    assert why == "the broker closed the connection"


def test_a_call_in_flight_ends_when_the_broker_goes(short_tmp: Path) -> None:
    path = short_tmp / "operator.sock"

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def scene() -> None:
        server = await asyncio.start_unix_server(hang_up, path)
        client = await OperatorClient.connect(path)
        try:
            with pytest.raises(BrokerUnreachable, match="ended"):
                await client.call(ListRequests(seq=0))
            assert not client.is_open
            with pytest.raises(BrokerUnreachable, match="ended"):
                await client.call(ListRequests(seq=0))
        finally:
            await client.close()
            server.close()

    asyncio.run(asyncio.wait_for(scene(), WAIT_S))
