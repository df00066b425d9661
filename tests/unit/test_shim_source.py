"""What the shim's source must stay: small, of an old Python's syntax, light to load (STACK §1)."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from support.scripted_broker import CAPSULE_ROOM, WAIT_S, interpreters

PACKAGE = CAPSULE_ROOM / "jackin_capsule"
SOURCES = sorted(PACKAGE.glob("*.py"))
OLDEST = (3, 9)
SHIM_MAX_LINES = 250
# Each costs a good part of what the whole shim does; `os` alone a millisecond before 3.11.
HEAVY = {"enum", "json", "os", "re", "signal", "socket", "struct", "typing", "subprocess"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_file_is_of_python_39(path: Path) -> None:
    """Also where no such interpreter is there to run it."""
    tree = ast.parse(path.read_text(), path.name, feature_version=OLDEST)
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Match)
        if isinstance(node, ast.arg) and node.annotation is not None:
            is_union = isinstance(node.annotation, ast.BinOp)
            assert not is_union, f"line {node.lineno}: `X | Y` is evaluated before 3.10"


def test_the_shim_is_one_short_file() -> None:
    assert len((PACKAGE / "shim.py").read_text().splitlines()) <= SHIM_MAX_LINES


def test_a_command_that_works_loads_nothing_heavy() -> None:
    """The start-up budget of DESIGN §15, as a list that a review can read."""
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(CAPSULE_ROOM)!r})\n"
        "import jackin_capsule.shim, jackin_capsule.stdin\n"
        "print(*sys.modules)\n"
    )
    command = [interpreters()[0], "-I", "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    loaded = set(done.stdout.split())
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("jackin_capsule.")} == {
        "jackin_capsule.call",
        "jackin_capsule.shim",
        "jackin_capsule.stdin",
        "jackin_capsule.wire",
    }
