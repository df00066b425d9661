"""The terminal of plain mode: lines out, lines in, and a way to hear keys without taking them.

It refuses to know what is said and typed. Invariants: what it writes is `Content`, without its
styles, or a bell; while it is hushed nothing that is typed is shown or kept, and when it listens
again what was typed before is gone; the terminal is left as it was found.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterable
from typing import Any, Final

from textual.content import Content

_IN: Final = 0
_OUT: Final = 1
# The kernel's own limit of a line that is typed (n_tty's buffer).
LINE_MAX_BYTES: Final = 4096
# Narrower and nothing is readable; wider lines are hard to follow.
WIDTH_MIN: Final = 40
WIDTH_MAX: Final = 100
_LOCAL_FLAGS: Final = 3
_CONTROL: Final = 6


class PlainTerminal:
    """Stdin and stdout, both the terminal."""

    def __init__(self) -> None:
        """Raises: OSError, termios.error where it is none."""
        self._found: Final[list[Any]] = termios.tcgetattr(_IN)
        self.is_hushed = False

    @property
    def width(self) -> int:
        """Cells of a line that the terminal does not wrap."""
        try:
            cols = os.get_terminal_size(_OUT).columns
        except OSError:
            cols = WIDTH_MIN
        return max(WIDTH_MIN, min(cols - 1, WIDTH_MAX))

    def hush(self) -> None:
        """Hear keys one by one, show none; what was typed is dropped."""
        modes = termios.tcgetattr(_IN)
        modes[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
        modes[_CONTROL][termios.VMIN], modes[_CONTROL][termios.VTIME] = 1, 0
        termios.tcsetattr(_IN, termios.TCSAFLUSH, modes)
        self.is_hushed = True

    def listen(self) -> None:
        """Take whole lines again; what was typed before is dropped."""
        modes = [*self._found]
        modes[_LOCAL_FLAGS] |= termios.ICANON | termios.ECHO | termios.ISIG
        termios.tcsetattr(_IN, termios.TCSAFLUSH, modes)
        self.is_hushed = False

    def give_back(self) -> None:
        """As it was found; half a line that was typed goes to nobody."""
        termios.tcsetattr(_IN, termios.TCSAFLUSH, self._found)

    def read(self) -> bytes:
        """A line, or keys while it is hushed; nothing at the end. Raises: OSError."""
        return os.read(_IN, LINE_MAX_BYTES)

    @property
    def has_more(self) -> bool:
        """Whether another line is there already: nobody types two at once."""
        answer = fcntl.ioctl(_IN, termios.FIONREAD, struct.pack("i", 0))
        return bool(struct.unpack("i", answer)[0])

    def drop(self) -> None:
        """Forget what was typed and not read."""
        termios.tcflush(_IN, termios.TCIFLUSH)

    def say(self, lines: Iterable[Content]) -> None:
        """Write the lines. Raises: OSError where the terminal has gone."""
        self._write("".join([line.plain.rstrip() + "\n" for line in lines]))

    def ring(self, sequence: str) -> None:
        """Write what `bell.py` made."""
        self._write(sequence)

    def _write(self, text: str) -> None:
        rest = text.encode("utf-8", "replace")
        while rest:
            rest = rest[os.write(_OUT, rest) :]
