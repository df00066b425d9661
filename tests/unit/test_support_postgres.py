"""The database fixture is real: a password opens it, and nothing else does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from support.postgres import Postgres, postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


def query(server: Postgres, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        server.psql("select 6 * 7"),
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **env},
        capture_output=True,
        text=True,
        timeout=20,
    )


def test_the_password_opens_the_database(server: Postgres) -> None:
    answer = query(server, PGPASSWORD=server.password)
    assert answer.stdout == "42\n", answer.stderr


@pytest.mark.parametrize("env", [{}, {"PGPASSWORD": "wrong"}], ids=["none", "wrong"])
def test_without_the_password_nobody_is_let_in(server: Postgres, env: dict[str, str]) -> None:
    answer = query(server, **env)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "password" in answer.stderr


def test_the_password_is_in_no_repr(server: Postgres) -> None:
    assert server.password not in repr(server)
