"""Whose descendants orphans stay: the child-subreaper attribute.

Stdlib only, for the warden imports it. Source: PR_SET_CHILD_SUBREAPER(2const).
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36


def become_subreaper() -> None:
    """Orphans below this process become its children, whatever session they made.

    Raises: OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), zero, zero, zero) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
