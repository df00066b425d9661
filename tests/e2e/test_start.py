"""`jackin-broker` alone: starts the broker, asks for the passphrase of a locked vault, goes on."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from support.broker import PROGRAMS, program
from support.real import SEARCH_PATH
from support.terminal import terminal
from support.vaults import locked_vault, vault_passphrase

# A passphrase costs seconds, on a machine that is busy with other tests many.
VAULT_LIMIT_S: Final = 60.0
CONFIG: Final = """schema = 1
[broker]
keyring = "vault"
"""


class Machine:
    """A home with a locked vault, and no broker yet."""

    def __init__(self, home: Path) -> None:
        self.env = {
            "PATH": f"{PROGRAMS}:{SEARCH_PATH}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            **{name: os.environ[name] for name in os.environ if name.startswith("XDG_")},
        }
        config = Path(self.env["XDG_CONFIG_HOME"]) / "jackin-exec" / "config.toml"
        config.parent.mkdir(mode=0o700)
        config.touch(mode=0o600)
        config.write_text(CONFIG)
        self.config = config
        state = Path(self.env["XDG_STATE_HOME"]) / "jackin-exec"
        state.mkdir(mode=0o700)
        locked_vault(state)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program("jackin-broker"), *argv],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def status(self) -> dict[str, Any]:
        done = self.run("status", "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


# What is typed before the question is there again would be shown, and thrown away.
ASKED_AGAIN = "the passphrase does not open the vault\n(?:.*\n)*?vault passphrase:$"


@pytest.fixture
def machine(private_home: Path) -> Generator[Machine]:
    made = Machine(private_home)
    yield made
    made.run("stop")


def test_a_locked_vault_is_asked_for_before_the_picker(machine: Machine) -> None:
    """Later, each approval of a keyring's credential would fail for it."""
    with terminal([program("jackin-broker")], env=machine.env) as screen:
        screen.wait_for("no broker runs, starting one")
        screen.wait_for("^vault passphrase:$")
        screen.type("not it\r")
        screen.wait_for(ASKED_AGAIN, limit_s=VAULT_LIMIT_S)
        screen.type(f"{vault_passphrase()}\r")
        screen.wait_for("Nothing waits for an answer", limit_s=VAULT_LIMIT_S)
        assert machine.status()["vault"] == "unlocked"
        screen.press("q")
        assert screen.wait_ended() == 0
    with terminal([program("jackin-broker")], env=machine.env) as screen:
        screen.wait_for("Nothing waits for an answer")
        assert "passphrase" not in screen.text


def test_enter_goes_on_without_it(machine: Machine) -> None:
    with terminal([program("jackin-broker")], env=machine.env) as screen:
        screen.wait_for("^vault passphrase:$")
        screen.press("enter")
        screen.wait_for("Nothing waits for an answer")
        assert machine.status()["vault"] == "locked"


def test_a_broker_that_cannot_start_says_why_and_what_to_do(machine: Machine) -> None:
    machine.config.write_text("schema = 1\n[broker]\nkeyring = 'valt'\n")
    with terminal([program("jackin-broker")], env=machine.env, cols=200) as screen:
        assert screen.wait_ended() == 1
        assert "error: the broker did not start: broker.keyring: expected one of" in screen.text
        assert "hint: edit " in screen.text


def test_a_listed_binary_that_is_not_there_fails_the_start_with_its_name(machine: Machine) -> None:
    """The seed: resolved once, at the start; fail closed if missing."""
    missing = '[capsules.web]\nkind = "none"\nhost_binaries = ["true", "no-such-tool"]\n'
    machine.config.write_text(CONFIG + missing)
    done = machine.run("serve")
    assert done.returncode == 1
    assert "no-such-tool" in done.stderr
    assert machine.run("status").returncode != 0
