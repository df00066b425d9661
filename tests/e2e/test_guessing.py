"""The echo oracle through `jackin-exec`: who types guesses is stopped before it learns much.

REDACTION.md: behind an echoing program a 40-character token fell in 1,186 guesses. Here the agent
has a rule that delivers the token to `cat`, which echoes whatever it is sent.
"""

from __future__ import annotations

import os
import random
import select
import string
import subprocess
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
TOKEN = {{ file = "{folder}/token", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["cat"]
[capsules.web.binaries.cat]
confine = false
[[rules]]
action = "allow"
argv = ["cat"]
bindings = ["TOKEN"]
stdin = "live"
trust_cwd = true
"""
# The same token each time: the budget is a number, and luck has no place in a test.
SEED = 20261130
ALPHABET = string.ascii_letters + string.digits
# An echo through broker and shim takes a few milliseconds; what is held back does not come at all.
ECHO_LIMIT_S = 0.25
# Heads this short are let go after a silence, so only their delay tells: granted to the attacker.
TIMED_CHARS = 3
# The design's line: fewer than eight characters of a forty-character token.
RECOVERED_MAX = 8


@pytest.fixture
def made() -> Generator[tuple[Broker, Agent, str]]:
    with short_directory() as folder:
        letters = random.Random(SEED)
        token = "".join(letters.choice(ALPHABET) for _ in range(40))
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(token)
        with broker(CONFIG.format(folder=folder)) as running:
            yield running, Agent(running, "web", folder), token


def _echo(child: subprocess.Popen[bytes], guess: str) -> bytes | None:
    """What comes back for a guess, None when the command is over."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        os.write(child.stdin.fileno(), guess.encode())
    except BrokenPipeError:
        return None
    echoed = b""
    while len(echoed) < len(guess):
        ready, _, _ = select.select([child.stdout], [], [], ECHO_LIMIT_S)
        if not ready:
            return echoed
        data = os.read(child.stdout.fileno(), 65536)
        if not data:
            return None
        echoed += data
    return echoed


def _recover(child: subprocess.Popen[bytes], token: str) -> str:
    """What an attacker believes to know when the command ends.

    The attacker tries the right character last of 20, as on average; a guess that is not echoed
    whole was held back, so its last character is right.
    """
    known = token[:TIMED_CHARS]
    while len(known) < len(token):
        wrong = [letter for letter in ALPHABET if letter != token[len(known)]][:20]
        for letter in (*wrong, token[len(known)]):
            echoed = _echo(child, "\n" + known + letter)
            if echoed is None:
                return known
            if len(echoed) < len(known) + 2:
                known += letter
                break
        else:
            return known
    return known


def test_an_echo_oracle_ends_before_it_has_eight_characters(
    made: tuple[Broker, Agent, str],
) -> None:
    running, agent, token = made
    with agent.running("cat", stdin=subprocess.PIPE) as child:
        assert _echo(child, "hello\n") == b"hello\n"
        recovered = _recover(child, token)
        done = finish(child)
    right = sum(recovered[:place] == token[:place] for place in range(1, len(recovered) + 1))
    assert right < RECOVERED_MAX
    assert done.returncode != 0
    ended = [line for line in running.audit() if line["event"] == "ended"]
    assert ended[-1]["ended_by"] == "guessing"
    assert any("TOKEN" in notice for notice in running.ask("status")["notices"])


def test_a_suspended_binding_is_asked_with_a_warning_and_an_approval_trusts_it_again(
    made: tuple[Broker, Agent, str],
) -> None:
    running, agent, token = made
    with agent.running("cat", stdin=subprocess.PIPE) as child:
        _recover(child, token)
        finish(child)
    with agent.running("cat", stdin=subprocess.PIPE) as child:
        request = running.wait_for_request()
        (row,) = request["bindings"]
        assert any("guess" in warning for warning in row["warnings"])
        running.approve(request["id"], "TOKEN")
        assert _echo(child, "well\n") == b"well\n"
        assert child.stdin is not None
        child.stdin.close()
        child.stdin = None
        assert finish(child).returncode == 0
    assert running.ask("status")["notices"] == [
        notice for notice in running.ask("status")["notices"] if "TOKEN" not in notice
    ]
    assert agent.run("cat", stdin=b"x").stdout == b"x"


def test_an_approval_that_was_shown_no_warning_trusts_nothing_again(
    made: tuple[Broker, Agent, str],
) -> None:
    """The guesses came while the request waited: whoever answered it had not read of them."""
    running, agent, token = made
    with agent.running("cat", "-u", stdin=subprocess.PIPE) as waiting:
        request = running.wait_for_request()
        with agent.running("cat", stdin=subprocess.PIPE) as child:
            _recover(child, token)
            finish(child)
        running.approve(request["id"], "TOKEN")
        assert _echo(waiting, "well\n") == b"well\n"
        assert any("TOKEN" in notice for notice in running.ask("status")["notices"])


def test_work_that_prints_the_value_often_is_no_guessing(
    made: tuple[Broker, Agent, str], short_tmp: Path
) -> None:
    running, agent, token = made
    log = "".join(f"line {number}: {token}\n" for number in range(2000)).encode()
    done = agent.run("cat", stdin=log)
    assert done.returncode == 0
    assert done.stdout.count(b"[redacted:TOKEN]") == 2000
    assert not any("guess" in notice for notice in running.ask("status")["notices"])
