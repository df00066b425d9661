"""`jackin-broker try`: what a stranger sees first, on a real terminal (README's first command)."""

from __future__ import annotations

import os
import shutil
import signal
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


def test_it_ends_its_picker_when_it_is_ended(private_home: Path) -> None:
    """The terminal's window is closed, or the machine goes down: no screen is left behind."""
    before = _trials()
    env = _environment(private_home, f"{PROGRAMS}:{SEARCH_PATH}")
    with terminal([program("jackin-broker"), "try", "--yes"], env=env, rows=40, cols=140) as screen:
        screen.wait_for("asks to run")
        pickers = _pickers_of(screen.pid)
        assert pickers
        os.kill(screen.pid, signal.SIGTERM)
        screen.wait_ended()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pickers), "it ends")
    wait_until(lambda: _trials() <= before, "the trial's directory is gone")


def _pickers_of(pid: int) -> list[int]:
    """The children of a process that are pickers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"jackin_picker" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def test_without_bubblewrap_it_works_and_says_what_is_missing(
    private_home: Path, tmp_path: Path
) -> None:
    """Issue: it works with nothing but Python, and the prompt says *unconfined*."""
    for name in ("sh", "env", "printenv", "python3"):
        found = shutil.which(name, path=SEARCH_PATH)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    env = _environment(private_home, str(tmp_path))
    with terminal([program("jackin-broker"), "try", "--yes"], env=env, rows=40, cols=140) as screen:
        screen.wait_for("without a boundary")
        screen.wait_for("unconfined")
        screen.wait_for("the agent can approve itself")
        screen.wait_for("● ready")
        screen.press("space")
        screen.wait_for(r"\[x\] DEMO_TOKEN")
        screen.press("enter")
        screen.wait_for(r"\[redacted:DEMO_TOKEN\]")
        assert screen.wait_ended() == 0


def test_an_interrupt_cleans_up(trial: Terminal) -> None:
    trial.wait_for("● ready")
    trial.press("q")
