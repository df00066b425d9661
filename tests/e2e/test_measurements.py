"""The measurements run and say what they are to say; how fast it was is theirs to judge.

DESIGN §15: each in one run beside what it is compared with, and as a ratio.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from support.real import end_process, require_program
from support.source_tree import REPOSITORY

# On a loaded machine; alone each takes some ten seconds.
LIMIT_S = 120.0
TOOLS = {"bash": "bash", "curl": "curl", "jq": "jq"}
ROWS = {
    "shim_startup.py": ("python3 -I -S -c pass", "bash + curl + jq", "goal"),
    "roundtrip.py": ("bash + curl + jq", "jackin-exec true", "decision → child running", "x 0."),
    "picker.py": ("request received -> painted", "Enter -> decision", "/ goal"),
}


@pytest.fixture(scope="module")
def started() -> Generator[dict[str, subprocess.Popen[bytes]]]:
    """All of them at once: nothing here asserts a time."""
    for name, package in TOOLS.items():
        require_program(name, package=package)
    with ExitStack() as ends:
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name in ROWS:
            running[name] = subprocess.Popen(
                [sys.executable, str(REPOSITORY / "tests" / "bench" / name), "--quick"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            ends.callback(end_process, running[name])
        yield running


@pytest.mark.parametrize("name", ROWS)
def test_a_measurement_prints_its_comparison(
    started: dict[str, subprocess.Popen[bytes]], name: str
) -> None:
    out, _ = started[name].communicate(timeout=LIMIT_S)
    printed = out.decode()
    assert "Traceback" not in printed, printed
    for row in ROWS[name]:
        assert row in printed, printed


def test_ci_runs_every_measurement() -> None:
    ci = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert "for bench in tests/bench/*.py" in ci
    assert '"$bench" --quick' in ci
