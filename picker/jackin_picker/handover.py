"""Giving the terminal to the command line for a while: where a value has to be typed.

It refuses to know what is typed: the program reads it, this process never does. Invariants: the
terminal's settings are afterwards what they were; Ctrl-C ends the program and not the picker; a
signal that ends the picker ends the program first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
from collections.abc import Sequence
from types import FrameType
from typing import Final

_TERMINAL: Final = 0


class Handover:
    """Runs `jackin-broker` on the terminal that a screen has just left."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None

    def run(self, words: Sequence[str]) -> int:
        """The exit status of `jackin-broker WORDS`, once its last words have been read."""
        # -P: a module in the current directory is not ours.
        argv = [sys.executable, "-P", "-m", "jackin_broker", *words]
        before = termios.tcgetattr(_TERMINAL)
        # Not SIG_IGN: the program would inherit that.
        interrupt = signal.signal(signal.SIGINT, _ignored)
        try:
            _say("")
            self._running = subprocess.Popen(argv)
            status = self._running.wait()
            if status >= 0 or -status == signal.SIGINT:
                _say("")
                _say("Enter goes back to the picker.")
                _read_line()
        finally:
            self._running = None
            signal.signal(signal.SIGINT, interrupt)
            termios.tcsetattr(_TERMINAL, termios.TCSADRAIN, before)
        return status

    def end(self) -> None:
        """End the program, if one has the terminal."""
        if self._running is not None:
            self._running.terminate()


def _ignored(_number: int, _frame: FrameType | None) -> None:
    """The program that has the terminal gets it too, and it is meant for that one."""


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def _read_line() -> None:
    while (read := os.read(_TERMINAL, 1)) and read != b"\n":
        pass
