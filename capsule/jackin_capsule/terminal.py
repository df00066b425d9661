"""The caller's terminal: its size, and raw mode while the command runs.

Loaded only for a command that gets a terminal. It refuses to know connections. Invariants: modes
are changed from the command's start to its end alone, so a waiting request still takes Ctrl-C; who
is in the background changes none; `leave` may be called at any time and again, and never blocks.
"""

import posix

from .wire import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    import termios
    from typing import Any
else:
    try:
        import termios
    except ImportError:  # an interpreter without it: no raw mode, and no terminal to speak of
        termios = None

# What a terminal of unknown size (a serial line, `docker run -t`) is taken for.
DEFAULT_ROWS, DEFAULT_COLS = 24, 80
# Places in what tcgetattr returns, termios(3).
_IN, _OUT, _LOCAL, _KEYS = 0, 1, 3, 6


class Terminal:
    """`rows` and `cols` are what the broker was told last."""

    def __init__(self) -> None:
        """Raises: Fault where none of the standard streams is a terminal."""
        found = [fd for fd in (0, 1, 2) if posix.isatty(fd)]
        if not found or termios is None:
            raise Fault(
                "-t asks for a terminal, but neither stdin, stdout nor stderr is one",
                "run it without -t, or from a terminal; under another program, `script -qc` "
                "makes one",
            )
        self._fd = found[0]
        self._is_input = found[0] == 0
        self._modes: list[Any] | None = None  # as they were, while they are ours
        self.rows, self.cols = self._size()

    def enter(self) -> None:
        """Every key goes to the command's terminal, which edits lines and sends signals itself."""
        if not self._is_input or self._modes is not None or not self._is_ours():
            return
        try:
            self._modes = termios.tcgetattr(0)
        except termios.error:
            return  # it hung up, and reading says so
        self._set(raw(self._modes))

    def enter_again(self) -> None:
        """After a stop that nobody could announce, others may have changed the modes."""
        if self._modes is not None and self._is_ours():
            self._set(raw(self._modes))

    def leave(self) -> None:
        """As it was before."""
        if self._modes is not None:
            if self._is_ours():
                self._set(self._modes)
            self._modes = None

    def has_new_size(self) -> bool:
        """Whether `rows` and `cols` are others than at the last call."""
        before = self.rows, self.cols
        self.rows, self.cols = self._size()
        return before != (self.rows, self.cols)

    def _size(self) -> "tuple[int, int]":
        try:
            cols, rows = posix.get_terminal_size(self._fd)
        except OSError:
            cols = rows = 0
        return rows or DEFAULT_ROWS, cols or DEFAULT_COLS

    def _is_ours(self) -> bool:
        """Whether changing modes is not stopped with SIGTTOU, as it is in the background."""
        try:
            return posix.tcgetpgrp(0) == posix.getpgrp()
        except OSError:  # not our controlling terminal: no job control on it
            return True

    def _set(self, modes: "list[Any]") -> None:
        try:
            termios.tcsetattr(0, termios.TCSANOW, modes)
        except termios.error:
            return  # it hung up: there is nothing to set


def raw(modes: "list[Any]") -> "list[Any]":
    """What cfmakeraw(3) makes of these, without flow control: Ctrl-S is a key like any other."""
    made, t = list(modes), termios
    made[_IN] &= ~(t.BRKINT | t.ISTRIP | t.INLCR | t.IGNCR | t.ICRNL | t.IXON | t.IXANY | t.IXOFF)
    made[_IN] |= t.IGNPAR
    made[_OUT] &= ~t.OPOST
    made[_LOCAL] &= ~(t.ISIG | t.ICANON | t.ECHO | t.ECHOE | t.ECHOK | t.ECHONL | t.IEXTEN)
    made[_KEYS] = list(modes[_KEYS])
    made[_KEYS][t.VMIN], made[_KEYS][t.VTIME] = 1, 0
    return made
