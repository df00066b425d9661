"""The MCP tool over TCP: a capsule of kind remote, which has no socket of ours, only a token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.bridge import Bridged, bridged
from support.broker import program
from support.mcp_client import EXEC, RawClient
from support.real import end_process, wait_until


@pytest.fixture(scope="module")
def capsule() -> Iterator[Bridged]:
    with bridged("echo", asked=["uname"]) as made:
        yield made


@pytest.fixture
def client(capsule: Bridged) -> Iterator[RawClient]:
    relay = [program("jackin-capsule"), "mcp"]
    made = RawClient(relay, capsule.environ(), capsule.work)
    made.handshake()
    yield made
    end_process(made.process)


def test_a_tool_call_runs_over_the_frames_of_the_bridge(
    capsule: Bridged, client: RawClient
) -> None:
    found = client.call(EXEC, command="echo", args=["over", "TCP"])["structuredContent"]
    assert (found["stdout"], found["exit_code"]) == ("over TCP\n", 0)
    number = client.start(EXEC, {"command": "uname"})
    asked = capsule.broker.wait_for_request()
    assert asked["capsule"] == capsule.name
    assert any("bridge" in one["name"] for one in asked["asked_by"])
    capsule.broker.approve(asked["id"])
    assert client.result(number)["structuredContent"]["stdout"] == "Linux\n"


def test_after_a_restart_the_next_call_finds_the_broker_again(
    capsule: Bridged, client: RawClient
) -> None:
    number = client.start(EXEC, {"command": "uname"})
    capsule.broker.wait_for_request()
    capsule.broker.kill()
    assert "went away" in client.answer(number)["error"]["message"]
    capsule.broker.start()
    found = client.call(EXEC, command="echo", args=["again"])["structuredContent"]
    assert found["stdout"] == "again\n"


def test_a_token_that_was_taken_back_begins_nothing_more(
    capsule: Bridged, client: RawClient
) -> None:
    """An open connection is no way round it; what runs goes on, and then the connection ends."""
    asked = client.start(EXEC, {"command": "uname"})
    waiting = capsule.broker.wait_for_request()
    assert capsule.broker.run("capsule", "revoke", capsule.name).returncode == 0
    denied = client.call(EXEC, command="echo", args=["more"])["structuredContent"]
    assert (denied["status"], denied["denied"]["code"]) == ("denied", "peer_refused")
    capsule.broker.approve(waiting["id"])
    assert client.result(asked)["structuredContent"]["stdout"] == "Linux\n"
    ended = client.answer(client.start(EXEC, {"command": "echo"}))
    assert "no longer valid" in ended["error"]["message"]
    capsule.refresh()  # an entry with a token of its own, for the tests after this one


def test_a_client_that_goes_takes_its_prompt_along(capsule: Bridged, client: RawClient) -> None:
    client.start(EXEC, {"command": "uname"})
    capsule.broker.wait_for_request()
    assert client.end() == 0
    wait_until(
        lambda: all(one["state"] != "waiting" for one in capsule.broker.requests()),
        "the prompt closes",
    )
