"""The broker's log: one file that is its owner's alone, turned over when it is full.

It refuses to know what is logged. Invariant: the newest file and those before it have mode 0600,
whatever the umask is, which belongs to the commands.
"""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from .trust import ensure_private_dir

# A month of a talkative broker fits; older text is of no use to anyone.
LOG_MAX_BYTES: Final = 2 * 1024 * 1024
LOG_BACKUPS: Final = 3


class PrivateLog(RotatingFileHandler):
    """A rotating file that nobody else can open."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_open_privately)


def open_log(path: Path, *, max_bytes: int = LOG_MAX_BYTES) -> logging.Handler:
    """Log to this file from now on; stderr belongs to the terminal."""
    ensure_private_dir(path.parent)
    handler = PrivateLog(path, maxBytes=max_bytes, backupCount=LOG_BACKUPS)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    return handler


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
