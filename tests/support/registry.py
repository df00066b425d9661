"""A package registry of the test's own: verdaccio on loopback, with one user and a token.

Nothing is asked of another registry. It refuses to know what is published.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .real import (
    END_GRACE_S,
    end_process,
    find_program,
    free_port,
    missing,
    short_directory,
    wait_until,
)

# Node takes seconds to load a server of three hundred packages on a loaded machine.
_START_LIMIT_S: Final = 60.0
_CONFIG: Final = """\
storage: {folder}/storage
auth:
  htpasswd:
    file: {folder}/htpasswd
packages:
  "**":
    access: $all
    publish: $authenticated
log: {{ type: file, path: {folder}/log, level: warn }}
"""


@dataclass(frozen=True)
class Registry:
    """Where it is, and a token that may publish."""

    url: str
    token: str

    def versions_of(self, package: str) -> list[str]:
        """The published versions, none for an unknown package."""
        try:
            return sorted(_json("GET", f"{self.url}/{package}")["versions"])
        except urllib.error.HTTPError:
            return []


def require_verdaccio() -> str:
    """The program's path; `.ci/run` puts it on the PATH."""
    return find_program("verdaccio") or missing("verdaccio is absent: npm install -g verdaccio")


@contextmanager
def registry() -> Generator[Registry]:
    """The running registry."""
    program = require_verdaccio()
    with short_directory() as folder:
        (folder / "config.yaml").write_text(_CONFIG.format(folder=folder))
        url = f"http://127.0.0.1:{free_port()}"
        server = subprocess.Popen(
            [program, "--config", str(folder / "config.yaml"), "--listen", url],
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: _answers(url), "verdaccio answers", limit_s=_START_LIMIT_S)
            yield Registry(url, _token(url, folder))
        finally:
            end_process(server)


def _answers(url: str) -> bool:
    try:
        _json("GET", f"{url}/-/ping")
    except OSError:
        return False
    return True


def _token(url: str, folder: Path) -> str:
    """A user's token; the password is of this run alone."""
    password = os.urandom(12).hex()
    user = {"name": "agent", "password": password, "email": "agent@example.com"}
    (folder / "htpasswd").touch()
    token = _json("PUT", f"{url}/-/user/org.couchdb.user:agent", user)["token"]
    assert isinstance(token, str)
    return token


def _json(method: str, url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=END_GRACE_S * 2) as reply:  # noqa: S310 - as above
        return json.load(reply)
