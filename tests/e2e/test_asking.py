"""What is asked, of whom, how often, and what of it a terminal may show.

The cases are public reports about tools that do a part of this job (CASES 3c and 3d). The
operator answers without the screen; the picker has tests of its own.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from support.agent import finish
from support.allowed import Allowed, allowed
from support.broker import program
from support.real import end_process, wait_until

# A second, and what a loaded machine adds; what is excluded is a wait for somebody.
AT_ONCE_S = 5.0
WAITING_MAX = 3
LIMITS = f"[limits]\nwaiting_per_capsule = {WAITING_MAX}\n"
# What would clear a screen, link, go back, turn the reading round, or hide.
SPOOF = "\x1b[2J\x1b]8;;http://x\x07\r\u202eod\u200b\U000e0100\x9b1m[/][red]"


@pytest.fixture
def made() -> Generator[Allowed]:
    with allowed("true", asked=["sh", "touch"], more=LIMITS) as running:
        yield running


def refuse_unattended(made: Allowed) -> None:
    """Set `no_operator` to its default while the broker runs."""
    text = made.broker.config_file.read_text()
    made.broker.write_config(text.replace('no_operator = "wait"', 'no_operator = "deny"'))
    assert made.broker.run("reload").returncode == 0


def test_where_nobody_looks_the_answer_is_there_within_a_second(made: Allowed) -> None:
    """claude-code#56764: a prompt that nobody saw blocked for 25 minutes."""
    refuse_unattended(made)
    began = time.monotonic()
    done = made.agent.run("touch", "ran")
    assert time.monotonic() - began < AT_ONCE_S
    assert done.returncode == 126
    assert b"(no_operator)" in done.stderr
    assert not (made.work / "ran").exists()


def test_one_answer_runs_one_of_two_that_are_the_same(made: Allowed) -> None:
    """ha-mcp#2399: one click released every identical call that waited."""
    argv = ("sh", "-c", "echo once >> ran")
    with made.agent.running(*argv) as one, made.agent.running(*argv) as other:
        first = made.broker.wait_for_request(count=2)
        made.broker.approve(first["id"])
        wait_until(lambda: len(made.broker.requests()) == 1, "one of them is over")
        assert (made.work / "ran").read_text() == "once\n"
        made.broker.deny(made.broker.wait_for_request()["id"])
        statuses = {finish(one).returncode, finish(other).returncode}
    assert statuses == {0, 126}
    assert (made.work / "ran").read_text() == "once\n"


def test_a_flood_shows_the_operator_a_few_and_the_rest_is_told_at_once(made: Allowed) -> None:
    """posthog#67967, preloop#81: a looping model flooded the approver."""
    with ExitStack() as calls:
        waiting = [
            calls.enter_context(made.agent.running("touch", "ran")) for _ in range(WAITING_MAX)
        ]
        made.broker.wait_for_request(count=WAITING_MAX)
        for _ in range(5):
            began = time.monotonic()
            done = made.agent.run("touch", "ran")
            assert (done.returncode, b"(too_many_pending)" in done.stderr) == (126, True)
            assert time.monotonic() - began < AT_ONCE_S
        assert len(made.broker.requests()) == WAITING_MAX
        for call in waiting:
            call.kill()
            finish(call)
    wait_until(lambda: made.broker.requests() == [], "the desk is empty again")


def test_status_doctor_and_denial_say_whether_somebody_is_there(made: Allowed) -> None:
    """nixpkgs#18012, sudo-prompt#105: no agent was registered, and no caller could tell."""

    def operators() -> int:
        return int(made.broker.ask("status")["operators"])

    with made.agent.running("touch", "ran") as child:
        made.broker.wait_for_request()
        assert operators() == 0
        assert "nobody is attached" in made.broker.run("doctor").stdout
        watcher = subprocess.Popen(
            [program("jackin-broker"), "requests", "--follow"],
            env=made.broker.env,
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: operators() == 1, "the operator is seen to come")
            assert "nobody is attached" not in made.broker.run("doctor").stdout
        finally:
            end_process(watcher)
        wait_until(lambda: operators() == 0, "the operator is seen to go")
        child.kill()
        finish(child)


def test_no_text_of_an_agent_acts_on_a_terminal_or_hides(made: Allowed) -> None:
    """local-operator#114, agent-secret#185: one widget was safe, the other outputs were not."""
    folder = made.work / f"folder\nrun: yes {SPOOF.replace('/', '')}"
    folder.mkdir()
    agent = made.agent
    call = subprocess.Popen(
        [program("jackin-exec"), "--reason", f"fine\n{SPOOF}", "--", "touch", f"ran{SPOOF}"],
        env=agent.env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        request = made.broker.wait_for_request()
        listed = made.broker.run("requests").stdout
        # What an operator writes is an operator's own, but a terminal of the agent's shows it.
        done = made.broker.run("decide", request["id"], "--deny", "--reason", f"no{SPOOF}")
        assert done.returncode == 0
        _, told = call.communicate(timeout=30)
    finally:
        end_process(call)
    shown = [
        listed,
        told.decode(),
        made.broker.run("audit", "show").stdout,
        made.broker.run("status").stdout,
        made.broker.run("doctor").stdout,
        made.broker.stderr,
        *(path.read_text() for path in made.broker.state_dir.glob("*.log")),
    ]
    for text in shown:
        assert not re.search(r"[^\n -~→]", text), ascii(text)
        assert "\nrun: yes" not in text
    assert r"\u{202e}od\u{200b}\u{e0100}" in listed
    assert "[/][red]" in listed


def test_a_rule_goes_by_what_runs_and_not_by_how_it_is_described(made: Allowed) -> None:
    """openclaw#58662, claude-code#29400: a reworded description was asked about again."""
    for reason in ("", "first", "again, in other words"):
        options = ["--reason", reason] if reason else []
        assert made.agent.run("true", options=options).returncode == 0
    made.broker.stop()
    made.broker.start()
    assert made.agent.run("true").returncode == 0
    assert [line["event"] for line in made.broker.audit()].count("asked") == 0


def test_without_a_terminal_the_picker_fails_and_says_so(made: Allowed) -> None:
    """openclaw#73646, agentcore-cli#982: "needs a TTY", and exit status 0."""
    for argv in ((), ("attach",)):
        done = made.broker.run(*argv)
        assert done.returncode != 0
        assert "terminal" in done.stderr
        assert done.stdout == ""
