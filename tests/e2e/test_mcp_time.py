"""Who waits for whom, and how long: an operator who takes longer than the client's limit.

The real figures are 45 s until "pending", 60 s of a client's patience and a 90 s operator; here
they are scaled by the configuration. With JACKIN_SLOW_TESTS=1 the real ones run as well.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from support.broker import Broker, broker
from support.mcp_client import EXEC, WAIT, RawClient, raw_client
from support.real import short_directory, wait_until

CONFIG: Final = """\
schema = 1
[broker]
no_operator = "wait"
[capsules.web]
kind = "none"
host_binaries = ["sh", "echo"]
[[rules]]
action = "allow"
argv = ["sh", "..."]
[limits]
mcp_pending_s = {pending_s}
"""


class Scale(NamedTuple):
    """How long everybody takes."""

    pending_s: float
    client_s: float  # a client's limit for an answer, or for the next progress
    operator_s: float


# Between each two of them seconds: what a busy machine takes for what should take none.
SCALED: Final = Scale(2.5, 7, 8)
REAL: Final = Scale(45, 60, 90)
# Read before the fixtures take the developer's variables away.
SCALES: Final = [SCALED] + [REAL] * ("JACKIN_SLOW_TESTS" in os.environ)


@pytest.fixture(scope="module", params=SCALES, ids=lambda scale: f"{scale.operator_s:g}s")
def scale(request: pytest.FixtureRequest) -> Scale:
    found: Scale = request.param
    return found


@pytest.fixture(scope="module")
def made(scale: Scale) -> Iterator[Broker]:
    with broker(CONFIG.format(pending_s=scale.pending_s)) as running:
        yield running


@pytest.fixture(scope="module")
def client(made: Broker) -> Iterator[RawClient]:
    with short_directory() as folder, raw_client(made, folder) as one:
        one.handshake()
        yield one


def approve_later(made: Broker, after_s: float) -> threading.Timer:
    """An operator who answers what waits, after so long."""
    timer = threading.Timer(after_s, lambda: made.approve(made.wait_for_request()["id"]))
    timer.start()
    return timer


def within_limit(client: RawClient, number: int, scale: Scale, token: str) -> dict[str, Any]:
    """The answer, for a client that gives up when nothing comes for `client_s`."""
    while not client.is_answered(number):
        heard = len(client.progress(token))
        began = time.monotonic()
        while not client.is_answered(number) and len(client.progress(token)) == heard:
            left = scale.client_s - (time.monotonic() - began)
            assert left > 0, "the client gave up"
            client.read(left)
    return client.result(number)


@pytest.mark.timeout(300)
def test_with_a_progress_token_a_slow_operator_is_waited_for(
    made: Broker, client: RawClient, scale: Scale
) -> None:
    """CASES 3g: opencode#28186, claude-agent-sdk-python#96."""
    number = client.start(EXEC, {"command": "echo", "args": ["yes"]}, token="t1")
    operator = approve_later(made, scale.operator_s)
    result = within_limit(client, number, scale, "t1")
    operator.join()
    assert result["structuredContent"]["stdout"] == "yes\n"
    reports = client.progress("t1")
    values = [one["progress"] for one in reports]
    assert values == sorted(set(values)), "progress goes up, and only up"
    assert any("waiting for the operator" in one["message"] for one in reports)
    assert max(b - a for a, b in itertools.pairwise(values)) < 15


@pytest.mark.timeout(300)
def test_without_a_token_pending_comes_in_time_and_is_collected(
    made: Broker, client: RawClient, scale: Scale
) -> None:
    """CASES 3g: the same reports, for clients that send no token."""
    began = time.monotonic()
    number = client.start(EXEC, {"command": "echo", "args": ["yes"]})
    operator = approve_later(made, scale.operator_s)
    result = client.result(number, limit_s=scale.client_s)
    found = result["structuredContent"]
    assert (found["status"], found["state"]) == ("pending", "waiting")
    assert result["isError"] is False
    assert found["request_id"] in result["content"][0]["text"]
    assert [one["state"] for one in made.requests()] == ["waiting"], "it stays on the desk"
    while found["status"] == "pending":
        number = client.start(WAIT, {"request_id": found["request_id"]})
        found = client.result(number, limit_s=scale.client_s)["structuredContent"]
    operator.join()
    assert time.monotonic() - began >= scale.operator_s
    assert (found["status"], found["stdout"]) == ("completed", "yes\n")
    again = client.call(WAIT, request_id=found["request_id"])["structuredContent"]
    assert again == found, "collecting twice is harmless"


def test_a_command_that_runs_long_is_pending_too(client: RawClient, scale: Scale) -> None:
    script = f"echo begun; sleep {scale.client_s}; echo done"
    found = client.call(EXEC, command="sh", args=["-c", script])["structuredContent"]
    assert (found["status"], found["state"]) == ("pending", "running")
    while found["status"] == "pending":
        found = client.call(WAIT, request_id=found["request_id"])["structuredContent"]
    assert found["stdout"] == "begun\ndone\n"


def test_waiting_does_not_count_as_running(made: Broker, client: RawClient, scale: Scale) -> None:
    """CASES 3g: opencode#35275. The limit is shorter than the operator, and holds for the run."""
    limit_s = scale.operator_s / 2
    number = client.start(
        EXEC, {"command": "echo", "args": ["x"], "timeout_s": limit_s}, token="t2"
    )
    operator = approve_later(made, scale.operator_s)
    found = client.result(number, limit_s=scale.operator_s * 10)["structuredContent"]
    operator.join()
    assert (found["exit_code"], found["ended_by"]) == (0, "exit")


def test_the_running_has_its_limit(client: RawClient) -> None:
    arguments = {"command": "sh", "args": ["-c", "sleep 60"], "timeout_s": 0.3}
    result = client.result(client.start(EXEC, arguments, token="t3"))
    found = result["structuredContent"]
    assert (found["exit_code"], found["ended_by"]) == (124, "time_limit")
    assert "time limit" in result["content"][0]["text"]


def test_a_wait_that_is_cancelled_takes_the_request_back(
    made: Broker, client: RawClient, scale: Scale
) -> None:
    found = client.call(EXEC, command="echo", args=["x"])["structuredContent"]
    number = client.start(WAIT, {"request_id": found["request_id"]}, token="t4")
    while not client.progress("t4"):
        assert client.read(scale.client_s * 10)
    client.cancel(number)
    wait_until(
        lambda: not [one for one in made.requests() if one["state"] == "waiting"],
        "the prompt closes",
    )
    after = client.call(WAIT, request_id=found["request_id"])["structuredContent"]
    assert after["denied"]["code"] == "caller_gone"


def test_an_id_means_nothing_in_another_session(made: Broker, client: RawClient) -> None:
    found = client.call(EXEC, command="echo", args=["x"])["structuredContent"]
    assert len(found["request_id"]) >= 24, "nobody guesses it"
    with short_directory() as folder, raw_client(made, folder) as other:
        other.handshake()
        answer = other.call(WAIT, request_id=found["request_id"])["structuredContent"]
        assert answer["denied"]["code"] == "bad_request"
    assert [one["state"] for one in made.requests()] == ["waiting"]
    made.deny(found["request_id"])
    denied = client.call(WAIT, request_id=found["request_id"])["structuredContent"]
    assert denied["denied"]["code"] == "operator_denied"
