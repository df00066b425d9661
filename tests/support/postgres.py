"""A real PostgreSQL server on a loopback port, where only a password opens the door.

The cluster is made afresh in a directory of its own and never touches the machine's own
service. PostgreSQL refuses to run as root, so root hands it to the package's user.
"""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .real import (
    END_GRACE_S,
    SEARCH_PATH,
    START_LIMIT_S,
    end_process,
    free_port,
    missing,
    require_program,
    short_directory,
    wait_until,
)

# Debian keeps the server's programs off PATH, one directory a major version.
_SERVERS: Final = Path("/usr/lib/postgresql")
_USERS: Final = ("postgres", "nobody")
# A cluster for tests is thrown away: no fsync, few connections, no socket but TCP.
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "max_connections": "10",
    "shared_buffers": "16MB",
}


@dataclass(frozen=True)
class Postgres:
    """Where the server listens and who may log in; `password` is in no repr."""

    port: int
    user: str
    password: str = field(repr=False)
    host: str = "127.0.0.1"
    database: str = "postgres"

    def psql(self, sql: str) -> list[str]:
        """The argv of a query that never asks for a password; PGPASSWORD must bring it."""
        program = require_program("psql", package="postgresql-client")
        where = ["-h", self.host, "-p", str(self.port), "-U", self.user, "-d", self.database]
        return [program, "-X", "-w", *where, "-At", "-c", sql]


def _server_program(name: str) -> str:
    versions = sorted(_SERVERS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(versions[-1]) if versions else require_program(name, package="postgresql")


def _unprivileged() -> tuple[list[str], int | None]:
    """The argv prefix and the uid that the server runs with; nothing to do but for root."""
    if os.geteuid() != 0:
        return [], None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = next((known[name] for name in _USERS if name in known), None)
    if user is None:
        missing("no user for PostgreSQL: apt-get install postgresql")
    setpriv = require_program("setpriv", package="util-linux")
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [setpriv, *ids, "--"], user.pw_uid


def _make_cluster(prefix: list[str], folder: Path, password: str, env: dict[str, str]) -> Path:
    """Run initdb; the data directory. The password goes by a private file, never by argv."""
    data = folder / "data"
    password_file = folder / "password"
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    os.chown(password_file, folder.stat().st_uid, -1)
    how = ["--no-sync", "--auth=scram-sha-256", "--username=operator", "--encoding=UTF8"]
    argv = [*prefix, _server_program("initdb"), *how, f"--pwfile={password_file}", f"-D{data}"]
    made = subprocess.run(argv, env=env, cwd=folder, capture_output=True, timeout=60)
    assert made.returncode == 0, made.stderr.decode(errors="replace")
    password_file.unlink()
    return data


@contextmanager
def postgres() -> Generator[Postgres]:
    """A server that answers, with one superuser and a password made for this run."""
    server = _server_program("postgres")
    prefix, uid = _unprivileged()
    env = {"PATH": SEARCH_PATH, "LANG": "C", "LC_ALL": "C"}
    password = "pg" + secrets.token_hex(12)
    with short_directory(0o755) as folder:
        if uid is not None:
            os.chown(folder, uid, -1)
        data = _make_cluster(prefix, folder, password, {**env, "HOME": str(folder)})
        port = free_port()
        settings = [f"-c{key}={value}" for key, value in _SETTINGS.items()]
        log = (folder / "log").open("wb")
        process = subprocess.Popen(
            [*prefix, server, f"-D{data}", f"-p{port}", *settings],
            env={**env, "HOME": str(folder)},
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            running = Postgres(port=port, user="operator", password=password)
            wait_until(lambda: _answers(running, process, folder / "log"), "PostgreSQL answers")
            yield running
        finally:
            log.close()
            # INT is PostgreSQL's fast shutdown; TERM would wait for clients to leave.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(END_GRACE_S)
            finally:
                end_process(process)


def _answers(running: Postgres, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text(errors="replace")
    ready = require_program("pg_isready", package="postgresql-client")
    probe = [ready, "-q", "-h", running.host, "-p", str(running.port)]
    return subprocess.run(probe, timeout=START_LIMIT_S).returncode == 0
