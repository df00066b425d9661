"""A real git server over HTTP behind a password: `git http-backend` and a small CGI bridge.

The bridge runs as a process of its own (`git_bridge.py`), so that a test process stays
single-threaded and may fork terminals. It refuses to know what a clone is used for.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .git_bridge import GIT_ENV, GIT_LIMIT_S, USER
from .real import end_process, first_line, require_program, short_directory

REPOSITORY: Final = "project.git"
_BRIDGE: Final = Path(__file__).with_name("git_bridge.py")
_AUTHOR: Final = ["-c", "user.name=operator", "-c", "user.email=operator@localhost"]


@dataclass(frozen=True)
class GitServer:
    """A server with one repository. `password` is in no repr; `log` is one line a request."""

    url: str
    user: str
    password: str = field(repr=False)
    repository: Path
    log: Path

    def clone(self, target: str, *, variable: str) -> list[str]:
        """The argv of a clone whose password is in the environment variable `variable` alone."""
        git = require_program("git", package="git")
        answer = f'!f() {{ echo username={self.user}; echo "password=${variable}"; }}; f'
        return [git, "-c", f"credential.helper={answer}", "clone", "-q", self.url, target]

    def requests(self) -> list[str]:
        """`STATUS METHOD PATH` of each request so far."""
        return self.log.read_text().splitlines()


def _git(*argv: str, cwd: Path) -> None:
    env = {**os.environ, **GIT_ENV, "HOME": str(cwd)}
    done = subprocess.run(
        ["git", *argv], cwd=cwd, env=env, capture_output=True, timeout=GIT_LIMIT_S
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def _make_repository(root: Path) -> Path:
    """A bare repository with one commit, which may be pushed to."""
    work = root.parent / "first"
    work.mkdir()
    (work / "README").write_text("cloned over HTTP\n")
    _git("init", "-q", cwd=work)
    _git("add", "README", cwd=work)
    _git(*_AUTHOR, "commit", "-q", "-m", "first", cwd=work)
    _git("clone", "-q", "--bare", str(work), str(root / REPOSITORY), cwd=root)
    _git("config", "http.receivepack", "true", cwd=root / REPOSITORY)
    return root / REPOSITORY


@contextmanager
def git_server() -> Generator[GitServer]:
    """A running server with a password made for this run."""
    require_program("git", package="git")
    password = "git" + secrets.token_hex(12)
    with short_directory() as folder:
        root = folder / "repositories"
        root.mkdir()
        repository = _make_repository(root)
        log = folder / "log"
        log.touch()
        bridge = subprocess.Popen(
            [sys.executable, "-I", str(_BRIDGE), str(root), str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert bridge.stdin is not None
            bridge.stdin.write(password.encode() + b"\n")
            bridge.stdin.flush()
            url = f"http://127.0.0.1:{int(first_line(bridge))}/{REPOSITORY}"
            yield GitServer(url, USER, password, repository, log)
        finally:
            end_process(bridge)
