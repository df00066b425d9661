"""A container engine of the test's own: dockerd in a short directory, or podman with its stores.

Nothing of the machine's engines is touched: own data, own socket, no bridge, no packet filter.
Where an engine does not start here its tests are expected to fail, with what it said. It refuses to
know what is run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from .image import write_image
from .real import end_process, require_program, require_root, short_directory, wait_until

IMAGE: Final = "localhost/jackin-test:1"
# An engine that imports an image answers in a second or two.
ENGINE_LIMIT_S: Final = 60
_DOCKERD: Final = (
    *("--storage-driver", "vfs", "--bridge", "none", "--iptables=false", "--ip6tables=false"),
)
_STORAGE: Final = '[storage]\ndriver = "vfs"\ngraphroot = "{0}/root"\nrunroot = "{0}/run"\n'
# runc, because others refuse some machines' control groups; limits that a container may have.
_CONTAINERS: Final = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@dataclass(frozen=True)
class Engine:
    """A running engine that has the image; `env` leads its program to it."""

    name: str
    env: dict[str, str]

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """One ended command of the engine's."""
        return subprocess.run(
            [require_program(self.name, package=self.name), *argv],
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENGINE_LIMIT_S,
        )

    def running(self) -> list[str]:
        """The names of the containers that are there, running or not."""
        return self.run("ps", "-a", "--format", "{{.Names}}").stdout.split()


@contextmanager
def engine(name: str) -> Generator[Engine]:
    """The engine of this name, ended on the way out."""
    require_root()  # neither has another uid to give away else
    with short_directory(0o711) as folder:
        make = _docker if name == "docker" else _podman
        with make(folder) as made:
            archive = folder / "image.tar"
            write_image(archive)
            done = made.run("import", str(archive), IMAGE)
            _give_up_unless(done.returncode == 0, name, done.stderr)
            done = made.run("run", "--rm", "--network", "none", IMAGE, "true")
            _give_up_unless(done.returncode == 0, name, done.stderr)
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
    require_program("podman", package="podman")
    require_program("runc", package="runc")
    (folder / "storage.conf").write_text(_STORAGE.format(folder))
    (folder / "containers.conf").write_text(_CONTAINERS)
    yield Engine(
        "podman",
        {
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
        },
    )
    _unmount_below(folder)


def _unmount_below(folder: Path) -> None:
    """What an engine left mounted in its own directory keeps that from being removed."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def _give_up_unless(works: bool, name: str, why: str) -> None:
    """No skip, which is a failure where real parts are required: it is the machine that refuses."""
    if not works:
        lines = why.strip().splitlines() or ["it said nothing"]
        pytest.xfail(f"{name} does not start containers here: {lines[-1][:200]}")
