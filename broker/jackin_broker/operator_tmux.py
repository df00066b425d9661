"""The operator's tmux: is anybody in front of it, and a popup over what they look at.

It refuses to know requests. Invariants: every argument is a constant, a path of the operator's or
tmux's own name for a client; nothing that came from a capsule is ever in one (formats and titles
execute what stands in `#(…)`); a socket that somebody else could have put there is not spoken to;
tmux itself gets a bare environment; no look at it takes longer than LOOK_LIMIT_S.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# tmux answers in milliseconds; one that hangs is nobody whom a popup could reach.
LOOK_LIMIT_S: Final = 2.0
# The picker's 60×20 and the popup's border: in less it would show that it is too small.
CLIENT_MIN_COLS: Final = 62
CLIENT_MIN_ROWS: Final = 22
# A popup that covers more of a large screen is no better to read.
POPUP_MAX_COLS: Final = 114
POPUP_MAX_ROWS: Final = 42
# What the picker's `jackin-broker credential add` needs to find the same places as the broker.
_PASSED: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")
_CLIENT_FORMAT: Final = (
    "#{client_activity} #{client_control_mode} #{client_readonly}"
    " #{client_width} #{client_height} #{client_name}"
)
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class TmuxClient:
    """A terminal that shows a session. `name` is tmux's own, its device."""

    active_at: int
    cols: int
    rows: int
    name: str


class OperatorTmux:
    """The server at one socket; it may come and go."""

    def __init__(self, program: str, socket: Path, environ: Mapping[str, str]) -> None:
        self.socket: Final = socket
        self._command: Final = (program, "-S", str(socket))
        self._env: Final = {
            "PATH": environ.get("PATH", os.defpath),
            "LANG": environ.get("LANG", "C.UTF-8"),
            "TERM": environ.get("TERM", "") or "dumb",
        }
        self._passed: Final = [
            word
            for name in _PASSED
            if name in environ
            for word in ("-e", f"{name}={environ[name]}")
        ]

    async def client(self) -> TmuxClient | None:
        """The client that was used last and can show a popup, None where there is none."""
        if not is_own_socket(self.socket):
            return None
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                listed = await self._ask("list-clients", "-F", _CLIENT_FORMAT)
        except (OSError, TimeoutError):
            return None
        clients = [found for line in listed.splitlines() if (found := _client_in(line))]
        return max(clients, key=lambda client: client.active_at, default=None)

    async def show_popup(self, client: TmuxClient, operator_socket: Path) -> int:
        """Show the picker over the client until it ends; tmux's exit status.

        A status of 0 at once is a client that shows another popup already.
        Raises: OSError.
        """
        cols, rows = min(client.cols, POPUP_MAX_COLS), min(client.rows, POPUP_MAX_ROWS)
        # -P: a module in the current directory is not ours; -d: nor is that directory.
        picker = (sys.executable, "-P", "-m", "jackin_picker", "--popup")
        process = await self._start(
            *("display-popup", "-E", "-c", client.name, "-w", str(cols), "-h", str(rows)),
            *("-d", "/", *self._passed, "--", *picker, "--socket", str(operator_socket)),
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()  # tmux's messenger alone: the picker ends with its broker
                await process.wait()

    async def _ask(self, *words: str) -> str:
        """What a command prints; nothing where it fails."""
        process = await self._start(*words, stdout=asyncio.subprocess.PIPE)
        try:
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return out.decode("utf-8", "replace") if process.returncode == 0 else ""

    async def _start(
        self, *words: str, stdout: int = asyncio.subprocess.DEVNULL
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._env,
            cwd="/",
            start_new_session=True,
        )


def find_tmux(environ: Mapping[str, str], socket: str) -> OperatorTmux | None:
    """The server at `socket`, else the one that the broker was started in, else the usual one.

    None where tmux is not installed.
    """
    program = shutil.which("tmux", path=environ.get("PATH"))
    if program is None:
        return None
    return OperatorTmux(program, Path(socket or _usual_socket(environ)), environ)


def _usual_socket(environ: Mapping[str, str]) -> str:
    """`$TMUX` is SOCKET,PID,SESSION. Source: tmux(1)."""
    inside = environ.get("TMUX", "").rsplit(",", 2)[0]
    if os.path.isabs(inside):
        return inside
    folder = environ.get("TMUX_TMPDIR", "")
    base = folder if os.path.isabs(folder) else "/tmp"  # noqa: S108 - tmux's own place, is_own_socket looks at it
    return f"{base}/tmux-{os.geteuid()}/default"


def is_own_socket(path: Path) -> bool:
    """Whether it is a socket of ours, in a directory where nobody else could have put it."""
    try:
        found, folder = os.lstat(path), os.stat(path.parent)
    except OSError:
        return False
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        return False
    is_sticky = folder.st_uid == 0 and bool(folder.st_mode & stat.S_ISVTX)
    is_closed = folder.st_uid in (0, os.geteuid()) and not folder.st_mode & _OTHERS_WRITE
    return is_sticky or is_closed


def _client_in(line: str) -> TmuxClient | None:
    """The client that a line of the list is about, None for one that cannot show a popup."""
    try:
        active_at, is_control, is_read_only, cols, rows, name = line.split(" ", 5)
        client = TmuxClient(int(active_at), int(cols), int(rows), name)
    except ValueError:
        return None
    if is_control != "0" or is_read_only != "0" or not name:
        return None
    fits = client.cols >= CLIENT_MIN_COLS and client.rows >= CLIENT_MIN_ROWS
    return client if fits else None
