"""The echo oracle through `jackin-exec`: who types guesses is stopped before it learns much.

REDACTION.md: behind an echoing program a 40-character token fell in 1,186 guesses. Here the agent
has rules that deliver the token to `cat`, which echoes whatever it is sent, and to `sleep` on a
terminal, which itself echoes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import string
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

import pexpect
import pytest

from support.agent import CALL_LIMIT_S, Agent, finish
from support.broker import PROGRAMS, Broker, broker, program
from support.real import short_directory, wait_until

CONFIG = """schema = 1
[broker]
no_operator = "wait"
[env]
TOKEN = {{ file = "{folder}/token", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["cat", "sleep"]
[capsules.web.binaries.cat]
confine = false
[capsules.web.binaries.sleep]
confine = false
[[rules]]
action = "allow"
argv = ["cat"]
bindings = ["TOKEN"]
stdin = "live"
trust_cwd = true
[[rules]]
action = "allow"
argv = ["sleep", "600"]
bindings = ["TOKEN"]
stdin = "live"
tty = true
trust_cwd = true
"""
# The same token each time: the budget is a number, and luck has no place in a test.
SEED = 20261130
ALPHABET = string.ascii_letters + string.digits
# An echo takes a few milliseconds, on a loaded machine more; what is held back never comes.
ECHO_LIMIT_S = 0.75
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


def _echo(
    child: subprocess.Popen[bytes], guess: str, limit_s: float = ECHO_LIMIT_S
) -> bytes | None:
    """What comes back for a guess, None when the command is over."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        os.write(child.stdin.fileno(), guess.encode())
    except BrokenPipeError:
        return None
    echoed = b""
    while len(echoed) < len(guess):
        ready, _, _ = select.select([child.stdout], [], [], limit_s)
        if not ready:
            return echoed
        data = os.read(child.stdout.fileno(), 65536)
        if not data:
            return None
        echoed += data
    return echoed


def _from_pipes(child: subprocess.Popen[bytes]) -> Callable[[str], bool | None]:
    """Whether a guess comes back whole, from a program that echoes; None when it is over."""
    assert _echo(child, "hello\n", CALL_LIMIT_S) == b"hello\n"  # it runs

    def comes_back(guess: str) -> bool | None:
        echoed = _echo(child, "\n" + guess)
        return None if echoed is None else len(echoed) > len(guess)

    return comes_back


def _from_terminal(caller: pexpect.spawn[bytes]) -> Callable[[str], bool | None]:
    """The same from a terminal's own echo; Ctrl-U keeps its line from filling up."""

    def comes_back(guess: str, limit_s: float = ECHO_LIMIT_S) -> bool | None:
        caller.send(b"\x15" + guess.encode())
        echoed = b""
        try:
            while not echoed.endswith(guess.encode()):
                echoed += caller.read_nonblocking(65536, limit_s)
        except pexpect.TIMEOUT:
            return False
        except pexpect.EOF:
            return None
        return True

    assert comes_back("hello", CALL_LIMIT_S)
    return comes_back


def _recover(comes_back: Callable[[str], bool | None], token: str) -> str:
    """What an attacker believes to know when the command ends.

    The attacker tries the right character last of 20, as on average; a guess that is not echoed
    whole was held back, so its last character is right.
    """
    known = token[:TIMED_CHARS]
    while len(known) < len(token):
        wrong = [letter for letter in ALPHABET if letter != token[len(known)]][:20]
        for letter in (*wrong, token[len(known)]):
            answer = comes_back(known + letter)
            if answer is None:
                return known
            if not answer:
                known += letter
                break
        else:
            return known
    return known


def _right_chars(recovered: str, token: str) -> int:
    return sum(recovered[:place] == token[:place] for place in range(1, len(recovered) + 1))


def test_an_echo_oracle_ends_before_it_has_eight_characters(
    made: tuple[Broker, Agent, str],
) -> None:
    running, agent, token = made
    with agent.running("cat", stdin=subprocess.PIPE) as child:
        recovered = _recover(_from_pipes(child), token)
        done = finish(child)
    assert _right_chars(recovered, token) < RECOVERED_MAX
    assert done.returncode != 0
    ended = [line for line in running.audit() if line["event"] == "ended"]
    assert ended[-1]["ended_by"] == "guessing"
    assert any("TOKEN" in notice for notice in running.ask("status")["notices"])


def test_a_terminals_own_echo_is_no_better_an_oracle(made: tuple[Broker, Agent, str]) -> None:
    """The command sleeps and never sees a guess: it is the terminal that answers."""
    running, agent, token = made
    argv = [str(PROGRAMS / "jackin-exec"), "sleep", "600"]
    caller: pexpect.spawn[bytes] = pexpect.spawn(
        argv[0], argv[1:], env={**agent.env, "TERM": "dumb"}, cwd=str(agent.cwd)
    )
    caller.delaybeforesend = None
    try:
        # The shim's terminal echoes before the command runs, the command's own from then on.
        wait_until(lambda: not caller.getecho(), "the command runs")
        comes_back = _from_terminal(caller)
        recovered = _recover(comes_back, token)
        with contextlib.suppress(pexpect.EOF):
            caller.expect(pexpect.EOF, timeout=CALL_LIMIT_S)
    finally:
        caller.close(force=True)
    assert _right_chars(recovered, token) < RECOVERED_MAX
    assert caller.exitstatus not in {0, None}
    ended = [line for line in running.audit() if line["event"] == "ended"]
    assert ended[-1]["ended_by"] == "guessing"
    assert any("TOKEN" in notice for notice in running.ask("status")["notices"])


def test_a_suspended_binding_is_asked_with_a_warning_and_an_approval_trusts_it_again(
    made: tuple[Broker, Agent, str],
) -> None:
    running, agent, token = made
    with agent.running("cat", stdin=subprocess.PIPE) as child:
        _recover(_from_pipes(child), token)
        finish(child)
    with agent.running("cat", stdin=subprocess.PIPE) as child:
        request = running.wait_for_request()
        (row,) = request["bindings"]
        assert any("guess" in warning for warning in row["warnings"])
        running.approve(request["id"], "TOKEN")
        assert _echo(child, "well\n", CALL_LIMIT_S) == b"well\n"
        assert child.stdin is not None
        child.stdin.close()
        child.stdin = None
        assert finish(child).returncode == 0
    assert running.ask("status")["notices"] == [
        notice for notice in running.ask("status")["notices"] if "TOKEN" not in notice
    ]
    assert agent.run("cat", stdin=b"x").stdout == b"x"


def test_an_inquiry_knows_of_a_suspended_binding(made: tuple[Broker, Agent, str]) -> None:
    """`ask` says what a request would get: rules do not deliver what somebody guesses at."""
    _, agent, token = made

    def inquire() -> list[str]:
        done = subprocess.run(
            [program("jackin-capsule"), "ask", "--json", "--", "cat"],
            env=agent.env, cwd=agent.cwd, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        answer = json.loads(done.stdout)
        return [answer["outcome"], answer["reason"]]

    assert inquire()[0] == "allow"
    with agent.running("cat", stdin=subprocess.PIPE) as child:
        _recover(_from_pipes(child), token)
        finish(child)
    outcome, reason = inquire()
    assert outcome == "ask"
    assert "guesses at TOKEN" in reason


def test_an_approval_that_was_shown_no_warning_trusts_nothing_again(
    made: tuple[Broker, Agent, str],
) -> None:
    """The guesses came while the request waited: whoever answered it had not read of them."""
    running, agent, token = made
    with agent.running("cat", "-u", stdin=subprocess.PIPE) as waiting:
        request = running.wait_for_request()
        with agent.running("cat", stdin=subprocess.PIPE) as child:
            _recover(_from_pipes(child), token)
            finish(child)
        running.approve(request["id"], "TOKEN")
        assert _echo(waiting, "well\n", CALL_LIMIT_S) == b"well\n"
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
