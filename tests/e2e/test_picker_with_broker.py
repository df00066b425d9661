"""The installed picker and the installed broker together: an operator's day, screen by screen.

What the picker does with a broker that says what a test wants is in `test_picker_in_tmux.py`.
"""

from __future__ import annotations

import os
import secrets
import signal
import tomllib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.agent import Agent, finish
from support.broker import Broker, broker
from support.picker import Picker, picker
from support.real import is_running, short_directory, wait_until

CONFIG: Final = """schema = 1
[broker]
no_operator = "wait"
keyring = "vault"
[env]
TOKEN = {{ file = "{folder}/token", on_demand = true, label = "the token" }}
SLOW = {{ command = ["sh", "-c", "cat {folder}/gate; echo {slow}"], on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["sh", "printenv", "true", "sleep"]
[capsules.web.binaries.sh]
confine = false
[capsules.web.binaries.printenv]
confine = false
[capsules.web.binaries.true]
confine = false
[capsules.web.binaries.sleep]
confine = false
[[rules]]
action = "deny"
argv = ["sh", "-c", "forbidden"]
[limits]
kill_grace_s = 1
"""


@dataclass(frozen=True)
class Day:
    """A broker with a token, an agent."""

    broker: Broker
    agent: Agent
    folder: Path
    token: str


@pytest.fixture
def day() -> Generator[Day]:
    with short_directory() as folder:
        token = "tok-" + secrets.token_hex(12)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(token + "\n")
        (folder / "work").mkdir()
        text = CONFIG.format(folder=folder, slow="slow-" + secrets.token_hex(12))
        with broker(text) as made:
            yield Day(made, Agent(made, "web", folder / "work"), folder, token)


def command(*words: str) -> str:
    """A command as a prompt shows it, as a pattern."""
    return r"(?s)" + r".*".join(rf"{index}  {word}" for index, word in enumerate(words))


def open_page(screen: Picker, key: str, words: str) -> None:
    screen.wait_for("Nothing waits for an answer")
    screen.press(key)
    screen.wait_for(words)


def test_a_yes_for_minutes_runs_the_same_again_unasked_until_it_is_revoked(day: Day) -> None:
    with picker(day.broker) as screen:
        with day.agent.running("printenv", "TOKEN") as first:
            screen.wait_ready("printenv")
            screen.tick("TOKEN")
            screen.choose_term("for 15 minutes")
            screen.wait_for("a yes holds for 15 minutes")
            screen.move_to_run()
            screen.press("enter")
            assert finish(first).stdout == b"[redacted:TOKEN]\n"
        assert day.agent.run("printenv", "TOKEN").stdout == b"[redacted:TOKEN]\n"
        open_page(screen, "4", r"printenv TOKEN +1\d min left")
        screen.wait_for(r"bindings = \[\"TOKEN\"\]")
        screen.press("x")
        screen.wait_for("● ready")
        screen.press("y")
        screen.wait_for("there is no grant")
        with day.agent.running("printenv", "TOKEN") as again:
            screen.press("escape")
            screen.wait_ready("printenv")
            screen.press("escape")
            assert finish(again).returncode == 126


def test_always_is_a_rule_that_is_stored_as_it_was_shown(day: Day) -> None:
    with picker(day.broker, rows=60, cols=200) as screen, day.agent.running("true") as child:
        screen.wait_ready("true")
        screen.press("g")
        screen.wait_for("How long")
        screen.press("up", "down", "down", "down")
        screen.wait_for(r"› \( \) always[\s\S]*files = ")
        shown = [
            line.strip().removeprefix("│").strip()
            for line in screen.text.split("\n")
            if line.startswith("  │ ")
        ]
        screen.press("enter")
        screen.wait_for("a yes holds always, for 90 days.*[\\s\\S]*● ready")
        screen.move_to_run()
        screen.press("enter")
        assert finish(child).returncode == 0
    text = day.broker.config_file.read_text()
    assert "\n".join(shown) in text
    assert len(tomllib.loads(text)["rules"]) == 2
    day.broker.stop()
    day.broker.start()
    assert day.agent.run("true").returncode == 0


def test_live_output_is_seen_redacted_and_the_command_is_ended(day: Day) -> None:
    line = 'printf "\\033[2J%s\\n" "$TOKEN"; sleep 600'
    with picker(day.broker) as screen, day.agent.running("sh", "-c", line) as child:
        screen.approve("sh", "TOKEN")
        open_page(screen, "2", "running +web +sh -c")
        screen.press("enter")
        screen.wait_for(r"│ \\x1b\[2J\[redacted:TOKEN\]")
        assert day.token.encode() not in screen.written
        screen.press("x")
        screen.wait_for("Sure")
        screen.wait_for("● ready")
        screen.press("y")
        done = finish(child)
        assert b"the operator ended the command" in done.stderr
        screen.wait_for("ended by the operator after")
        screen.press("escape")
        screen.wait_for("approved and not ended")
        screen.press("3")
        screen.wait_for(r"^› ended +web +sh .*by the operator after \d+:\d\d")


def test_two_pickers_see_the_same_and_the_first_answer_counts(day: Day) -> None:
    with (
        picker(day.broker) as one,
        picker(day.broker) as other,
        day.agent.running("true") as child,
    ):
        one.wait_ready("true")
        other.wait_ready("true")
        other.press("escape")
        assert finish(child).returncode == 126
        one.wait_for("the request before this was denied elsewhere")
        other.wait_for("you denied the one before")


def test_a_killed_picker_harms_nothing_that_runs(day: Day) -> None:
    gate = day.folder / "gate"
    os.mkfifo(gate)
    with day.agent.running("sh", "-c", f"cat {gate}") as child:
        with picker(day.broker) as screen:
            screen.approve("sh")
            screen.wait_for("running")
            os.kill(screen.pid, signal.SIGKILL)
            wait_until(lambda: not is_running(screen.pid), "the picker is gone")
        with picker(day.broker) as screen:
            screen.wait_for("running")
            gate.write_text("through\n")
            assert finish(child).stdout == b"through\n"
            screen.wait_for("Ended|Nothing waits")


def test_a_slow_source_is_said_while_it_takes_its_time(day: Day) -> None:
    """A keyring's own prompt, or a password manager's, may wait behind another window."""
    gate = day.folder / "gate"
    os.mkfifo(gate)
    with picker(day.broker) as screen, day.agent.running("true") as child:
        screen.approve("true", "SLOW")
        screen.wait_for(r"getting its credentials, \d+ s")
        gate.write_text("")
        assert finish(child).returncode == 0


def test_all_that_waits_from_a_capsule_is_denied_with_one_answer(day: Day) -> None:
    with (
        picker(day.broker) as screen,
        day.agent.running("true") as one,
        day.agent.running("printenv") as other,
    ):
        screen.wait_for("2 waiting[\\s\\S]*● ready")
        screen.press("D")
        screen.wait_for("deny all 2 from this capsule, because")
        screen.type("stop it")
        screen.wait_for("stop it")
        screen.press("enter")
        for child in (one, other):
            done = finish(child)
            assert done.returncode == 126
            assert b"stop it" in done.stderr


def test_a_value_is_typed_into_the_command_line_and_never_into_the_picker(day: Day) -> None:
    passphrase, value = "pass " + secrets.token_hex(8), "val-" + secrets.token_hex(12)
    with picker(day.broker) as screen:
        open_page(screen, "5", "that can be lent")
        before = screen.modes
        screen.press("a")
        screen.wait_for("name of the new credential")
        screen.type("NPM_TOKEN")
        screen.wait_for("NPM_TOKEN")
        screen.press("enter")
        # The first credential makes the vault: its passphrase twice, then the value twice.
        for question, answer in (
            ("new vault passphrase:", passphrase),
            ("new vault passphrase again:", passphrase),
            ("value of NPM_TOKEN:", value),
            ("value of NPM_TOKEN again:", value),
        ):
            screen.wait_for(question)
            screen.type(answer + "\r")
        screen.wait_for("Enter goes back to the picker")
        screen.press("enter")
        screen.wait_for(r"NPM_TOKEN +keyring")
        assert screen.modes == before
        assert value.encode() not in screen.written
        day.broker.stop()
        day.broker.start()
        screen.wait_for("vault locked")
        screen.press("u")
        screen.wait_for("vault passphrase:")
        screen.type(passphrase + "\r")
        screen.wait_for("the vault is unlocked until the broker ends")
        screen.press("enter")
        screen.wait_for("vault unlocked")
        assert passphrase.encode() not in screen.written
    assert "NPM_TOKEN" in [row["name"] for row in day.broker.ask("credential", "list")]


def test_ctrl_c_in_the_hidden_prompt_ends_the_prompt_and_not_the_picker(day: Day) -> None:
    with picker(day.broker) as screen:
        open_page(screen, "5", "that can be lent")
        screen.press("a")
        screen.wait_for("name of the new credential")
        screen.type("OTHER_TOKEN")
        screen.wait_for("OTHER_TOKEN")
        screen.press("enter")
        screen.wait_for("passphrase|value of")
        screen.press("ctrl-c")
        screen.wait_for("Enter goes back to the picker")
        screen.press("enter")
        screen.wait_for("it was not done")
        screen.press("q")
        assert screen.wait_ended() == 0


def test_a_signal_during_the_hidden_prompt_gives_the_terminal_back_as_it_was(day: Day) -> None:
    with picker(day.broker) as screen:
        before = screen.modes
        open_page(screen, "5", "that can be lent")
        screen.press("a")
        screen.wait_for("name of the new credential")
        screen.type("THIRD_TOKEN")
        screen.wait_for("THIRD_TOKEN")
        screen.press("enter")
        screen.wait_for("passphrase|value of")
        os.kill(screen.pid, signal.SIGTERM)
        assert screen.wait_ended() == 128 + signal.SIGTERM
        assert screen.modes == before


def test_after_three_denials_a_rule_may_deny_the_same_from_now_on(day: Day) -> None:
    with picker(day.broker) as screen:
        for turn in range(4):
            with day.agent.running("printenv", "HOME") as child:
                screen.wait_ready("printenv")
                if turn == 3:
                    screen.wait_for("you denied this 3 times in a row; g can deny it from now on")
                    screen.choose_term("deny it from now on")
                    screen.wait_for("Deny from now on")
                screen.press("escape")
                assert finish(child).returncode == 126
                screen.wait_for("Nothing waits")
        done = day.agent.run("printenv", "HOME")
        assert done.returncode == 126
        assert b"rule" in done.stderr
    assert '"HOME"' in day.broker.config_file.read_text()


def test_what_differs_from_the_last_yes_is_shown(day: Day) -> None:
    with picker(day.broker) as screen:
        with day.agent.running("sh", "-c", "true") as child:
            screen.approve("sh")
            assert finish(child).returncode == 0
        with day.agent.running("sh", "-c", "exit 3") as child:
            screen.wait_for(r"≠ changed  argument 2: was 'true', is 'exit 3'")
            screen.approve("sh")
            assert finish(child).returncode == 3


def test_history_and_rules_are_there(day: Day) -> None:
    with picker(day.broker) as screen:
        with day.agent.running("printenv") as child:
            screen.wait_ready("printenv")
            screen.press("escape")
            assert finish(child).returncode == 126
        open_page(screen, "3", r"denied +web +printenv +by the operator")
        screen.press("6")
        screen.wait_for(r"1  deny +sh -c forbidden")
        screen.press("escape")
        screen.wait_for("Nothing waits")
