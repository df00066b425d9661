"""`jackin-capsule equip`: known agents are told, what is there is kept, and the command runs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scripted_broker import WAIT_S, ShimPrograms, interpreters, scripted


@pytest.fixture(params=interpreters(), ids=os.path.basename)
def shims(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[ShimPrograms]:
    with scripted(short_tmp, request.param) as (_, programs):
        home = short_tmp / "home"
        home.mkdir()
        programs.env |= {"HOME": str(home), "JACKIN_EXEC_BINDINGS": "TOKEN"}
        yield programs


def equip(shims: ShimPrograms, *argv: str) -> tuple[int, str, str]:
    return shims.run("equip", "--", *argv, name="jackin-capsule")


def home_of(shims: ShimPrograms) -> Path:
    return Path(shims.env["HOME"])


def test_every_known_agent_is_told_and_the_command_is_itself(shims: ShimPrograms) -> None:
    assert equip(shims, "sh", "-c", "echo itself; exit 7") == (7, "itself\n", "")
    home = home_of(shims)
    assert "jackin" in json.loads((home / ".claude.json").read_text())["mcpServers"]
    assert "mcp_servers.jackin" in (home / ".codex" / "config.toml").read_text()
    for name in (".claude/CLAUDE.md", ".codex/AGENTS.md", ".gemini/GEMINI.md"):
        assert "TOKEN" in (home / name).read_text()


def test_what_is_there_is_kept(shims: ShimPrograms) -> None:
    home = home_of(shims)
    (home / ".claude").mkdir()
    (home / ".claude" / "CLAUDE.md").write_text("mine")
    (home / ".claude.json").write_text('{"theme":"dark"}')
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text("// not plain JSON")
    status, out, err = equip(shims, "echo", "runs all the same")
    assert (status, out) == (0, "runs all the same\n")
    assert (home / ".claude" / "CLAUDE.md").read_text() == "mine"
    assert json.loads((home / ".claude.json").read_text())["theme"] == "dark"
    assert (home / ".gemini" / "settings.json").read_text() == "// not plain JSON"
    assert "is not plain JSON" in err


def test_a_mounted_directory_is_left_alone(shims: ShimPrograms) -> None:
    """Its settings are the host's: here /proc stands for one."""
    home = home_of(shims)
    os.symlink("/proc", home / ".codex")
    assert equip(shims, "true")[0] == 0
    assert not (home / ".codex" / "config.toml").exists()


def test_a_command_that_is_not_there_is_127(shims: ShimPrograms) -> None:
    status, _, err = equip(shims, "no-such-agent")
    assert status == 127
    assert "cannot start no-such-agent" in err
    none = subprocess.run(
        [shims.program("jackin-capsule"), "equip"],
        env=shims.env,
        capture_output=True,
        timeout=WAIT_S,
    )
    assert none.returncode == 126
