"""The operator in plain mode: the installed `attach --plain` on a terminal, read line by line.

It refuses to know how the lines are made: it types what a person would, with the number that was
said last.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .broker import Broker, program
from .terminal import PERSON_S, Terminal

_NUMBER: Final = re.compile(rb"^Ready\. .*run (\d+) runs it", re.MULTILINE)


class Plain(Terminal):
    """Plain mode, attached."""

    _entered_s = 0.0

    @property
    def heard(self) -> str:
        """All that was written so far, as text."""
        return self.written.decode("utf-8", "replace").replace("\r\n", "\n")

    def wait_said(self, words: str, *, count: int = 1) -> None:
        """Return when these words were said so often."""
        self.wait_until(lambda: self.heard.count(words) >= count, f"{words!r} is said {count} ×")

    def wait_ready(self, *, count: int = 1) -> str:
        """The number of the request, once it is ready for the `count`th time."""
        self.wait_until(
            lambda: len(_NUMBER.findall(self.written)) >= count, f"it is ready {count} ×"
        )
        return str(_NUMBER.findall(self.written)[-1].decode())

    def enter(self, line: str, said: str = "") -> None:
        """Type a line and Enter, as fast as a person; return when `said` was said once more."""
        last_s = self._entered_s
        self.wait_until(lambda: time.monotonic() - last_s > PERSON_S, "a person's next line")
        count = self.heard.count(said)
        self.type(f"{line}\r")
        self._entered_s = time.monotonic()
        if said:
            self.wait_said(said, count=count + 1)


@contextmanager
def plain_at(
    socket: Path, *, rows: int = 50, cols: int = 90, env: dict[str, str] | None = None
) -> Generator[Plain]:
    """Plain mode on a terminal, at this operator's socket."""
    argv = [sys.executable, "-m", "jackin_picker", "--plain", "--socket", str(socket)]
    with _running(argv, env or {"PATH": "/usr/bin:/bin"}, rows, cols) as running:
        yield running


@contextmanager
def plain(broker: Broker, *, rows: int = 50, cols: int = 90) -> Generator[Plain]:
    """`jackin-broker attach --plain` on a real broker."""
    argv = [program("jackin-broker"), "attach", "--plain"]
    with _running(argv, broker.env, rows, cols) as running:
        yield running


@contextmanager
def _running(argv: Sequence[str], env: dict[str, str], rows: int, cols: int) -> Generator[Plain]:
    running = Plain(argv, env=env, rows=rows, cols=cols)
    try:
        yield running
    finally:
        running.end()
