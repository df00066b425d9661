"""The lock of the one broker at a place.

It refuses to know what a broker does. Invariant: whoever holds the descriptor is the only one;
a crash lets go of it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .errors import JackinError
from .trust import ensure_private_dir


def take_lock(path: Path) -> int:
    """The lock of the one broker at this place; held as long as the descriptor is open."""
    ensure_private_dir(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise JackinError("a broker runs here already", hint="see: jackin-broker status") from error
    return fd
