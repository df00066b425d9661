"""The record: one line of JSON a transition, names and digests, never a value.

Each line carries the SHA-256 of the line before it, so damage shows (rewriting by the operator's
own uid does not: SECURITY.md says so). `record(…, flush=True)` returns only when the line is on
the disk; what cannot be written is `audit_failed`, and then nothing runs.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from .errors import ConfigError, DenialCode, Refusal
from .rate import TokenBucket

RECORD_VERSION: Final = 1
# What the first line names as the one before it.
CHAIN_START: Final = "0" * 64
# Long arguments are cut in the record; the digest beside them covers all of them.
ARGUMENT_MAX_CHARS: Final = 400
ARGUMENTS_MAX_COUNT: Final = 64
# As JSON, where one character may take twelve bytes: an agent chooses the arguments of every
# line, and neither a line nor the disk may be its to fill.
ARGV_MAX_BYTES: Final = 8 * 1024
# Longer than any line that the limits above let us write; a longer one is damage.
LINE_MAX_BYTES: Final = 256 * 1024
# A refusal that repeats within this time is counted, not written again.
REPEAT_WINDOW_S: Final = 60.0
# Refusals that nobody was asked about: so many lines at once and a second, for each capsule;
# an agent that varies its arguments cannot fill the disk (80 MB a day at the very most). What
# is left out is counted.
REFUSAL_BURST: Final = 60
REFUSALS_PER_S: Final = 0.1
# Distinct refusals that are remembered for counting; beyond it the oldest is forgotten.
REPEATS_MAX: Final = 256

_SEPARATOR: Final = ", "

Field = str | int | float | bool | None | list[str] | dict[str, str]


def argv_fields(argv: tuple[bytes, ...]) -> dict[str, Field]:
    """An argument vector for the record: clipped texts and the digest of all of it."""
    digest = hashlib.sha256(b"\0".join(argv)).hexdigest()
    shown: list[str] = []
    left = ARGV_MAX_BYTES
    for arg in argv[:ARGUMENTS_MAX_COUNT]:
        text = arg[: 4 * ARGUMENT_MAX_CHARS].decode("utf-8", "backslashreplace")
        text = text[:ARGUMENT_MAX_CHARS]
        left -= len(json.dumps(text)) + len(_SEPARATOR)
        if left < 0:
            break
        shown.append(text)
    return {"argv": shown, "argc": len(argv), "argv_sha256": digest}


class Audit:
    """The open record. One process writes it; a lock keeps a second broker out."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._lock = asyncio.Lock()
        self._fd = _open(path)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise ConfigError(f"audit: {path} is held by another broker") from error
        self._number, self._previous = _last_link(path)
        self._repeats: dict[tuple[str, ...], tuple[float, int]] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._left_out: dict[str, int] = {}

    async def record(self, event: str, *, flush: bool = False, **fields: Field) -> None:
        """Append one line; with `flush`, return only once it is on the disk.

        Raises: Refusal(AUDIT_FAILED).
        """
        await self._record(event, flush, fields)

    async def _record(self, event: str, flush: bool, fields: dict[str, Field]) -> None:
        async with self._lock:
            try:
                self._append(event, fields)
                if flush:
                    await asyncio.to_thread(os.fdatasync, self._fd)
            except OSError as error:
                raise Refusal(
                    DenialCode.AUDIT_FAILED,
                    f"the audit record cannot be written: {error.strerror}",
                    hint="the operator should look at: jackin-broker doctor",
                ) from error

    async def record_refusal(
        self, now: float, capsule: str, key: tuple[str, ...], **fields: Field
    ) -> None:
        """Append a refusal that no operator was asked about, or count it.

        The same `key` within REPEAT_WINDOW_S is counted, not repeated; a capsule beyond
        REFUSAL_BURST as well. The next line that is written carries the counts.
        """
        key = (capsule, *key)
        written_at, count = self._repeats.get(key, (now - 2 * REPEAT_WINDOW_S, 0))
        if now - written_at < REPEAT_WINDOW_S:
            self._repeats[key] = (written_at, count + 1)
            return
        bucket = self._buckets.setdefault(capsule, TokenBucket(REFUSAL_BURST, REFUSALS_PER_S))
        if not bucket.take(now):
            self._left_out[capsule] = self._left_out.get(capsule, 0) + 1
            return
        self._repeats.pop(key, None)
        while len(self._repeats) >= REPEATS_MAX:
            del self._repeats[next(iter(self._repeats))]
        self._repeats[key] = (now, 0)
        if count:
            fields["repeated"] = count
        if left_out := self._left_out.pop(capsule, 0):
            fields["left_out"] = left_out
        await self._record("refused", False, {"capsule": capsule, **fields})

    def close(self) -> None:
        """Release the file and its lock."""
        os.close(self._fd)

    def _append(self, event: str, fields: dict[str, Field]) -> None:
        line = {
            "v": RECORD_VERSION,
            "n": self._number + 1,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "prev": self._previous,
            "event": event,
            **fields,
        }
        raw = json.dumps(line, ensure_ascii=True).encode("ascii") + b"\n"
        _check_in_place(self.path, self._fd)
        _write(self._fd, raw)
        self._number += 1
        self._previous = hashlib.sha256(raw).hexdigest()


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


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise ConfigError(f"audit: cannot open {path}: {error.strerror}") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        os.close(fd)
        raise ConfigError(f"audit: {path} must be a file of yours that nobody else can open")
    return fd


def _last_link(path: Path) -> tuple[int, str]:
    """The number and digest that the next line continues from.

    A line that a crash cut short gets its newline here, so that it stands alone and shows.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return 0, CHAIN_START
        file.seek(max(0, size - LINE_MAX_BYTES))
        tail = file.read()
        if not tail.endswith(b"\n"):
            file.write(b"\n")
            tail += b"\n"
    last = tail[tail.rfind(b"\n", 0, -1) + 1 :]
    number = _parse(last).get("n")
    if not isinstance(number, int):
        number = sum(1 for _ in read(path))
    return number, hashlib.sha256(last).hexdigest()


@dataclass(frozen=True)
class Line:
    """One line of the record, as read."""

    number: int
    raw: bytes
    fields: dict[str, Field]


class Damage(ConfigError):
    """The chain breaks at `number`, the first bad line."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"line {number}: {message}")
        self.number: Final = number


def read(path: Path) -> Iterator[Line]:
    """The lines of a record, oldest first; a broken one has no fields.

    Raises: ConfigError when the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                yield Line(number, raw, _parse(raw))
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"audit: cannot read {path}: {error.strerror}") from error


def _parse(raw: bytes) -> dict[str, Field]:
    if len(raw) > LINE_MAX_BYTES:
        return {}
    try:
        fields: Any = json.loads(raw)
    except ValueError:
        return {}
    return cast("dict[str, Field]", fields) if isinstance(fields, dict) else {}


def verify(path: Path) -> int:
    """The number of lines of an unbroken chain.

    Raises: Damage at the first line that does not continue the one before it.
    """
    previous, count = CHAIN_START, 0
    for line in read(path):
        if not line.fields:
            raise Damage(line.number, "is not a record (cut short, or written by something else)")
        if line.fields.get("prev") != previous:
            raise Damage(line.number, "does not continue the line before it")
        if line.fields.get("n") != line.number:
            raise Damage(line.number, "is not where it was written")
        previous, count = hashlib.sha256(line.raw).hexdigest(), line.number
    return count
