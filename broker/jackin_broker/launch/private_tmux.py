"""A tmux session of a launch's own: the agent above, the picker below, so that one terminal does.

It refuses to know capsules. Invariants: a server of its own at a socket in the operator's private
directory, gone with the agent; nothing that came from a capsule is an argument of tmux's.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..errors import JackinError

# The agent's part of the screen: a prompt of the picker needs about twelve lines of 30.
_PICKER_PERCENT: Final = "45%"
# `$0` is the file for the status, `$1` tmux's socket; the rest is the launch itself.
_INNER: Final = (
    'status=$0 socket=$1; shift; "$@"; echo $? >"$status"; tmux -S "$socket" kill-server'
)


def is_possible() -> bool:
    """Whether we are on a terminal outside tmux, and tmux is there."""
    on_terminal = os.isatty(0) and os.isatty(1)
    return on_terminal and "TMUX" not in os.environ and shutil.which("tmux") is not None


def run_in_tmux(private_dir: Path, launch: Sequence[str], picker: Sequence[str]) -> int:
    """The exit status of `launch`, which ran in a session with `picker` beside it.

    Raises: JackinError when tmux does not start.
    """
    mark = secrets.token_hex(4)
    socket, status = private_dir / f"tmux-{mark}", private_dir / f"status-{mark}"
    tmux = ["tmux", "-S", str(socket), "-f", os.devnull]
    try:
        _tmux(tmux, ["new-session", "-d", "-x", *_size(), *_inner(status, socket, launch)])
        _tmux(tmux, ["split-window", "-d", "-v", "-l", _PICKER_PERCENT, *picker])
        subprocess.run([*tmux, "attach-session"], check=False)
        return int(status.read_text()) if status.exists() else 1
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
        for path in (socket, status):
            path.unlink(missing_ok=True)


def own_program() -> list[str]:
    """The beginning of an argv that is this very command line."""
    return [sys.executable, "-m", "jackin_broker"]


def _inner(status: Path, socket: Path, launch: Sequence[str]) -> list[str]:
    return ["sh", "-c", _INNER, str(status), str(socket), *launch]


def _size() -> list[str]:
    columns, lines = os.get_terminal_size()
    return [str(columns), "-y", str(lines)]


def _tmux(tmux: Sequence[str], argv: Sequence[str]) -> None:
    done = subprocess.run([*tmux, *argv], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise JackinError(
            f"tmux did not start: {done.stderr.strip().splitlines()[-1:] or ['it said nothing']}",
            hint="launch with --no-tmux, and attach in another terminal: jackin-broker attach",
        )
