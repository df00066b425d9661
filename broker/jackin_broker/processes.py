"""What the kernel says of one process, read so that a reused pid cannot answer for another.

A `Process` holds the open directory /proc/PID: once the process is gone every read from it
fails, whatever got its number later. A pidfd says whether a process still lives.
It refuses to know who may do what: `peer.py` and `capsules.py` judge.
"""

from __future__ import annotations

import os
import secrets
import select
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Final, NamedTuple

# A parent may end between two reads; each try needs a fresh reparenting to fail.
_REPARENT_TRIES: Final = 5
# /proc/PID/status is about 1.5 KiB; the file has no length to ask for.
_STATUS_MAX_BYTES: Final = 16 * 1024
# As long as the kernel's own, a random UUID.
_BOOT_ID_BYTES: Final = 16


class ProcessGone(Exception):
    """The process ended, or may not be read. For whoever judges, both are a no."""


class Status(NamedTuple):
    """What /proc/PID/status says. `depths` is NSpid: its pid in each namespace, inner last.

    `uid` is the real one, `effective_uid` what it acts as.
    """

    pid: int
    name: str
    parent: int
    uid: int
    depths: tuple[int, ...]
    effective_uid: int


class Namespace(NamedTuple):
    """Names one namespace for as long as anything lives in it."""

    device: int
    inode: int


class Process:
    """One process, and never another of the same number."""

    def __init__(self, pid: int) -> None:
        """Raises: ProcessGone."""
        self.pid = pid
        try:
            self._directory = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ProcessGone(f"process {pid} cannot be read") from error

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._directory)

    def status(self) -> Status:
        """Name, parent, host uid and pids.

        Raises: ProcessGone.
        """
        fields: dict[str, str] = {}
        text = self._read("status").decode("utf-8", "backslashreplace")
        for line in text.split("\n"):  # a process may name itself with other line ends
            key, _, value = line.partition(":")
            fields[key] = value.strip()
        try:
            return Status(
                pid=self.pid,
                name=fields["Name"],
                parent=int(fields["PPid"]),
                uid=int(fields["Uid"].split()[0]),
                depths=tuple(int(pid) for pid in fields["NSpid"].split()),
                effective_uid=int(fields["Uid"].split()[1]),
            )
        except (KeyError, ValueError, IndexError) as error:
            raise ProcessGone(f"process {self.pid} has no readable status") from error

    def start_time(self) -> int:
        """When it started, in the kernel's ticks since boot.

        Raises: ProcessGone. Source: proc_pid_stat(5), field 22; the name may hold anything.
        """
        after_name = self._read("stat").rpartition(b")")[2].split()
        try:
            return int(after_name[19])
        except (IndexError, ValueError) as error:
            raise ProcessGone(f"process {self.pid} has no readable start time") from error

    def pid_namespace(self) -> Namespace | None:
        """Its PID namespace, or None where the kernel does not let us see it."""
        try:
            found = os.stat("ns/pid", dir_fd=self._directory)
        except OSError:
            return None
        return Namespace(found.st_dev, found.st_ino)

    def cgroup_of(self, container_id: str) -> str:
        """The path of its control group that names this container, empty for none.

        Raises: ProcessGone. Source: cgroups(7), /proc/PID/cgroup: `ID:CONTROLLERS:PATH`.
        """
        for line in self._read("cgroup").decode("utf-8", "backslashreplace").split("\n"):
            path = line.split(":", 2)[-1]
            if container_id and container_id in path:
                return path
        return ""

    def is_in_cgroup(self, path: str) -> bool:
        """Whether this control group, or one below it, has the process.

        Raises: ProcessGone.
        """
        lines = self._read("cgroup").decode("utf-8", "backslashreplace").split("\n")
        found = [line.split(":", 2)[-1] for line in lines]
        return any(one == path or one.startswith(f"{path}/") for one in found)

    def _read(self, name: str) -> bytes:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
            try:
                return os.read(fd, _STATUS_MAX_BYTES)
            finally:
                os.close(fd)
        except OSError as error:
            raise ProcessGone(f"process {self.pid} cannot be read") from error


@contextmanager
def opened(pid: int) -> Generator[Process]:
    """The process, let go at the end.

    Raises: ProcessGone.
    """
    process = Process(pid)
    try:
        yield process
    finally:
        process.close()


def lineage(pid: int) -> Generator[Status]:
    """The process, then its parent, and so on up to the first without a parent that we can see.

    Each step is certain: a parent is opened, and is still the parent after that. A parent is
    always older than the child, so the number cannot have been given to a newcomer in between.
    Raises: ProcessGone.
    """
    current = Process(pid)
    try:
        while True:
            status = current.status()
            yield status
            parent = _open_parent(current)
            if parent is None:
                return
            current.close()
            current = parent
    finally:
        current.close()


def _open_parent(child: Process) -> Process | None:
    for _ in range(_REPARENT_TRIES):
        number = child.status().parent
        if number == 0:
            return None
        try:
            parent = Process(number)
        except ProcessGone:
            continue
        try:
            is_parent = child.status().parent == number
        except ProcessGone:
            parent.close()
            raise
        if is_parent:
            return parent
        parent.close()
    raise ProcessGone(f"the parent of process {child.pid} cannot be read")


def is_alive(pidfd: int) -> bool:
    """Whether the process of a pidfd has not ended."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return not poller.poll(0)


@cache
def boot_id() -> str:
    """Names this boot of the machine; where the kernel does not say, this process alone."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return secrets.token_hex(_BOOT_ID_BYTES)


def own_depth() -> int:
    """How many PID namespaces deep we are, seen from our /proc.

    Raises: ProcessGone where there is no usable /proc.
    """
    with opened(os.getpid()) as process:
        return len(process.status().depths)
