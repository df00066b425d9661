"""Our end of a command's terminal: its size, its modes, who is in its foreground.

It refuses to know what is typed and shown. Invariants: whatever the descriptor turns out to be
(the leader sent it), no call raises and none blocks; an answer that cannot be had is the one that
lets nobody type a value: no echo is never guessed.
"""

from __future__ import annotations

import contextlib
import os
import termios
from typing import Final, NamedTuple

# What Ctrl-D sends where nobody set another key: VEOF of termios(3).
_END_OF_INPUT: Final = b"\x04"
_LOCAL_MODES: Final = 3  # the place of c_lflag in what tcgetattr returns
_CONTROL_KEYS: Final = 6  # and of c_cc
# What a descriptor says that is no terminal (any more), and Python of one that was closed.
_GONE: Final = (termios.error, OSError, ValueError)


class Modes(NamedTuple):
    """How the terminal takes what is typed."""

    is_canonical: bool
    echoes: bool


class Terminal:
    """Has a descriptor of its own of `master`, which stays the caller's."""

    def __init__(self, master: int) -> None:
        self._master = os.dup(master)

    def close(self) -> None:
        """Answer and change nothing from now on; again is harmless."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def resize(self, rows: int, cols: int) -> None:
        """The kernel tells the foreground with SIGWINCH, where this is a change."""
        with contextlib.suppress(*_GONE):
            termios.tcsetwinsize(self._master, (rows, cols))

    def modes(self) -> Modes:
        """As they are at this moment."""
        try:
            flags: int = termios.tcgetattr(self._master)[_LOCAL_MODES]
        except _GONE:
            return Modes(is_canonical=False, echoes=True)
        return Modes(bool(flags & termios.ICANON), bool(flags & termios.ECHO))

    def foreground_group(self) -> int:
        """The process group that reads what is typed, numbered as we see it; 0 for none."""
        try:
            return os.tcgetpgrp(self._master)
        except _GONE:
            return 0

    def end_of_input(self, last_byte: bytes) -> bytes:
        """What a person types for it: the key ends a line first that was not ended."""
        try:
            key = termios.tcgetattr(self._master)[_CONTROL_KEYS][termios.VEOF]
        except _GONE:
            key = _END_OF_INPUT
        if not isinstance(key, bytes) or key == b"\0":
            key = _END_OF_INPUT
        return key if last_byte == b"\n" else key * 2
