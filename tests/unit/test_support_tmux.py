"""The tmux fixture is real: keys go in, the screen comes out, the server ends."""

from __future__ import annotations

import os
import sys

import pytest

from support.real import is_running, wait_until
from support.tmux import tmux

ENV = {"PATH": os.environ["PATH"]}


def test_keys_go_in_and_the_screen_comes_out() -> None:
    source = "import os; print('size', *os.get_terminal_size()); print('got', input()); input()"
    with tmux([sys.executable, "-c", source], env=ENV, rows=20, cols=70) as run:
        run.wait_for(r"^size 70 20$")
        run.type("a; b")
        run.send_keys("Enter")
        run.wait_for(r"^got a; b$")


def test_the_server_and_its_program_end_with_the_block() -> None:
    with tmux(["sh", "-c", "echo words; exec sleep 600"], env=ENV) as run:
        run.wait_for(r"\Awords")
        pids = [int(run.call("display-message", "-p", name)) for name in ("#{pid}", "#{pane_pid}")]
        assert all(is_running(pid) for pid in pids)
    wait_until(lambda: not any(is_running(pid) for pid in pids), "server and program are gone")


def test_a_wait_that_fails_shows_the_screen() -> None:
    with tmux(["sh", "-c", "echo only this; exec sleep 600"], env=ENV) as run:
        run.wait_for("only this")
        with pytest.raises(AssertionError, match=r"(?s)not within 0.2 s.*only this"):
            run.wait_for("never", limit_s=0.2)


def test_a_screen_is_returned_once_its_drawing_is_over() -> None:
    source = "import time; print('title', flush=True); time.sleep(0.05); print('body'); input()"
    with tmux([sys.executable, "-c", source], env=ENV) as run:
        assert "body" in run.wait_for("title")
