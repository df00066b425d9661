"""Landlock's scope: a process that sees only abstract sockets of its own making.

Abstract sockets have no file that could be hidden, and an unshared mount namespace does not
reach them. Runs in the broker (what does this kernel do?) and in the warden's forks (do it).
Stdlib only. Source: landlock(7), linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

# The same numbers on every architecture that has them.
_SYS_CREATE_RULESET: Final = 444
_SYS_RESTRICT_SELF: Final = 446
_CREATE_RULESET_VERSION: Final = 1
_SCOPE_ABSTRACT_UNIX_SOCKET: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38

# The first ABI that knows scopes (Linux 6.12).
SCOPE_ABI: Final = 6


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def abi() -> int:
    """The kernel's Landlock ABI, 0 where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    version: int = libc.syscall(
        ctypes.c_long(_SYS_CREATE_RULESET), None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION
    )
    return max(0, version)


def can_scope() -> bool:
    """Whether abstract sockets can be hidden here."""
    return abi() >= SCOPE_ABI


def hide_abstract_sockets() -> None:
    """From now on, this process and its children reach no abstract socket of others.

    It gives up privileges gained by exec, set-uid programs included.
    Raises: OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero))
    rules = _Ruleset(0, 0, _SCOPE_ABSTRACT_UNIX_SOCKET)
    ruleset = _check(
        libc.syscall(
            ctypes.c_long(_SYS_CREATE_RULESET),
            ctypes.byref(rules),
            ctypes.c_size_t(ctypes.sizeof(rules)),
            0,
        )
    )
    try:
        _check(libc.syscall(ctypes.c_long(_SYS_RESTRICT_SELF), ruleset, 0))
    finally:
        os.close(ruleset)


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
