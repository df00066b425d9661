"""What a process that holds values does to itself: no core, no look from outside.

Linux only, by prctl(2). Another process of the same uid can then neither attach to it nor read
its memory, environment or descriptors through /proc; root still can.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from typing import Final

# Source: linux/prctl.h
_PR_SET_PDEATHSIG: Final = 1
_PR_GET_DUMPABLE: Final = 3
_PR_SET_DUMPABLE: Final = 4
# Two hundred commands with five each, their callers, and as much again to spare.
DESCRIPTORS_WANTED: Final = 8192


def _prctl(option: int, argument: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    result: int = libc.prctl(option, ctypes.c_ulong(argument), zero, zero, zero)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def forbid_dumps() -> None:
    """Make this process non-dumpable and its core size nil, for good.

    Raises: OSError where the kernel refuses.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)


def is_dumpable() -> bool:
    """Whether others of this uid may look into this process."""
    return _prctl(_PR_GET_DUMPABLE, 0) != 0


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def allow_many_descriptors() -> None:
    """Raise the soft limit: a command holds about five, and two hundred may run."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
