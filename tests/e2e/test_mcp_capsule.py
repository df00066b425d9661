"""The MCP tool from inside a real capsule, by clients that others wrote, answered on the picker.

The official SDK's client in both eras, a client from the specification and the inspector's command
line run in a bubblewrap capsule, which has the relay and no package of ours; a person ticks the
credential on a terminal. What the agent gets is the output without the value.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from support.broker import Broker, broker
from support.capsule import Agent, Ended, launched, places_of
from support.mcp_client import raw_client
from support.mcp_programs import (
    NPM,
    PACKAGES,
    RAW,
    RELAY,
    SDK,
    has_npm,
    packages,
    require_npm,
    require_shared_interpreter,
)
from support.picker import picker
from support.real import SYSTEM_PYTHON, require_bwrap, short_directory

CONFIG: Final = """\
schema = 1
[broker]
no_operator = "wait"
[env]
TOKEN = {{ file = "{folder}/token", on_demand = true, label = "the release token" }}
[capsules.web]
kind = "bwrap"
host_binaries = ["printenv", "true"]
mounts = [{mounts}]
[[rules]]
action = "allow"
argv = ["true"]
"""
INSPECTOR: Final = "@modelcontextprotocol/inspector"
CALL: Final[dict[str, Any]] = {"command": "printenv", "args": ["TOKEN"], "want": ["TOKEN"]}


@dataclass(frozen=True)
class Stage:
    """A broker, an agent in its capsule, and the value that it must never see."""

    broker: Broker
    agent: Agent
    token: str

    def run(self, *argv: str) -> Ended:
        """A program of the agent's; the operator ticks the credential meanwhile."""
        with picker(self.broker) as operator:
            call = self.agent.start(*argv)
            operator.approve("printenv", "TOKEN")
            ended = call.wait()
        assert ended.status == 0, ended.stderr.decode()
        return ended


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require_bwrap()
    with ExitStack() as parts:
        folder = parts.enter_context(short_directory())
        project = parts.enter_context(short_directory())
        token = "tok-" + secrets.token_hex(12)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(token)
        places = [("/workspace", str(project), False), (PACKAGES, packages(), True)]
        if has_npm(INSPECTOR):
            places.append((NPM, str(require_npm(INSPECTOR)), True))
        mounts = ", ".join(
            f'{{ capsule = "{inside}", host = "{host}", read_only = {str(fixed).lower()} }}'
            for inside, host, fixed in places
        )
        served = parts.enter_context(broker(CONFIG.format(folder=folder, mounts=mounts)))
        agent = parts.enter_context(launched(served, "--runtime", "bwrap", "--name", "web"))
        yield Stage(served, agent, token)


def said(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def assert_lent(found: dict[str, Any], token: str) -> None:
    result = found["result"]
    assert found["error"] is False
    assert (result["status"], result["exit_code"]) == ("completed", 0)
    assert (result["stdout"], result["bindings"]) == ("[redacted:TOKEN]\n", ["TOKEN"])
    assert token not in json.dumps(found)


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_the_official_client_of_either_era_is_served(stage: Stage, mode: str, version: str) -> None:
    python = require_shared_interpreter()
    environment = ("/usr/bin/env", f"PYTHONPATH={PACKAGES}")
    words = (mode, "jackin_exec", json.dumps(CALL), RELAY)
    found = said(stage.run(*environment, python, "-c", SDK, *words))
    assert found["version"] == version
    assert found["tools"] == ["jackin_exec", "jackin_exec_wait", "jackin_exec_check"]
    assert any("waiting for the operator" in words for words in found["reports"])
    assert_lent(found, stage.token)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_a_client_written_from_the_specification_is_served(stage: Stage, version: str) -> None:
    words = (version, "jackin_exec", json.dumps(CALL), RELAY)
    found = said(stage.run(SYSTEM_PYTHON, "-I", "-c", RAW, *words))
    assert found["version"] == version
    assert_lent(found, stage.token)


def test_the_inspectors_command_line_is_served(stage: Stage) -> None:
    require_npm(INSPECTOR)
    inspector = f"{NPM}/node_modules/.bin/mcp-inspector"
    start = ("/usr/bin/env", "node", inspector, "--cli", RELAY, "mcp", "--method")
    listed = stage.agent.run(*start, "tools/list")
    assert listed.status == 0, listed.stderr.decode()
    assert said(listed)["tools"][0]["name"] == "jackin_exec"
    arguments = ["command=printenv", 'args=["TOKEN"]', 'want=["TOKEN"]']
    pairs = [word for argument in arguments for word in ("--tool-arg", argument)]
    result = said(stage.run(*start, "tools/call", "--tool-name", "jackin_exec", *pairs))
    assert_lent({"result": result["structuredContent"], "error": result["isError"]}, stage.token)


def test_the_request_is_the_agents_own_and_its_server_is_out_of_reach(stage: Stage) -> None:
    """Identity: the kernel's word on the relay is what the record and the prompt have."""
    words = ("2025-11-25", "jackin_exec", json.dumps({"command": "true"}), RELAY)
    ended = stage.agent.run(SYSTEM_PYTHON, "-I", "-c", RAW, *words)
    assert said(ended)["result"]["exit_code"] == 0, ended.stderr.decode()
    asked = [line for line in stage.broker.audit() if line.get("event") == "started"][-1]
    assert asked["capsule"] == "web"
    reachable = stage.agent.look()
    assert places_of("jackin_mcp", {k: v for k, v in reachable.items() if "/proc/" in k}) == []
    assert places_of(stage.token, reachable) == []


def test_only_the_capsules_own_processes_get_a_server(stage: Stage, tmp_path: Path) -> None:
    """A process outside the capsule that finds its socket is refused, MCP or not."""
    with raw_client(stage.broker, tmp_path) as stranger:
        error = stranger.answer(stranger.request("initialize"))["error"]
        assert "peer_refused" in error["message"]
