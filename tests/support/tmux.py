"""A private tmux server: a real terminal emulator for screens, hostile text and popups.

Its socket lies in a directory of the test's own, so the developer's tmux is never met; no
configuration is read. The server is ended on the way out. Waits look at the screen again and
again, since tmux tells nobody what it has drawn. A program that ends at once may take its last
words and its status along (seen with tmux 3.3a): let it wait for a key at its end.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .real import START_LIMIT_S, require_program, short_directory, wait_until

_SESSION: Final = "test"
# Longer than a program rests between two parts of one drawing on a loaded machine.
SETTLED_S: Final = 0.1
# What never stands still (a clock, an elapsed time) is taken as it is after so many looks.
_SETTLE_LOOKS: Final = 10
# tmux's own words about a dead pane would push the first line off the screen.
_OPTIONS: Final = {"remain-on-exit": "on", "remain-on-exit-format": "", "status": "off"}


class Tmux:
    """One session with one pane. `env` is what a client of this server needs."""

    def __init__(self, program: str, folder: Path, env: dict[str, str]) -> None:
        self._program = program
        self._env = env
        self.socket: Final = folder / "tmux"

    def start(self, argv: Sequence[str], rows: int, cols: int, cwd: str | None) -> None:
        """Start the server with `argv` in its pane; the screen stays when `argv` ends."""
        settings = [
            word
            for name, value in _OPTIONS.items()
            for word in ("set-option", "-g", name, value, ";")
        ]
        where = ["-c", cwd] if cwd else []
        size = ["-x", str(cols), "-y", str(rows)]
        self.call(*settings, "new-session", "-d", "-s", _SESSION, *size, *where, "--", *argv)

    def call(self, *argv: str) -> str:
        """What a tmux command prints.

        Raises: AssertionError with tmux's own words.
        """
        done = subprocess.run(
            [self._program, "-S", str(self.socket), "-f", "/dev/null", *argv],
            env=self._env,
            capture_output=True,
            timeout=START_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode(errors="replace")

    def send_keys(self, *keys: str) -> None:
        """Press keys by tmux's names (`Enter`, `Escape`, `Space`, `C-c` …)."""
        self.call("send-keys", "-t", _SESSION, *keys)

    def type(self, text: str) -> None:
        """Send text as it is."""
        self.call("send-keys", "-t", _SESSION, "-l", "--", text)

    def capture(self, *, styled: bool = False) -> str:
        """The pane's screen; with its colours as escape sequences where `styled`."""
        return self.call("capture-pane", "-p", "-t", _SESSION, *(["-e"] if styled else []))

    def wait_for(self, pattern: str, *, limit_s: float = START_LIMIT_S) -> str:
        """The screen, once it matches the regular expression (`^` and `$`: lines).

        A program may be half way through its drawing then: what is returned has stood still
        for SETTLED_S, or is the last that matched, where the screen goes on to change.
        """
        seen = [""]

        def is_there() -> bool:
            seen[0] = self.capture()
            return re.search(pattern, seen[0], re.MULTILINE) is not None

        try:
            wait_until(is_there, f"the screen shows {pattern!r}", limit_s=limit_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{seen[0]}") from None
        for _ in range(_SETTLE_LOOKS):
            time.sleep(SETTLED_S)
            before, now = seen[0], self.capture()
            if now == before or re.search(pattern, now, re.MULTILINE) is None:
                break
            seen[0] = now
        return seen[0]

    def stop(self) -> None:
        """End this server, and with it what runs in it; again is harmless."""
        if self.socket.exists():
            self.call("kill-server")
            self.socket.unlink(missing_ok=True)


@contextmanager
def tmux(
    argv: Sequence[str],
    *,
    env: dict[str, str],
    rows: int = 24,
    cols: int = 80,
    cwd: str | None = None,
) -> Generator[Tmux]:
    """A program in a tmux pane, on a server of its own, ended on the way out."""
    program = require_program("tmux", package="tmux")
    with short_directory() as folder:
        server = Tmux(program, folder, {"TERM": "xterm-256color", "LANG": "C.UTF-8", **env})
        server.start(argv, rows, cols, cwd)
        try:
            yield server
        finally:
            server.stop()
