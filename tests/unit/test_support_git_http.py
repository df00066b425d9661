"""The git fixture is real: git clones and pushes with the password, and not without it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.git_http import GitServer, git_server


@pytest.fixture(scope="module")
def server() -> Iterator[GitServer]:
    with git_server() as running:
        yield running


def run(argv: list[str], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(
        argv, cwd=cwd, env={**base, **env}, capture_output=True, text=True, timeout=60
    )


def test_the_password_clones_and_pushes(server: GitServer, short_tmp: Path) -> None:
    argv = server.clone("work", variable="GIT_PASSWORD")
    done = run(argv, short_tmp, GIT_PASSWORD=server.password)
    assert done.returncode == 0, done.stderr
    assert (short_tmp / "work" / "README").read_text() == "cloned over HTTP\n"
    assert server.requests()[0].startswith("401 GET")
    assert server.requests()[-1].startswith("200 POST")
    (short_tmp / "work" / "large").write_bytes(os.urandom(2 * 1024 * 1024))
    who = ["-c", "user.name=agent", "-c", "user.email=agent@localhost"]
    assert run(["git", "add", "large"], short_tmp / "work").returncode == 0
    assert run(["git", *who, "commit", "-qm", "x"], short_tmp / "work").returncode == 0
    pushed = run(
        [*argv[:3], "push", "-q", "origin", "HEAD"],
        short_tmp / "work",
        GIT_PASSWORD=server.password,
    )
    assert pushed.returncode == 0, pushed.stderr


@pytest.mark.parametrize("password", ["", "wrong"])
def test_without_the_password_nothing_is_cloned(
    server: GitServer, short_tmp: Path, password: str
) -> None:
    argv = server.clone("work", variable="GIT_PASSWORD")
    done = run(argv, short_tmp, GIT_PASSWORD=password)
    assert done.returncode == 128
    assert not (short_tmp / "work" / "README").exists()


def test_the_password_is_in_no_repr_and_no_log(server: GitServer) -> None:
    assert server.password not in repr(server)
    assert server.password not in server.log.read_text()
