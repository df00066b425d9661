"""The MCP tool through the real relay and the real broker, by a client from the specification.

Kind `none`, so that it runs everywhere; the capsule, the picker and other clients are in
`test_mcp_capsule.py`. CASES 3g: each of its rows is a test here or in `test_mcp_time.py`.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from support.broker import Broker, broker
from support.machine import is_running
from support.mcp_client import CHECK, EXEC, WAIT, RawClient, raw_client
from support.real import short_directory, wait_until

CONFIG: Final = """\
schema = 1
[broker]
no_operator = "wait"
[env]
TOKEN = {{ file = "{folder}/token", on_demand = true, label = "the release token" }}
[capsules.web]
kind = "none"
host_binaries = [{binaries}]
[[rules]]
action = "allow"
argv = ["sh", "..."]
stdin = "closed"
[[rules]]
action = "deny"
argv = ["false"]
[limits]
mcp_pending_s = {pending_s}
mcp_per_capsule = {clients}
"""
BINARIES: Final = ("sh", "false", "printenv", "sleep")
# Long enough that no ordinary call comes near it.
PATIENT_S: Final = 30.0
# From the caller's end to the prompt's (DESIGN §7), with what a loaded machine adds.
CLOSES_WITHIN_S: Final = 5.0


@dataclass(frozen=True)
class Stage:
    """A broker, and the directory that its agent works in."""

    broker: Broker
    folder: Path
    token: str

    def configure(self, *, clients: int = 8, binaries: tuple[str, ...] = BINARIES) -> None:
        """Another configuration, while it runs."""
        names = ", ".join(f'"{name}"' for name in binaries)
        text = CONFIG.format(
            folder=self.folder, pending_s=PATIENT_S, clients=clients, binaries=names
        )
        self.broker.write_config(text)
        done = self.broker.run("reload")
        assert done.returncode == 0, done.stderr

    def none_waits(self) -> bool:
        """Whether no prompt is open and nothing runs."""
        states = {one["state"] for one in self.broker.requests()}
        return not states & {"waiting", "approved", "resolving", "running"}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with short_directory() as folder:
        token = "tok-" + secrets.token_hex(12)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(token)
        (folder / "work").mkdir()
        names = ", ".join(f'"{name}"' for name in BINARIES)
        text = CONFIG.format(folder=folder, pending_s=PATIENT_S, clients=8, binaries=names)
        with broker(text) as running:
            yield Stage(running, folder, token)


@pytest.fixture(scope="module")
def connected(stage: Stage) -> Iterator[RawClient]:
    with raw_client(stage.broker, stage.folder / "work") as made:
        made.handshake()
        yield made


@pytest.fixture
def client(connected: RawClient) -> RawClient:
    """One client for all: each test leaves it as it found it."""
    connected.answer(connected.request("ping"))
    connected.notifications.clear()
    return connected


def shell(script: str) -> dict[str, Any]:
    return {"command": "sh", "args": ["-c", script]}


# --- what is said of itself ------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_every_version_of_the_handshake_is_spoken(stage: Stage, version: str) -> None:
    with raw_client(stage.broker, stage.folder) as made:
        said = made.handshake(version)
        assert said["protocolVersion"] == version
        assert said["capabilities"]["tools"] == {"listChanged": True}
        assert made.call(EXEC, **shell("echo here"))["structuredContent"]["stdout"] == "here\n"
        assert made.end() == 0


def test_the_tools_say_what_there_is_and_what_they_do(client: RawClient) -> None:
    tools = client.tools()
    assert set(tools) == {EXEC, WAIT, CHECK}
    for word in ("TOKEN", "the release token", *BINARIES):
        assert word in tools[EXEC]["description"]
    assert tools[EXEC]["annotations"]["destructiveHint"] is True
    assert tools[EXEC]["annotations"]["readOnlyHint"] is False
    assert tools[EXEC]["annotations"]["openWorldHint"] is True
    for name in (WAIT, CHECK):
        assert tools[name]["annotations"]["readOnlyHint"] is True
        assert tools[name]["outputSchema"]["type"] == "object"


def test_the_list_changes_with_the_configuration_and_says_so(
    stage: Stage, client: RawClient
) -> None:
    assert "whoami" not in client.tools()[EXEC]["description"]
    try:
        stage.configure(binaries=(*BINARIES, "whoami"))
        client.wait_for_notification("notifications/tools/list_changed")
        assert "whoami" in client.tools()[EXEC]["description"]
    finally:
        stage.configure()


def test_where_there_is_neither_a_binding_nor_a_binary_there_is_no_tool() -> None:
    text = 'schema = 1\n[capsules.web]\nkind = "none"\n'
    with broker(text) as bare, raw_client(bare, bare.folder) as client:
        client.handshake()
        assert client.tools() == {}
        error = client.answer(client.start(EXEC, {"command": "true"}))["error"]
        assert error["code"] == -32602


# --- results ---------------------------------------------------------------------------------


def test_a_command_that_fails_is_a_result_and_keeps_its_streams_apart(client: RawClient) -> None:
    result = client.call(EXEC, **shell("echo out; echo err >&2; exit 3"))
    found = result["structuredContent"]
    assert result["isError"] is False
    assert (found["status"], found["exit_code"], found["signal"]) == ("completed", 3, None)
    assert (found["stdout"], found["stderr"]) == ("out\n", "err\n")
    assert (found["stdout_bytes"], found["stderr_bytes"], found["truncated"]) == (4, 4, False)
    text = result["content"][0]["text"]
    assert text.startswith("exit code 3\n")
    assert "out" in text
    assert "err" in text


def test_a_signals_death_is_told_apart_from_an_exit(client: RawClient) -> None:
    found = client.call(EXEC, **shell("kill -TERM $$"))["structuredContent"]
    assert (found["exit_code"], found["signal"], found["ended_by"]) == (143, 15, "signal")


def test_stdin_and_the_directory_arrive(stage: Stage, client: RawClient) -> None:
    (stage.folder / "work" / "below").mkdir(exist_ok=True)
    found = client.call(EXEC, **shell("pwd; cat"), stdin="Zeile ü\n", cwd="below")
    assert found["structuredContent"]["stdout"] == f"{stage.folder}/work/below\nZeile ü\n"


def test_a_lent_credential_is_named_and_its_value_is_taken_out(
    stage: Stage, client: RawClient
) -> None:
    number = client.start(EXEC, {"command": "printenv", "args": ["TOKEN"], "want": ["TOKEN"]})
    asked = stage.broker.wait_for_request()
    assert asked["want"] == ["TOKEN"]
    stage.broker.approve(asked["id"], "TOKEN")
    found = client.result(number)["structuredContent"]
    assert found["stdout"] == "[redacted:TOKEN]\n"
    assert found["bindings"] == ["TOKEN"]
    assert found["redacted_count"] == 1
    assert found["request_id"] == asked["id"]


def test_many_calls_at_once_get_each_their_own_result(client: RawClient) -> None:
    numbers = [client.start(EXEC, shell(f"sleep 0.1; echo {n}")) for n in range(12)]
    found = [client.result(number)["structuredContent"]["stdout"] for number in numbers]
    assert found == [f"{n}\n" for n in range(12)]


def test_long_output_has_true_counts_a_head_a_tail_and_a_resource(client: RawClient) -> None:
    result = client.call(EXEC, **shell("seq 1 100000"))
    found = result["structuredContent"]
    whole = "".join(f"{n}\n" for n in range(1, 100_001))
    assert (found["truncated"], found["stdout_bytes"]) == (True, len(whole))
    assert found["stdout"].startswith("1\n2\n3\n")
    assert found["stdout"].endswith("99999\n100000\n")
    assert len(found["stdout"]) < 66_000
    link = next(item for item in result["content"] if item["type"] == "resource_link")
    client.wait_for_notification("notifications/resources/list_changed")
    listed = client.answer(client.request("resources/list"))["result"]["resources"]
    assert link["uri"] in {one["uri"] for one in listed}
    read = client.answer(client.request("resources/read", {"uri": link["uri"]}))
    assert read["result"]["contents"][0]["text"] == whole


def test_output_that_is_no_text_can_be_read_to_the_byte(client: RawClient) -> None:
    script = "head -c 70000 /dev/zero | tr '\\0' '\\377'"
    result = client.call(EXEC, **shell(script))
    uri = result["content"][-1]["uri"]
    read = client.answer(client.request("resources/read", {"uri": uri}))["result"]["contents"][0]
    assert base64.b64decode(read["blob"]) == b"\xff" * 70_000


def test_a_resource_of_nobodys_is_not_found(client: RawClient) -> None:
    uri = "jackin://requests/0123456789abcdef/stdout"
    assert client.answer(client.request("resources/read", {"uri": uri}))["error"]["code"] == -32002


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"command": "false"}, "rule_denied"),
        ({"command": "no-such-program"}, "not_allowed"),
        ({"command": "sleep", "args": ["1"], "want": ["NOBODY"]}, "unknown_binding"),
        ({"command": "sleep", "args": "1"}, "bad_request"),
        ({"args": ["1"]}, "bad_request"),
        ({"command": "sleep", "shell": True}, "bad_request"),
        ({"command": "sleep", "stdin": "x" * 1_100_000}, "bad_request"),
        ({"command": "sl\0eep"}, "bad_request"),
    ],
)
def test_a_refusal_says_which_it_is_and_that_nothing_ran(
    client: RawClient, arguments: dict[str, Any], code: str
) -> None:
    result = client.call(EXEC, **arguments)
    found = result["structuredContent"]
    assert result["isError"] is True
    assert (found["status"], found["denied"]["code"]) == ("denied", code)
    assert found["denied"]["hint"]
    assert "Nothing was run" in result["content"][0]["text"]


def test_an_operators_no_is_a_refusal_of_its_own(stage: Stage, client: RawClient) -> None:
    number = client.start(EXEC, {"command": "sleep", "args": ["1"], "reason": "to rest"})
    asked = stage.broker.wait_for_request()
    assert asked["reason"] == "to rest"
    stage.broker.deny(asked["id"])
    assert client.result(number)["structuredContent"]["denied"]["code"] == "operator_denied"


@pytest.mark.parametrize(
    ("command", "outcome"), [("sh", "allow"), ("sleep", "ask"), ("false", "deny")]
)
def test_check_says_what_rules_say_and_asks_nobody(
    stage: Stage, client: RawClient, command: str, outcome: str
) -> None:
    found = client.call(CHECK, command=command)["structuredContent"]
    assert found["outcome"] == outcome
    assert stage.none_waits()


def test_an_unknown_tool_is_a_fault_of_the_protocol(client: RawClient) -> None:
    assert client.answer(client.start("rm", {}))["error"]["code"] == -32602


# --- taken back ------------------------------------------------------------------------------


def test_an_id_that_waits_for_its_answer_is_not_taken_twice(
    stage: Stage, client: RawClient
) -> None:
    """The SDK would run both, and a cancel could mean either."""
    gate = stage.folder / "work" / "gate"
    first = client.start(EXEC, shell(f"while [ ! -e {gate} ]; do sleep 0.05; done; echo first"))
    wait_until(lambda: stage.broker.ask("status")["running"] == 1, "the first one runs")
    for number in (first, str(first)):  # one and the same id, the SDK says
        params = {"name": EXEC, "arguments": shell("echo second > second")}
        client.send(id=number, method="tools/call", params=params)
        assert client.answer(None)["error"]["code"] == -32600
    gate.touch()
    assert client.result(first)["structuredContent"]["stdout"] == "first\n"
    assert not (stage.folder / "work" / "second").exists()
    client.send(id=first, method="ping")
    assert client.answer(first)["result"] == {}


def test_a_cancelled_call_closes_its_prompt(stage: Stage, client: RawClient) -> None:
    number = client.start(EXEC, {"command": "sleep", "args": ["1"]})
    stage.broker.wait_for_request()
    client.cancel(number)
    wait_until(stage.none_waits, "the prompt closes", limit_s=CLOSES_WITHIN_S)
    assert client.call(EXEC, **shell("echo on"))["structuredContent"]["stdout"] == "on\n"
    assert not client.is_answered(number), "a cancelled request is not answered (specification)"


def test_a_cancelled_call_ends_what_runs_and_its_children(stage: Stage, client: RawClient) -> None:
    marker = f"61{secrets.randbelow(10**9)}"
    number = client.start(EXEC, shell(f"sleep {marker} & sleep {marker}; true"))
    wait_until(lambda: is_running(marker), "it runs")
    client.cancel(number)
    wait_until(lambda: not is_running(marker), "the tree ended", limit_s=CLOSES_WITHIN_S)
    assert stage.none_waits()


def test_a_client_that_goes_takes_its_requests_along(stage: Stage) -> None:
    marker = f"62{secrets.randbelow(10**9)}"
    with raw_client(stage.broker, stage.folder) as made:
        made.handshake()
        made.start(EXEC, shell(f"sleep {marker}; true"))
        made.start(EXEC, {"command": "sleep", "args": ["1"]})
        stage.broker.wait_for_request()
        wait_until(lambda: is_running(marker), "it runs")
        made.process.kill()
        wait_until(lambda: not is_running(marker), "the tree ended", limit_s=CLOSES_WITHIN_S)
        wait_until(stage.none_waits, "the prompt closes", limit_s=CLOSES_WITHIN_S)


# --- the connection --------------------------------------------------------------------------


def test_after_a_broker_restart_the_call_in_flight_fails_and_the_next_one_works(
    stage: Stage, client: RawClient
) -> None:
    number = client.start(EXEC, {"command": "sleep", "args": ["1"]})
    stage.broker.wait_for_request()
    stage.broker.kill()
    error = client.answer(number)["error"]
    assert "broker went away" in error["message"]
    refused = client.answer(client.start(EXEC, shell("echo early")))["error"]
    assert "no broker" in refused["message"]
    stage.broker.start()
    again = client.call(EXEC, **shell("echo again"))
    assert again["structuredContent"]["stdout"] == "again\n"
    assert set(client.tools()) == {EXEC, WAIT, CHECK}


def test_a_broker_that_stops_ends_what_runs_and_says_why(stage: Stage, client: RawClient) -> None:
    marker = f"63{secrets.randbelow(10**9)}"
    running = client.start(EXEC, shell(f"sleep {marker}; true"))
    waiting = client.start(EXEC, {"command": "sleep", "args": ["1"]})
    stage.broker.wait_for_request()
    wait_until(lambda: is_running(marker), "it runs")
    assert stage.broker.stop() == 0
    assert not is_running(marker)
    for number in (running, waiting):
        assert "broker" in client.answer(number)["error"]["message"]
    ended = [one for one in stage.broker.audit() if one["event"] in ("ended", "refused")][-2:]
    assert {one.get("ended_by") or one.get("code") for one in ended} == {"broker_stopping"}
    stage.broker.start()
    assert client.call(EXEC, **shell("true"))["structuredContent"]["exit_code"] == 0


def test_a_capsule_has_only_so_many_clients(stage: Stage, client: RawClient) -> None:
    try:
        stage.configure(clients=1)
        with raw_client(stage.broker, stage.folder) as second:
            error = second.answer(second.request("initialize", {}))["error"]
            assert "too_many_pending" in error["message"]
            assert "mcp_per_capsule" in error["data"]["hint"]
    finally:
        stage.configure()
    assert client.call(EXEC, **shell("true"))["structuredContent"]["exit_code"] == 0


def test_a_broken_line_harms_nobody(client: RawClient) -> None:
    client.send_line(b"{ this is no JSON")
    client.send_line(b'"nor a request"')
    assert client.call(EXEC, **shell("echo well"))["structuredContent"]["stdout"] == "well\n"
