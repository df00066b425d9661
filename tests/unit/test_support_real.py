"""What is absent is skipped with the package that brings it, and in CI nothing is skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.real import START_LIMIT_S, is_running, short_directory
from support.source_tree import REPOSITORY

ABSENT = """
import pytest
from support.real import require_program

def test_absent():
    require_program("no-such-program-anywhere", package="some-package")
"""
SKIPPED = """
import pytest

@pytest.mark.skip(reason="for no reason")
def test_skipped(): ...
"""
SKIPPED_FILE = """
import pytest

pytest.importorskip("no_such_module_anywhere")
"""
EXPECTED = """
import pytest

@pytest.mark.xfail(strict=True)
def test_expected():
    assert False
"""


def run(folder: Path, source: str, require_real: str) -> subprocess.CompletedProcess[str]:
    """pytest on this one file, with the project's own conftest and settings."""
    (folder / "test_it.py").write_text(source)
    settings = ["-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(folder)]
    quiet = ["-p", "no:cacheprovider", "-p", "conftest"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *settings, *quiet, str(folder / "test_it.py")],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY / "tests"),
            "JACKIN_REQUIRE_REAL": require_real,
        },
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
    )


def test_an_absent_program_skips_its_test_and_names_the_package(short_tmp: Path) -> None:
    done = run(short_tmp, ABSENT, "")
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert "apt-get install some-package" in done.stdout


@pytest.mark.parametrize("source", [ABSENT, SKIPPED, SKIPPED_FILE])
def test_where_real_parts_are_required_a_skip_is_a_failure(short_tmp: Path, source: str) -> None:
    done = run(short_tmp, source, "1")
    assert done.returncode != 0
    assert "skipped" not in done.stdout.splitlines()[-1]
    assert "JACKIN_REQUIRE_REAL=1 and" in done.stdout


def test_an_expected_failure_is_no_skip(short_tmp: Path) -> None:
    done = run(short_tmp, EXPECTED, "1")
    assert done.returncode == 0, done.stdout
    assert "1 xfailed" in done.stdout


def test_a_test_sees_nothing_of_the_developers_own_session() -> None:
    home = os.environ["HOME"]
    assert Path(home).parent == Path("/tmp")
    assert os.listdir(os.environ["XDG_CONFIG_HOME"]) == []
    assert all(os.environ[name].startswith(home) for name in os.environ if name[:4] == "XDG_")
    assert "DBUS_SESSION_BUS_ADDRESS" not in os.environ
    assert "SSH_AUTH_SOCK" not in os.environ


def test_a_short_directory_is_short_private_and_gone_afterwards() -> None:
    with short_directory() as path:
        assert len(str(path)) < 24
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "locked").mkdir(mode=0)
    assert not path.exists()


def test_a_process_that_nobody_waited_for_does_not_run() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(ended.pid)
    assert ended.wait() == 0
    assert is_running(os.getpid())
