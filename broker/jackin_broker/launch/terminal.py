"""A terminal of the capsule's own, between the agent and the terminal that the launcher has.

What runs in a capsule never gets a descriptor of the launcher's terminal: with one it could read
the operator's keys, or type into the shell that is there afterwards (TIOCSTI). Bytes are relayed
instead. It refuses to know what runs. Invariant: `restore` gives the launcher's terminal the
settings that it had; it may be called at any time and again.
"""

from __future__ import annotations

import fcntl
import os
import pty
import termios
import tty
from contextlib import suppress
from typing import Final

_STANDARD_FDS: Final = (0, 1, 2)
_RELAY_BYTES: Final = 64 * 1024
# A paste that the agent does not read yet; beyond it the operator's terminal waits.
_TYPED_MAX_BYTES: Final = 64 * 1024
_END_OF_INPUT: Final = b"\x04"
_WINSIZE_BYTES: Final = 8  # four unsigned shorts: ioctl_tty(2)


class OwnTerminal:
    """One pseudo-terminal and its relay. `outer` is a descriptor of the launcher's terminal."""

    def __init__(self, uid: int) -> None:
        """Stand in for each standard descriptor that is a terminal; at least one is."""
        self._replaced = [fd for fd in _STANDARD_FDS if os.isatty(fd)]
        self._input: int | None = 0 if 0 in self._replaced else None
        self._outer = next((fd for fd in (1, 2, 0) if fd in self._replaced), 0)
        # With stdout elsewhere (a pager, a pipe) our terminal goes on editing lines itself.
        self._is_interactive = {0, 1} <= set(self._replaced)
        self._settings = termios.tcgetattr(self._outer)
        self._is_raw = False
        self._typed = bytearray()
        self.master, self._inner = pty.openpty()
        os.set_blocking(self.master, False)
        self._prepare_inner(uid)
        self.resize()

    def stream(self, fd: int) -> int:
        """What the child gets as its standard descriptor `fd`."""
        return self._inner if fd in self._replaced else fd

    @property
    def input_fd(self) -> int | None:
        """Where keys come from while there is room for them, or None."""
        return self._input if len(self._typed) < _TYPED_MAX_BYTES else None

    @property
    def has_typed(self) -> bool:
        """Whether keys wait to be written to the agent."""
        return bool(self._typed)

    def close_inner(self) -> None:
        """Let go of the child's end, so that its end is seen here."""
        os.close(self._inner)

    def enter_raw(self) -> None:
        """Pass every key on as it is, Ctrl-C too, where keys and screen are both the agent's."""
        if self._is_interactive:
            tty.setraw(0, termios.TCSANOW)
            self._is_raw = True

    def restore(self) -> None:
        """Give the launcher's terminal its settings back."""
        if self._is_raw:
            with suppress(termios.error):  # it may have hung up
                termios.tcsetattr(self._outer, termios.TCSANOW, self._settings)
            self._is_raw = False

    def resize(self) -> None:
        """Give the capsule's terminal the size of ours."""
        with suppress(OSError):
            size = fcntl.ioctl(self._outer, termios.TIOCGWINSZ, b"\0" * _WINSIZE_BYTES)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def take_keys(self) -> bool:
        """Read what was typed; False when our terminal hung up."""
        with suppress(OSError):
            keys = os.read(0, _RELAY_BYTES)
            if not keys and not self._is_raw:  # Ctrl-D, which a terminal that edits keeps
                self._input = None
                keys = _END_OF_INPUT
            self._typed += keys
            self.give_keys()
            return bool(keys)
        self._input = None
        return False

    def give_keys(self) -> None:
        """Write what was typed as far as the agent's terminal takes it."""
        with suppress(BlockingIOError, OSError):
            while self._typed:
                del self._typed[: os.write(self.master, self._typed)]

    def show(self) -> bool:
        """Relay what the agent wrote; False when nobody holds its terminal any more."""
        try:
            data = os.read(self.master, _RELAY_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # EIO: the last holder is gone
            return False
        while data:
            data = data[os.write(self._outer, data) :]
        return True

    def close(self) -> None:
        """Restore the launcher's terminal and let go of the other."""
        self.restore()
        os.close(self.master)

    def _prepare_inner(self, uid: int) -> None:
        settings = list(self._settings)
        if not self._is_interactive:  # ours stays as it is: it echoes and adds carriage returns
            settings[1] &= ~termios.OPOST
            settings[3] &= ~termios.ECHO
        termios.tcsetattr(self._inner, termios.TCSANOW, settings)
        if uid != os.geteuid():
            os.fchown(self._inner, uid, -1)  # so that the agent can open it by its name too
