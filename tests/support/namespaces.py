"""Processes in PID namespaces of their own, as an agent in a capsule or one that pretends.

Made with bubblewrap, or `unshare` for a nested one. It refuses to know the broker. Every process
is ended by its pid; with the first one of a namespace goes everything in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .real import END_GRACE_S, require_bwrap, require_program, wait_until

_ROOT: Final = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
_OUTER: Final = ["--unshare-user", "--unshare-pid", "--die-with-parent", "--as-pid-1"]
# Its children end with it: it is the namespace's first process.
_SHELL: Final = "sleep 60 & read -r _; exit 0"


class InNamespace:
    """A namespace; `pid` is the host's number of its first process."""

    def __init__(self, process: subprocess.Popen[bytes], pid: int) -> None:
        self._process = process
        self.pid = pid

    def child(self) -> int:
        """The host's pid of the first process that init started."""
        found: list[int] = []

        def has_child() -> bool:
            found[:] = children_of(self.pid)
            return bool(found)

        wait_until(has_child, "init has started a process")
        return found[0]

    def nested_init(self) -> int:
        """The host's pid of a process below us that is pid 1 of a deeper namespace."""
        found: list[int] = []

        def is_there() -> bool:
            below = descendants_of(self.pid)
            found[:] = [pid for pid in below if depths_of(pid)[2:] == [1]]
            return bool(found)

        wait_until(is_there, "the nested namespace has its first process")
        return found[0]

    def go(self) -> None:
        """Let the first process start what it was given."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """End init, and with it the namespace."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait(END_GRACE_S)


def depths_of(pid: int) -> list[int]:
    """NSpid: the process's number in each namespace, the host's first; empty once it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return [int(word) for word in line.split()[1:]]
    return []


def children_of(pid: int) -> list[int]:
    """The host's pids of a process's children."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants_of(pid: int) -> list[int]:
    """The host's pids of everything below a process."""
    below = children_of(pid)
    return below + [deeper for child in below for deeper in descendants_of(child)]


@contextmanager
def in_namespace(
    *, nested: bool = False, runs: str = "", prefix: Sequence[str] = ()
) -> Generator[InNamespace]:
    """A running namespace, with `nested` one more inside it.

    `runs` is a shell command that its first process starts at `go`; `prefix` changes the uid.
    """
    script = f"sleep 60 & read -r _; {runs}; exit 0" if runs else _SHELL
    if nested:
        require_program("unshare", package="util-linux")
        script = "unshare -Urpf sleep 60 & read -r _; exit 0"
    reader, writer = os.pipe()
    command = [*_OUTER, *_ROOT, "--info-fd", str(writer)]
    process = subprocess.Popen(
        [*prefix, require_bwrap(), *command, "sh", "-c", script],
        stdin=subprocess.PIPE,
        pass_fds=[writer],
    )
    os.close(writer)
    made = None
    try:
        with open(reader, "rb") as report:
            words = report.read()
        pid = int(words.split(b'"child-pid":')[1].split(b",")[0].strip(b" }\n"))
        made = InNamespace(process, pid)
        wait_until(lambda: bool(children_of(pid)), "the namespace's first process works")
        yield made
    finally:
        if made is not None:
            made.end()
        process.kill()
        process.wait(END_GRACE_S)
        if process.stdin is not None:
            process.stdin.close()
