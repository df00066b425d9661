"""A container engine of the test's own: dockerd in a short directory, or podman with its stores.

Podman as root, and as a plain user who exists for this alone. Nothing of the machine's engines is
touched: own data, own socket, no bridge, no packet filter. An engine that is not installed is a
skip (a failure where real parts are required); one that is and does not start containers here makes
its tests expected failures, with what it said. It refuses to know what is run.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from .accounts import Account, with_accounts
from .image import write_image
from .real import (
    end_process,
    is_running,
    require_program,
    require_root,
    short_directory,
    wait_until,
)
from .second_uid import unused_uid

DOCKER: Final = "docker"
PODMAN: Final = "podman"
ROOTLESS: Final = "rootless podman"
IMAGE: Final = "localhost/jackin-test:1"
# An engine that imports an image answers in a second or two.
ENGINE_LIMIT_S: Final = 60
_DOCKERD: Final = (
    *("--storage-driver", "vfs", "--bridge", "none", "--iptables=false", "--ip6tables=false"),
)
_STORAGE: Final = """\
[storage]
driver = "vfs"
graphroot = "{0}/root"
rootless_storage_path = "{0}/root"
runroot = "{0}/run"
"""
# runc, because others refuse some machines' control groups; limits that a container may have.
_CONTAINERS: Final = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{0}/tmp"
"""


@dataclass(frozen=True)
class Engine:
    """A running engine that has the image; `env` leads its program to it.

    `operator` is whom it belongs to where that is not root, `prefix` the argv that becomes them.
    """

    name: str
    env: dict[str, str]
    operator: Account | None = None
    prefix: tuple[str, ...] = ()

    @property
    def is_rootless(self) -> bool:
        """Whether its capsules live as the operator."""
        return self.operator is not None

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """One ended command of the engine's."""
        return subprocess.run(
            [*self.prefix, require_program(self.name, package=self.name), *argv],
            env={**os.environ, **self.env, **self._home()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENGINE_LIMIT_S,
        )

    def _home(self) -> dict[str, str]:
        """Where a rootless engine's program may write beside its stores."""
        if self.operator is None:
            return {}
        home = self.operator.home
        places = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")
        return {"HOME": home, **{f"XDG_{name}": f"{home}/{name.lower()}" for name in places}}

    def running(self) -> list[str]:
        """The names of the containers that are there, running or not."""
        return self.run("ps", "-a", "--format", "{{.Names}}").stdout.split()


@contextmanager
def engine(kind: str) -> Generator[Engine]:
    """The engine of this kind, ended on the way out."""
    require_root()  # no other has uids to give away, and a rootless one is another user's
    make = {DOCKER: _docker, PODMAN: _podman, ROOTLESS: _rootless_podman}[kind]
    with short_directory(0o711) as folder, make(folder) as made:
        archive = folder / "image.tar"
        write_image(archive)
        archive.chmod(0o644)
        done = made.run("import", str(archive), IMAGE)
        _give_up_unless(done.returncode == 0, kind, done.stderr)
        done = made.run("run", "--rm", "--network", "none", IMAGE, "true")
        _give_up_unless(done.returncode == 0, kind, done.stderr)
        try:
            yield made
        finally:
            for container in made.running():
                made.run("rm", "--force", container)


@contextmanager
def _docker(folder: Path) -> Generator[Engine]:
    require_program("docker", package="docker.io")
    program = require_program("dockerd", package="docker.io")
    places = [f"--{key}={folder / key}" for key in ("data-root", "exec-root", "pidfile")]
    socket, log = folder / "d.sock", folder / "log"
    made = Engine("docker", {"DOCKER_HOST": f"unix://{socket}"})
    with log.open("wb") as errors:
        daemon = subprocess.Popen(
            [program, "-H", f"unix://{socket}", *places, *_DOCKERD], stdout=errors, stderr=errors
        )
    try:
        wait_until(
            lambda: daemon.poll() is not None or made.run("version").returncode == 0,
            "dockerd answers or has ended",
            limit_s=ENGINE_LIMIT_S,
        )
        _give_up_unless(daemon.poll() is None, "docker", log.read_text(errors="replace"))
        yield made
    finally:
        end_process(daemon)
        _unmount_below(folder)


@contextmanager
def _podman(folder: Path) -> Generator[Engine]:
    yield Engine("podman", _stores(folder))
    _unmount_below(folder)


@contextmanager
def _rootless_podman(folder: Path) -> Generator[Engine]:
    """As a user of his own, with subordinate ids and a home: nothing here takes root."""
    require_program("newuidmap", package="uidmap")
    home, accounts = folder / "home", folder / "accounts"
    for place in (home, accounts):
        place.mkdir(mode=0o755)
    operator = Account("operator", unused_uid(1530), str(home))
    prefix = with_accounts(accounts, operator, run_as=operator, has_subordinates=True)
    made = Engine("podman", _stores(home), operator, tuple(prefix))
    (home / "runtime_dir").mkdir(mode=0o700)
    own(home, operator)
    try:
        yield made
    finally:
        _end_pause(home / "tmp")


def own(place: Path, account: Account | None) -> None:
    """Let a directory with all that is in it belong to this account."""
    for path in (place, *place.rglob("*")):
        if account is not None:
            os.chown(path, account.uid, account.uid, follow_symlinks=False)


def _stores(folder: Path) -> dict[str, str]:
    """What leads podman to stores of its own in this folder."""
    require_program("podman", package="podman")
    require_program("runc", package="runc")
    (folder / "tmp").mkdir(mode=0o700)
    (folder / "storage.conf").write_text(_STORAGE.format(folder))
    (folder / "containers.conf").write_text(_CONTAINERS.format(folder))
    return {
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
    }


def _end_pause(folder: Path) -> None:
    """The process that holds a rootless podman's namespaces between its commands."""
    with suppress(FileNotFoundError, ProcessLookupError):
        pid = int((folder / "pause.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pid), "podman's pause process has ended")


def _unmount_below(folder: Path) -> None:
    """What an engine left mounted in its own directory keeps that from being removed."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def _give_up_unless(works: bool, kind: str, why: str) -> None:
    """No skip, which is a failure where real parts are required: it is the machine that refuses."""
    if not works:
        lines = why.strip().splitlines() or ["it said nothing"]
        pytest.xfail(f"{kind} does not start containers here: {lines[-1][:200]}")
