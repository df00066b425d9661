"""The agent's side of a test: the installed shim, called as an agent would call it.

Kind `none` needs nothing but the socket; what needs a real boundary is in `second_uid.py` and in
the tests that launch one.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .broker import PROGRAMS, Broker
from .real import SEARCH_PATH

# A command of a test takes milliseconds; only a hang takes longer.
CALL_LIMIT_S: Final = 30.0


class Agent:
    """Calls `jackin-exec` on one capsule's socket from one directory."""

    def __init__(self, broker: Broker, capsule: str, cwd: Path) -> None:
        self.cwd: Final = cwd
        self.env: Final = {
            "PATH": f"{PROGRAMS}:{SEARCH_PATH}",
            "LANG": "C.UTF-8",
            "JACKIN_BROKER_SOCKET": broker.socket_of(capsule),
        }

    def start(
        self, *argv: str | bytes, stdin: int = subprocess.DEVNULL, options: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """`jackin-exec OPTIONS -- ARGV`, running."""
        return subprocess.Popen(
            [str(PROGRAMS / "jackin-exec"), *options, "--", *argv],
            env=self.env,
            cwd=self.cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(
        self, *argv: str | bytes, stdin: bytes | None = None, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        """`jackin-exec OPTIONS -- ARGV`, ended, its output held."""
        source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        with self.start(*argv, stdin=source, options=options) as child:
            try:
                out, err = child.communicate(stdin, timeout=CALL_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(argv, child.returncode, out, err)

    @contextmanager
    def running(
        self, *argv: str | bytes, stdin: int = subprocess.DEVNULL, options: Sequence[str] = ()
    ) -> Generator[subprocess.Popen[bytes]]:
        """`jackin-exec` while the block lasts; killed at its end if it still runs."""
        with self.start(*argv, stdin=stdin, options=options) as child:
            try:
                yield child
            finally:
                if child.poll() is None:
                    child.kill()


def finish(child: subprocess.Popen[bytes]) -> subprocess.CompletedProcess[bytes]:
    """Wait for a started shim; its status and output."""
    out, err = child.communicate(timeout=CALL_LIMIT_S)
    return subprocess.CompletedProcess([], child.returncode, out, err)
