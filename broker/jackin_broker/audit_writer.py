"""The writing end of the record: the chain, the file that it is in, closing and deleting files.

It refuses to know what the lines are about. Invariants: a line is written whole or not at all; a
file is closed and another begun without a line between them that does not continue the other; a
closed file is deleted only when the newest line in it is older than the days that are kept, and
only after a line that vouches for it is on the disk; a clock that is wrong for an hour deletes
nothing. What goes wrong with closing and deleting is logged and tried again: it never keeps a line
from being written.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from .audit_files import (
    CHAIN_START,
    PRUNED,
    Field,
    Line,
    closed_files,
    closed_path,
    last_line,
    lines_in,
)
from .errors import ConfigError

_log = logging.getLogger(__name__)

RECORD_VERSION: Final = 1
# Some ten thousand lines: a file that an editor opens and that verifies in a moment.
FILE_MAX_BYTES: Final = 8 * 1024 * 1024
# Files are deleted whole, so what is kept at most is this much longer than what is asked for.
FILE_MAX_AGE: Final = timedelta(days=7)
# A quarter of a year: long enough to look something up after it went wrong.
KEEP_DAYS: Final = 90
# How often it is looked for files that are too old.
PRUNE_INTERVAL: Final = timedelta(hours=6)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class RecordWriter:
    """The open record. A lock on its newest file keeps a second writer out."""

    def __init__(
        self,
        path: Path,
        *,
        keep_days: int = KEEP_DAYS,
        file_max_bytes: int = FILE_MAX_BYTES,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """`keep_days` 0: for ever. Raises: ConfigError."""
        self.path: Final = path
        self.keep_days = keep_days
        self._file_max_bytes: Final = file_max_bytes
        self._now: Final = now
        self.fd = _open_locked(path)
        try:
            self._number, self._previous, last = _last_link(path)
            self._last_at = now() if last is None else _written_at(last, path)
            self._first, self._begun = self._beginning()
        except OSError as error:
            os.close(self.fd)
            raise ConfigError(f"audit: cannot read {path}: {error.strerror}") from error
        self._pruned_at: datetime | None = None

    def append(self, event: str, fields: dict[str, Field]) -> None:
        """Write one line.

        Raises: OSError; nothing of the line is then in the file.
        """
        self._keep_up()
        self._write_line(event, fields)

    def sync(self) -> None:
        """Return once what was written is on the disk. Raises: OSError."""
        os.fdatasync(self.fd)

    def close(self) -> None:
        """Release the file and its lock."""
        os.close(self.fd)

    def _write_line(self, event: str, fields: dict[str, Field]) -> None:
        at = self._now()
        line = {
            "v": RECORD_VERSION,
            "n": self._number + 1,
            "at": at.isoformat(timespec="milliseconds"),
            "prev": self._previous,
            "event": event,
            **fields,
        }
        raw = json.dumps(line, ensure_ascii=True).encode("ascii") + b"\n"
        _check_in_place(self.path, self.fd)
        _write(self.fd, raw)
        self._number += 1
        self._last_at = at
        self._previous = hashlib.sha256(raw).hexdigest()

    # --- closing and deleting -----------------------------------------------------------

    def _keep_up(self) -> None:
        """Close a file that is full or old, delete closed ones that are too old."""
        now = self._now()
        try:
            size = os.fstat(self.fd).st_size
            if size >= self._file_max_bytes or (size and now - self._begun >= FILE_MAX_AGE):
                self._begin_new_file(now)
            # Also where the clock was set back since: else nothing would be until it is that late.
            if self._pruned_at is None or abs(now - self._pruned_at) >= PRUNE_INTERVAL:
                self._pruned_at = now
                self._prune(now)
        except (OSError, ConfigError) as error:
            _log.warning("the record's files could not be kept in order: %s", error)

    def _begin_new_file(self, now: datetime) -> None:
        _check_in_place(self.path, self.fd)
        self.sync()
        closed = closed_path(self.path, self._first)
        if closed.exists():
            raise FileExistsError(errno.EEXIST, f"{closed} is there already")
        self.path.rename(closed)
        try:
            fresh = _open_locked(self.path)
        except ConfigError:
            closed.rename(self.path)
            raise
        os.close(self.fd)
        self.fd, self._first, self._begun = fresh, self._number + 1, now
        _sync_folder(self.path.parent)

    def _prune(self, now: datetime) -> None:
        if not self.keep_days:
            return
        keep = timedelta(days=self.keep_days)
        if now - self._last_at > keep:
            return  # rather a clock that was set wrong than a holiday: the next look will tell
        for closed, last, ended in _ends(closed_files(self.path), min(self._begun, now), now, keep):
            if now - ended < keep:
                return
            through = last.fields.get("n")
            if not isinstance(through, int):
                _log.warning("%s ends in a damaged line and is not deleted", closed)
                return
            self._write_line(
                PRUNED, {"through": through, "digest": last.digest, "file": closed.name}
            )
            self.sync()
            closed.unlink()

    def _beginning(self) -> tuple[int, datetime]:
        """The number of the newest file's first line, and when that was written."""
        with self.path.open("rb") as file:
            lines = lines_in(file, self.path.name)
            first = next(lines, None)
            if first is None:
                return self._number + 1, self._now()
            number = first.fields.get("n")
            if not isinstance(number, int):  # damaged: as many lines as there are, back from here
                number = self._number - sum(1 for _ in lines)
        return max(1, number), _written_at(first, self.path)


def _ends(
    closed: list[Path], follows: datetime, now: datetime, keep: timedelta
) -> list[tuple[Path, Line, datetime]]:
    """Each file's last line and when it was written, as far as clocks can be believed.

    `follows` is when the file after them was begun. What is dated later than now, or longer before
    the line that follows it than lines are kept at all, had a clock that was wrong; then it counts
    as written just before that line. After a holiday as long as that, all is kept once more.
    """
    found: list[tuple[Path, Line, datetime]] = []
    for path in reversed(closed):
        last, first = last_line(path), _first_line(path)
        if last is None or first is None:
            continue
        said = _written_at(last, path)
        if said <= now and follows - said <= keep:
            found.insert(0, (path, last, said))
            follows = min(_written_at(first, path), follows)
        else:
            found.insert(0, (path, last, follows))
    return found


def _first_line(path: Path) -> Line | None:
    with path.open("rb") as file:
        return next(lines_in(file, path.name), None)


def _written_at(line: Line, path: Path) -> datetime:
    """When a line was written; where it does not say so, when its file last was."""
    try:
        at = datetime.fromisoformat(str(line.fields.get("at")))
    except ValueError:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _check_in_place(path: Path, fd: int) -> None:
    """A record that was moved away or deleted is a record that nobody will read."""
    if not os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd)):
        raise OSError(errno.ESTALE, "the file was replaced or removed while the broker ran")


def _write(fd: int, raw: bytes) -> None:
    """Append in one call; what fits only in part is taken back, so that the chain holds."""
    before = os.fstat(fd).st_size
    if os.write(fd, raw) != len(raw):
        os.ftruncate(fd, before)
        raise OSError(errno.ENOSPC, "no space left on the device")


def _open_locked(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise ConfigError(f"audit: cannot open {path}: {error.strerror}") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        os.close(fd)
        raise ConfigError(f"audit: {path} must be a file of yours that nobody else can open")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise ConfigError(f"audit: {path} is held by another broker") from error
    return fd


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _last_link(path: Path) -> tuple[int, str, Line | None]:
    """The number and digest that the next line continues from, and the line that has them.

    A line that a crash cut short gets its newline here, so that it stands alone and shows.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
    newest = path if size else next(iter(reversed(closed_files(path))), None)
    last = last_line(newest) if newest is not None else None
    if newest is None or last is None:
        return 0, CHAIN_START, None
    number = last.fields.get("n")
    return (number if isinstance(number, int) else _counted(newest)), last.digest, last


def _counted(path: Path) -> int:
    """The number of a file's last line that does not say it: from the last one that does."""
    number = 0
    with path.open("rb") as file:
        for line in lines_in(file, path.name):
            said = line.fields.get("n")
            number = said if isinstance(said, int) else number + 1
    return number
