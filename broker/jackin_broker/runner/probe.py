"""Whether this machine can confine commands: one try of bubblewrap, remembered.

It refuses to know commands. The answer is for the life of the process, as it decides what the
operator was told at its start.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from typing import Final

from . import landlock

# bubblewrap takes 4 ms; a machine on which it takes seconds cannot confine anything usefully.
TRY_LIMIT_S: Final = 10.0
_SEARCH_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin"

# DESIGN §9 and the order of the attacks that it answered: the user namespace and the empty
# capability set keep even root from taking the mounts apart again.
NAMESPACE_OPTIONS: Final = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--cap-drop",
    "ALL",
    "--as-pid-1",
)
BASE_OPTIONS: Final = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")


@dataclass(frozen=True)
class Abilities:
    """What this machine can do. `bwrap` is empty where nothing can be confined: `why` says so."""

    bwrap: str
    why: str
    hides_abstract_sockets: bool


@functools.cache
def abilities() -> Abilities:
    """The answer of one try, made at the first call (5 ms, at most TRY_LIMIT_S)."""
    bwrap = shutil.which("bwrap", path=_SEARCH_PATH) or shutil.which("bwrap")
    if bwrap is None:
        return Abilities("", "bubblewrap is not installed", hides_abstract_sockets=False)
    why = _try(bwrap)
    if why:
        return Abilities("", f"bubblewrap does not work here: {why}", hides_abstract_sockets=False)
    # Landlock gives up set-uid, which an old bubblewrap lives by.
    is_setuid = bool(os.stat(bwrap).st_mode & stat.S_ISUID)
    return Abilities(bwrap, "", landlock.can_scope() and not is_setuid)


def is_available() -> bool:
    """Whether commands can be confined here."""
    return bool(abilities().bwrap)


def _try(bwrap: str) -> str:
    """Why a confined `true` does not run, or nothing."""
    true = shutil.which("true", path="/usr/bin:/bin:/run/current-system/sw/bin") or "true"
    argv = [bwrap, *NAMESPACE_OPTIONS, *BASE_OPTIONS, "--tmpfs", "/tmp", "--", true]  # noqa: S108 - inside
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_LIMIT_S, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    if done.returncode == 0:
        return ""
    said = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    return said[-1] if said else f"exit status {done.returncode}"
