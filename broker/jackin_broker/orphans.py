"""Orphans of what the broker started, once they have ended: reaped here, for nobody else does it.

The broker is a subreaper, so that nobody can leave its tree; what a source's command or the
notifier leaves in the background becomes the broker's child. It refuses to know who they are.
Invariant: a child of our own that somebody waits for is left to them, for it is never unreaped at
two looks; whoever comes late all the same finds it gone, and every one of them takes that.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

# What ends takes a number and a few hundred bytes until then; our own are reaped in milliseconds.
LOOK_INTERVAL_S: Final = 10.0
_ENDED: Final = b"Z"


class _Child(NamedTuple):
    """One process, and never another of the same number."""

    pid: int
    started: int


async def reap_orphans() -> None:
    """Reap what stays unreaped, until cancelled."""
    before: set[_Child] = set()
    while True:
        await asyncio.sleep(LOOK_INTERVAL_S)
        ended = _ended_children()
        _reap(ended & before)
        before = ended


def _reap(children: set[_Child]) -> None:
    for child in children:
        with suppress(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)


def _ended_children() -> set[_Child]:
    """Children of any of our threads that have ended and were not reaped; none where unknown."""
    found: set[_Child] = set()
    for thread in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread ended, or this kernel does not list them
            for pid in thread.read_text().split():
                words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                if words[0] == _ENDED:
                    found.add(_Child(int(pid), int(words[19])))
    return found
