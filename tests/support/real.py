"""What a test needs from the machine: a program, root, a short directory, a free port.

A test whose real part is absent is skipped with the name of the Debian package that brings it;
under JACKIN_REQUIRE_REAL=1 (CI) the same is a failure, here and once more in `conftest.py`.
It refuses to know what the programs are used for.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import pytest

REQUIRE_REAL: Final = os.environ.get("JACKIN_REQUIRE_REAL") == "1"
# Programs of administrators (`sbin`) are real too, though no plain user's PATH names them.
SEARCH_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# Debian's interpreter: readable by every uid, while a virtual environment may lie in a 0700 home.
SYSTEM_PYTHON: Final = "/usr/bin/python3"
# What a loaded two-core machine needs to start a server; only a hang takes longer.
START_LIMIT_S: Final = 20.0
# Between two looks at something that cannot be waited for with a descriptor.
LOOK_INTERVAL_S: Final = 0.01
# TERM first; a server that has not ended by then gets KILL.
END_GRACE_S: Final = 5.0


def missing(what: str) -> NoReturn:
    """Skip this test because `what` is absent; a failure where real parts are required."""
    if REQUIRE_REAL:
        pytest.fail(f"JACKIN_REQUIRE_REAL=1 and {what}", pytrace=False)
    pytest.skip(what)


def find_program(name: str) -> str | None:
    """The path of a program on PATH or in the system's directories."""
    return shutil.which(name) or shutil.which(name, path=SEARCH_PATH)


def require_program(name: str, *, package: str) -> str:
    """The path of a program; without it the test is skipped, naming the Debian package."""
    return find_program(name) or missing(f"{name} is absent: apt-get install {package}")


def require_file(path: str, *, package: str) -> str:
    """The path, which exists; without it the test is skipped, naming the Debian package."""
    if not os.path.exists(path):
        missing(f"{path} is absent: apt-get install {package}")
    return path


def require_root() -> None:
    """Skip unless this is root, who alone can act as a second uid."""
    if os.geteuid() != 0:
        missing("a second uid is needed: run the tests as root (package sudo)")


def can_isolate() -> bool:
    """Whether bubblewrap works here; some containers forbid the namespaces it makes."""
    bwrap = find_program("bwrap")
    if bwrap is None:
        return False
    probe = [bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
    return subprocess.run(probe, capture_output=True, timeout=START_LIMIT_S).returncode == 0


def require_bwrap() -> str:
    """The path of a bubblewrap that can make its namespaces on this machine."""
    path = require_program("bwrap", package="bubblewrap")
    if not can_isolate():
        missing("bubblewrap cannot make namespaces here: allow unprivileged user namespaces")
    return path


@contextmanager
def short_directory(mode: int = 0o700) -> Generator[Path]:
    """A directory with a path so short that sockets in it stay below 103 bytes."""
    path = Path(tempfile.mkdtemp(prefix="jx", dir="/tmp"))
    path.chmod(mode)
    try:
        yield path
    finally:
        remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a directory that a test made, also where it took its own permissions away."""
    path.chmod(stat.S_IRWXU)
    for folder, names, _ in os.walk(path):
        for name in names:  # before the walk goes down into it
            below = os.path.join(folder, name)
            if not os.path.islink(below) and os.stat(below).st_uid == os.geteuid():
                os.chmod(below, stat.S_IRWXU)
    shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(_: object, __: str, found: tuple[object, BaseException, object]) -> None:
    """A server that ends by itself (gpg-agent, whose home it was) takes its sockets along."""
    if not isinstance(found[1], FileNotFoundError):
        raise found[1]


def free_port() -> int:
    """A loopback TCP port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def wait_until(claim: Callable[[], bool], what: str, *, limit_s: float = START_LIMIT_S) -> None:
    """Return as soon as `claim()` holds.

    Raises: AssertionError that says `what` did not come true within the limit.
    """
    deadline = time.monotonic() + limit_s
    while not claim():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {what}")
        time.sleep(LOOK_INTERVAL_S)


def first_line(process: subprocess.Popen[bytes]) -> str:
    """The first line that a server prints, which says that it is ready; stdout is a pipe.

    Raises: AssertionError where none comes within the limit.
    """
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_LIMIT_S)
    line = process.stdout.readline().decode() if ready else ""
    if not line:
        raise AssertionError(f"no first line from {process.args!r}")
    return line.strip()


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat_line.rpartition(")")[2].split()[0] not in {"Z", "X"}


def end_process(process: subprocess.Popen[bytes]) -> int:
    """End one process that a test started and close its pipes; the exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    status = process.wait(END_GRACE_S)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    return status
