"""The terminal fixture is real: size, keys, screen, questions, exit status, limits."""

from __future__ import annotations

import os
import sys
import textwrap

import pytest

from support.real import require_program
from support.terminal import Terminal, terminal

ENV = {"PATH": os.environ["PATH"]}


def python(source: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(source)]


def test_the_screen_shows_what_the_program_drew() -> None:
    source = r'print("gone\033[2J\033[Hsize", *__import__("os").get_terminal_size()); input()'
    with terminal(python(source), env=ENV, rows=30, cols=100) as run:
        run.wait_for(r"^size 100 30$")
        assert "gone" not in run.text
        assert b"gone" in run.written
        run.press("enter")
        assert run.wait_ended() == 0


def test_keys_resize_and_exit_status_arrive() -> None:
    source = """
        import os, signal, sys, tty
        def say(*words): os.write(1, b" ".join(str(w).encode() for w in words) + b"\\r\\n")
        tty.setraw(0)
        signal.signal(signal.SIGWINCH, lambda *_: say("now", *os.get_terminal_size()))
        say("ready")
        while (key := os.read(0, 16)) != b"q":
            say("key", key)
        sys.exit(7)
    """
    with terminal(python(source), env=ENV) as run:
        run.wait_for("ready")
        run.press("down")
        run.wait_for(r"key b'\\x1b\[B'")
        run.resize(20, 90)
        run.wait_for("now 90 20")
        run.press("q")
        assert run.wait_ended() == 7


def test_a_question_to_the_terminal_is_answered() -> None:
    source = r"""
        import os, tty
        tty.setraw(0)
        os.write(1, b"\033[5n")
        print("answer", os.read(0, 16), flush=True)
    """
    with terminal(python(source), env=ENV) as run:
        run.wait_for(r"answer b'\\x1b\[0n'")


def test_a_wait_that_fails_shows_the_screen() -> None:
    with terminal([require_program("cat", package="coreutils")], env=ENV) as run:
        run.type("typed")
        run.wait_for("typed")
        with pytest.raises(AssertionError, match=r"(?s)not within 0.3 s.*typed"):
            run.wait_for("never", limit_s=0.3)


def test_a_program_that_ends_early_is_said_to_have_ended() -> None:
    with terminal(python("print('bye')"), env=ENV) as run:
        with pytest.raises(AssertionError, match=r"(?s)ended first.*bye"):
            run.wait_for("never")
        assert run.wait_ended() == 0


def test_leaving_the_block_ends_the_program() -> None:
    with terminal(["sleep", "600"], env=ENV) as run:
        pid = run.pid
    assert not os.path.exists(f"/proc/{pid}")
    assert isinstance(run, Terminal)
