"""A real sshd on a loopback port, run by a plain user, whom one key opens the door.

Nothing of the machine's own service or accounts is touched. It refuses to know what is done there.
"""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .accounts import Account, with_accounts
from .real import (
    SEARCH_PATH,
    START_LIMIT_S,
    end_process,
    free_port,
    require_program,
    short_directory,
    wait_until,
)
from .second_uid import unused_uid

_CONFIG: Final = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowAgentForwarding yes
LogLevel VERBOSE
"""
REPOSITORY: Final = "project.git"


@dataclass(frozen=True)
class SshServer:
    """Where it listens, and what opens it; key and passphrase are in no repr."""

    port: int
    user: str
    folder: Path
    log: Path
    key: str = field(repr=False)
    plain_key: str = field(repr=False)
    passphrase: str = field(repr=False)
    host: str = "127.0.0.1"

    @property
    def known_hosts(self) -> str:
        """A line for a known_hosts file."""
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        return f"[{self.host}]:{self.port} {kind} {key}\n"

    @property
    def fingerprint(self) -> str:
        """Of the key, as `ssh-keygen -l` says it."""
        done = _keygen("-l", "-f", str(self.folder / "user_key.pub"))
        return done.split()[1]

    def argv(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        """The argv of a login that asks nothing, with `known_hosts` in the working directory."""
        fixed = ("UserKnownHostsFile=known_hosts", "StrictHostKeyChecking=yes")
        words = [word for option in fixed for word in ("-o", option)]
        where = ["-p", str(self.port), f"{self.user}@{self.host}"]
        return ["ssh", "-F", "none", *words, *options, *where, *command]


def _keygen(*argv: str) -> str:
    program = require_program("ssh-keygen", package="openssh-client")
    done = subprocess.run([program, *argv], capture_output=True, timeout=START_LIMIT_S)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


def make_key(path: Path, passphrase: str = "") -> str:
    """A new key at that path; its text.

    The passphrase is made by the test that gives it, so that it may stand in an argv here.
    """
    _keygen("-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", str(path))
    return path.read_text()


@contextmanager
def ssh_server() -> Generator[SshServer]:
    """A server that answers, with one account, two keys and a bare repository."""
    sshd = require_program("sshd", package="openssh-server")
    passphrase = "pass" + secrets.token_hex(12)
    with short_directory(0o755) as folder:
        prefix, user, uid = _account(folder)
        _keygen("-q", "-t", "ed25519", "-N", "", "-C", "host", "-f", str(folder / "host_key"))
        key = make_key(folder / "user_key", passphrase)
        plain_key = make_key(folder / "plain_key")
        allowed = [(folder / f"{name}.pub").read_text() for name in ("user_key", "plain_key")]
        (folder / "authorized_keys").write_text("".join(allowed))
        git = require_program("git", package="git")
        bare = [git, "init", "-q", "--bare", str(folder / REPOSITORY)]
        subprocess.run(bare, check=True, capture_output=True, timeout=START_LIMIT_S)
        port = free_port()
        (folder / "config").write_text(_CONFIG.format(port=port, folder=folder))
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid)
        log = folder / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [*prefix, sshd, "-D", "-e", "-f", str(folder / "config")],
                env={"PATH": SEARCH_PATH, "LANG": "C"},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        try:
            wait_until(lambda: _listens(process, log), "sshd listens")
            yield SshServer(port, user, folder, log, key, plain_key, passphrase)
        finally:
            end_process(process)


def _account(folder: Path) -> tuple[list[str], str, int]:
    """The argv prefix, the name and the uid of the account that the server runs as."""
    if os.geteuid() != 0:
        return [], pwd.getpwuid(os.geteuid()).pw_name, os.geteuid()
    remote = Account("remote", unused_uid(1510), str(folder))
    return with_accounts(folder, remote, run_as=remote), remote.name, remote.uid


def _listens(process: subprocess.Popen[bytes], log: Path) -> bool:
    said = log.read_text(errors="replace")
    assert process.poll() is None, said
    return "Server listening" in said
