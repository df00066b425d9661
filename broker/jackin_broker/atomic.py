"""Files that are replaced whole or not at all, and locks between processes.

It refuses to know what is in them. A reader sees the old content or the new one, never a mixture
and never a part, also after a power cut; writers that hold the same lock never lose each other's
work.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

# Values and the operator's own settings: nobody else reads them.
PRIVATE_FILE_MODE = 0o600
PRIVATE_FOLDER_MODE = 0o700


def replace_file(path: Path, content: bytes, *, mode: int = PRIVATE_FILE_MODE) -> None:
    """Put `content` at `path`; what was there stays until the new file is on the disk.

    A link is followed: the file that it leads to is replaced, the link stays.
    Raises: OSError; then nothing was changed.
    """
    target = Path(os.path.realpath(path))
    # In the same directory, or the rename would not be atomic; the name is never one in use.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        _write_new(draft, content, mode)
        os.replace(draft, target)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise
    _flush_folder(target.parent)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with open(fd, "wb") as draft:
        os.fchmod(fd, mode)  # whatever the umask is
        draft.write(content)
        draft.flush()
        os.fsync(fd)


def _flush_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def held_lock(path: Path) -> Generator[None, None, None]:
    """Hold the lock file at `path`, alone among all processes; waits until it is free.

    The file stays: one that is removed could be locked twice. Its folder is made if absent.
    """
    path.parent.mkdir(mode=PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
