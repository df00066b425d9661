"""A value that cannot be masked, through the installed programs: said wherever it can be known.

Whose rule: DESIGN §8, issue "Redaction that nobody gets past": at `credential add` (see
`test_credential_commands.py`), in `credential check`, and in the prompt.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from pathlib import Path

import pytest

from support.agent import Agent, finish
from support.broker import Broker, broker
from support.real import short_directory

CONFIG = """schema = 1
[broker]
no_operator = "wait"
[env]
PIN = {{ file = "{folder}/pin", on_demand = true }}
GIVEN = {{ value = "abc" }}
[capsules.web]
kind = "none"
host_binaries = ["true"]
[capsules.web.binaries.true]
confine = false
"""


class Bench:
    """A broker with one binding, whose value the test writes."""

    def __init__(self, running: Broker, folder: Path) -> None:
        self.broker = running
        self.agent = Agent(running, "web", folder)
        self.folder = folder

    def store(self, value: str) -> None:
        (self.folder / "pin").touch(mode=0o600)
        (self.folder / "pin").write_text(value + "\n")

    def ask(self, *, approve: bool) -> tuple[list[str], int]:
        """The warnings of a prompt beside the binding, and how the command then ended."""
        with self.agent.running("true") as child:
            request = self.broker.wait_for_request()
            warnings = {row["name"]: row["warnings"] for row in request["bindings"]}["PIN"]
            if approve:
                self.broker.approve(request["id"], "PIN")
            else:
                self.broker.deny(request["id"])
            return list(warnings), finish(child).returncode


@pytest.fixture
def bench() -> Generator[Bench]:
    with short_directory() as folder, broker(CONFIG.format(folder=folder)) as running:
        yield Bench(running, folder)


def test_the_next_prompt_says_what_the_last_delivery_showed(bench: Bench) -> None:
    value = secrets.token_hex(3)
    bench.store(value)
    assert bench.ask(approve=True) == ([], 126)
    warnings, _ = bench.ask(approve=False)
    (warning,) = warnings
    assert "cannot be redacted" in warning
    assert "shorter than 8 characters" in warning
    assert value not in warning
    bench.store("tok-" + secrets.token_hex(12))
    assert bench.ask(approve=True) == (warnings, 0)
    assert bench.ask(approve=False)[0] == []


def test_credential_check_says_it_and_the_next_prompt_knows(bench: Bench) -> None:
    bench.store(secrets.token_hex(3))
    checked = bench.broker.run("credential", "check", "PIN")
    assert checked.returncode == 1
    assert "cannot be redacted: it is shorter than 8 characters" in checked.stdout
    assert len(bench.ask(approve=False)[0]) == 1
    assert bench.broker.run("reload").returncode == 0
    assert bench.ask(approve=False)[0] == []  # what was stored since is not known


def test_what_is_the_agents_own_need_not_be_redactable(bench: Bench) -> None:
    assert bench.broker.run("credential", "check", "GIVEN").returncode == 0
