"""`jackin-broker try`: what a stranger sees first, on a real terminal (README's first command)."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from support.broker import PROGRAMS, program
from support.real import SEARCH_PATH, wait_until
from support.terminal import Terminal, terminal


def _environment(home: Path, path: str) -> dict[str, str]:
    return {
        "PATH": path,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "XDG_RUNTIME_DIR": str(home / "run"),
    }


@pytest.fixture
def trial(private_home: Path) -> Generator[Terminal]:
    before = _trials()
    env = _environment(private_home, f"{PROGRAMS}:{SEARCH_PATH}")
    with terminal([program("jackin-broker"), "try"], env=env, rows=40, cols=140) as screen:
        screen.wait_for("Press Enter")
        screen.press("enter")
        screen.wait_for("asks to run")
        yield screen
        assert screen.wait_ended() == 0
    wait_until(lambda: _trials() <= before, "the trial's directory is gone")


def _trials() -> set[str]:
    return {name for name in os.listdir("/tmp") if name.startswith("jackin-try-")}


def test_yes_shows_the_agent_a_marker_and_nothing_stays_behind(trial: Terminal) -> None:
    trial.wait_for("DEMO_TOKEN")
    trial.wait_for("● ready")
    trial.press("space")
    trial.wait_for(r"\[x\] DEMO_TOKEN")
    trial.press("enter")
    trial.wait_for("What the agent saw")
    trial.wait_for("jackin-broker config init")
    text = trial.text
    assert "I have no such thing" in text
    assert "[redacted:DEMO_TOKEN]" in text
    assert "exit status 0" in text
    assert "bindings=DEMO_TOKEN" in text


def test_no_tells_the_agent_so(trial: Terminal) -> None:
    trial.wait_for("● ready")
    trial.press("escape")
    trial.wait_for("What the agent saw")
    trial.wait_for("jackin-broker config init")
    text = trial.text
    assert "the operator said no" in text
    assert "exit status 126" in text


def test_an_interrupt_cleans_up(trial: Terminal) -> None:
    trial.wait_for("● ready")
    trial.press("q")
