"""Drive a program on a pseudo-terminal and read its screen as a person would.

pexpect holds the terminal, pyte draws what the program writes. Every wait has a limit and ends
as soon as it can; a failure shows the screen. The program's questions to the terminal (device
status, attributes) are answered. Zero-width characters stop pyte's drawing of a chunk: hostile
text is tested under tmux instead (`tmux.py`).
"""

from __future__ import annotations

import re
import termios
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

import pexpect
import pyte

# What an operator's answer takes on a loaded two-core machine; only a hang takes longer.
SCREEN_LIMIT_S: Final = 20.0
# A person's pace: they see what the last key did first. What comes faster counts as a paste.
PERSON_S: Final = 0.05
# One read of the terminal waits this long at most, then the claim is looked at again.
_READ_LIMIT_S: Final = 0.05
_READ_MAX_BYTES: Final = 65_536
# What never stops writing is taken as it is after so many reads.
_SETTLE_READS: Final = 20

KEYS: Final = {
    "enter": "\r",
    "escape": "\x1b",
    "space": " ",
    "tab": "\t",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "ctrl-c": "\x03",
    "ctrl-d": "\x04",
    "ctrl-z": "\x1a",
    "ctrl-backslash": "\x1c",
    "backspace": "\x7f",
}


class Terminal:
    """A program on a terminal of its own, its screen, and every byte that it wrote."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: dict[str, str],
        cwd: str | None = None,
        rows: int = 24,
        cols: int = 80,
    ) -> None:
        self._screen = pyte.Screen(cols, rows)
        self._screen.write_process_input = self._answer
        self._stream = pyte.ByteStream(self._screen)
        self._written = bytearray()
        self._child: pexpect.spawn[bytes] = pexpect.spawn(
            argv[0],
            list(argv[1:]),
            env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
            cwd=cwd,
            dimensions=(rows, cols),
        )
        # pexpect waits before each send, to be kind to slow programs; here it only hides races.
        self._child.delaybeforesend = None

    @property
    def pid(self) -> int:
        """The program's process id."""
        assert self._child.pid is not None
        return self._child.pid

    @property
    def modes(self) -> list[object]:
        """The terminal's settings, as tcgetattr(3) has them, as they are now."""
        return list(termios.tcgetattr(self._child.child_fd))

    @property
    def is_raw(self) -> bool:
        """Whether keys reach the program as they are: no echo, no lines, no signals."""
        flags = termios.tcgetattr(self._child.child_fd)[3]
        return not flags & (termios.ICANON | termios.ECHO | termios.ISIG)

    @property
    def written(self) -> bytes:
        """Every byte that the program wrote so far."""
        return bytes(self._written)

    @property
    def text(self) -> str:
        """The screen's lines, trailing blanks cut, as of the last read."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def press(self, *keys: str) -> None:
        """Send keys by name (`enter`, `escape` …) or single characters, at a person's pace."""
        for key in keys:
            assert key in KEYS or len(key) == 1, f"no such key: {key}"
            self.rest()
            self._child.send(KEYS.get(key, key))

    def rest(self) -> None:
        """Read on for as long as a person takes between two keys."""
        rested_s = time.monotonic() + PERSON_S
        while time.monotonic() < rested_s and self._read():
            pass

    def type(self, text: str) -> None:
        """Send text as it is."""
        self._child.send(text)

    def resize(self, rows: int, cols: int) -> None:
        """Change the terminal's size; the program gets SIGWINCH."""
        self._screen.resize(rows, cols)
        termios.tcsetwinsize(self._child.child_fd, (rows, cols))

    def wait_for(self, pattern: str, *, limit_s: float = SCREEN_LIMIT_S) -> re.Match[str]:
        """Read until the screen matches the regular expression (`^` and `$`: lines); the match.

        What follows at once is read too, so that `text` is not a half drawn screen.

        Raises: AssertionError that shows the screen.
        """
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            match = re.search(pattern, self.text, re.MULTILINE)
            found.extend([match] if match else [])
            return match is not None

        self._read_until(is_there, f"the screen shows {pattern!r}", limit_s)
        for _ in range(_SETTLE_READS):
            before = len(self._written)
            if not self._read() or len(self._written) == before:
                break
        return found[0]

    def wait_gone(self, pattern: str, *, limit_s: float = SCREEN_LIMIT_S) -> None:
        """Read until the screen no longer matches the regular expression."""

        def is_gone() -> bool:
            return re.search(pattern, self.text, re.MULTILINE) is None

        self._read_until(is_gone, f"{pattern!r} leaves the screen", limit_s)

    def wait_until(
        self, claim: Callable[[], bool], what: str, *, limit_s: float = SCREEN_LIMIT_S
    ) -> None:
        """Read until `claim()` holds; a program whose output nobody reads would stand still."""
        self._read_until(claim, what, limit_s)

    def wait_ended(self, *, limit_s: float = SCREEN_LIMIT_S) -> int:
        """Read until the program ends; its exit status, 128 + n for a signal."""
        self._read_until(lambda: self._child.flag_eof, "the program ends", limit_s)
        return self._status()

    def end(self) -> None:
        """End the program if it still runs, and give the terminal back."""
        self._child.close(force=True)

    def _answer(self, data: str) -> None:
        self._child.send(data)

    def _read_until(self, claim: Callable[[], bool], what: str, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while True:
            is_open = self._read()
            if claim():
                return
            if not is_open or time.monotonic() > deadline:
                why = f"not within {limit_s:g} s" if is_open else "the program ended first"
                raise AssertionError(f"{why}: {what}; the screen:\n{self.text}")

    def _read(self) -> bool:
        """Draw what the program wrote meanwhile; whether more may come."""
        try:
            data = self._child.read_nonblocking(_READ_MAX_BYTES, _READ_LIMIT_S)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self._written += data
        self._stream.feed(data)
        return True

    def _status(self) -> int:
        self._child.wait()
        if self._child.signalstatus is not None:
            return 128 + self._child.signalstatus
        assert self._child.exitstatus is not None
        return self._child.exitstatus


@contextmanager
def terminal(
    argv: Sequence[str],
    *,
    env: dict[str, str],
    cwd: str | None = None,
    rows: int = 24,
    cols: int = 80,
) -> Generator[Terminal]:
    """A program on a terminal, ended on the way out."""
    running = Terminal(argv, env=env, cwd=cwd, rows=rows, cols=cols)
    try:
        yield running
    finally:
        running.end()
