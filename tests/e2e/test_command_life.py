"""How a command ends, with its caller or by it, and what of it is on record.

The cases are public reports about tools that do a part of this job (CASES 3b and 3e). Through the
installed programs; the runner's own tests have the statuses one by one.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Generator

import pytest

from support.agent import finish
from support.allowed import Allowed, allowed
from support.broker import PROGRAMS
from support.real import is_running, wait_until
from support.tmux import tmux

# CASES 3b: the caller was killed, and so long after nothing of its command is left.
GONE_WITHIN_S = 2.0
# A child, one in the background, and one in a session of its own; `ready` tells their pids.
FAMILY = 'sleep 600 & one=$!; setsid sleep 600 & echo "$$ $one $!"; wait'


@pytest.fixture(scope="module")
def made() -> Generator[Allowed]:
    with allowed("sh", "sleep", "true") as running:
        yield running


def test_with_the_caller_goes_all_that_its_command_started(made: Allowed) -> None:
    """sops#880, #2209: a child outlived its wrapper; agent-secret#34: and nobody recorded it."""
    with made.agent.running("sh", "-c", FAMILY) as child:
        assert child.stdout is not None
        pids = [int(word) for word in child.stdout.readline().split()]
        assert all(is_running(pid) for pid in pids)
        began = time.monotonic()
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: not any(is_running(pid) for pid in pids), "the family is gone")
        assert time.monotonic() - began < GONE_WITHIN_S
        wait_until(
            lambda: (
                ("ended", child.pid)
                in [(line["event"], line.get("pid_of_caller")) for line in made.broker.audit()]
            ),
            "the end is told",
        )
    ended = made.line("ended")
    assert ended["ended_by"] == "caller_gone"
    assert made.line("started")["pid"] == pids[0]


def test_an_interrupt_is_130_and_no_error(made: Allowed) -> None:
    """infisical#2356: Ctrl-C gave 1, and a banner."""
    with made.agent.running("sh", "-c", "echo ready; exec sleep 600") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGINT)
        done = finish(child)
    assert (done.returncode, done.stderr) == (130, b"")


def test_a_signal_sent_while_the_command_starts_is_not_lost(made: Allowed) -> None:
    """varlock#812: handlers that were installed after the spawn made a hang."""
    for delay_ms in range(0, 100, 10):
        with made.agent.running("sleep", "600") as child:
            time.sleep(delay_ms / 1000)  # not to wait for something: to hit another moment
            child.send_signal(signal.SIGTERM)
            assert finish(child).returncode in {126, 143, -signal.SIGTERM}


def test_inside_tmux_it_is_the_same(made: Allowed) -> None:
    """distrobox#1828: it worked outside tmux and was a silent 127 inside."""
    call = shlex.join([str(PROGRAMS / "jackin-exec"), "sh", "-c", "echo said; exit 7"])
    script = ["sh", "-c", f"{call}; echo status $?"]
    with tmux(script, env=made.agent.env, cwd=str(made.work)) as pane:
        pane.wait_for(r"said\nstatus 7")
