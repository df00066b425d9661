"""Run a program as another uid: the agent's, who is neither root nor the operator.

Needs root. The program gets no groups and no capabilities, and what it is given as a directory
must be passable for strangers (`open_tmp`).
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from .real import START_LIMIT_S, require_program, require_root

# Outside Debian's ranges for system users (< 1000) and, on a test machine, for people (1000 …).
AGENT_UID: Final = 1500
OTHER_UID: Final = 1501


def unused_uid(first: int = AGENT_UID) -> int:
    """The first uid from `first` on that belongs to nobody here."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    uid = first
    while uid in taken:
        uid += 1
    return uid


def as_uid(argv: Sequence[str], uid: int = AGENT_UID) -> list[str]:
    """The argv that runs `argv` as `uid`, without groups or capabilities."""
    require_root()
    setpriv = require_program("setpriv", package="util-linux")
    identity = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [setpriv, *identity, "--inh-caps=-all", "--bounding-set=-all", "--", *argv]


def run_as(
    argv: Sequence[str], uid: int = AGENT_UID, *, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The ended program that ran as `uid`, its output held."""
    return subprocess.run(as_uid(argv, uid), env=env, capture_output=True, timeout=START_LIMIT_S)


def holds_as(uid: int, claim: Callable[[], bool]) -> bool:
    """Whether a claim holds in a process of `uid`, forked from this one, without capabilities."""
    require_root()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            status = 0 if claim() else 1
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0
