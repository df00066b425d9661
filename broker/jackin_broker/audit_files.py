"""The files of the record and the chain through them: what is read, followed and verified.

The newest lines are in `audit.jsonl`; files that were closed keep the number of their first line
in their name and stay until they are too old. Each line carries the SHA-256 of the one before it,
over the files too. It refuses to know what a line says, but for one event: `record_pruned` vouches
for the lines that were deleted for their age, so that the rest verifies. It writes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from .errors import ConfigError

# What the first line names as the one before it.
CHAIN_START: Final = "0" * 64
# Longer than any line that the record writes (audit.py); a longer one is damage.
LINE_MAX_BYTES: Final = 256 * 1024
# The event that says which lines were deleted for their age.
PRUNED: Final = "record_pruned"
# Enough digits for a thousand lines a second over thirty years, so that names sort by number.
_NUMBER_DIGITS: Final = 12

Field = str | int | float | bool | None | list[str] | dict[str, str]


@dataclass(frozen=True)
class Line:
    """One line of the record, as read. `number` is its place in the file called `file`."""

    number: int
    raw: bytes
    fields: dict[str, Field]
    file: str

    @property
    def digest(self) -> str:
        """What the next line carries."""
        return hashlib.sha256(self.raw).hexdigest()


class Damage(ConfigError):
    """The chain breaks at line `number` of `file`, the first bad one."""

    def __init__(self, line: Line, message: str) -> None:
        super().__init__(f"line {line.number} of {line.file}: {message}")
        self.number: Final = line.number
        self.file: Final = line.file


def closed_path(path: Path, first: int) -> Path:
    """Where the file whose first line is number `first` is kept once it is closed."""
    return path.with_name(f"{path.stem}.{first:0{_NUMBER_DIGITS}d}{path.suffix}")


def closed_files(path: Path) -> list[Path]:
    """The closed files beside `path`, oldest first."""
    name = re.compile(rf"{re.escape(path.stem)}\.[0-9]{{{_NUMBER_DIGITS}}}{re.escape(path.suffix)}")
    try:
        names = os.listdir(path.parent)
    except FileNotFoundError:
        return []
    return [path.with_name(one) for one in sorted(names) if name.fullmatch(one)]


def read(path: Path) -> Iterator[Line]:
    """The lines of the record whose newest file is `path`, oldest first.

    A broken one has no fields.
    Raises: ConfigError when a file cannot be read.
    """
    # Opened before the others are listed: a file that is closed meanwhile is read once.
    newest = _opened(path)
    try:
        for closed in closed_files(path):
            file = _opened(closed)
            if file is not None:
                with file:
                    if newest is None or not _is_same(file, newest):
                        yield from lines_in(file, closed.name)
        if newest is not None:
            yield from lines_in(newest, path.name)
    except OSError as error:
        raise ConfigError(f"audit: cannot read {path.parent}: {error.strerror}") from error
    finally:
        if newest is not None:
            newest.close()


def lines_in(file: BinaryIO, name: str) -> Iterator[Line]:
    """The lines of one open file."""
    for number, raw in enumerate(file, start=1):
        yield Line(number, raw, fields_of(raw), name)


def fields_of(raw: bytes) -> dict[str, Field]:
    """What a line says, nothing for one that is damaged."""
    if len(raw) > LINE_MAX_BYTES:
        return {}
    try:
        fields: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Field]", fields) if isinstance(fields, dict) else {}


def last_line(path: Path) -> Line | None:
    """The last line of one file; its `number` is 0, nothing before it was counted.

    Raises: OSError.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LINE_MAX_BYTES))
        tail = file.read()
    if not tail:
        return None
    last = tail[tail.rfind(b"\n", 0, -1) + 1 :]
    return Line(0, last, fields_of(last), path.name)


def verify(path: Path) -> int:
    """The number of lines of an unbroken chain.

    Raises: Damage at the first line that does not continue the one before it.
    """
    first: Line | None = None
    before: Line | None = None
    vouched: set[tuple[Field, Field]] = set()
    count = 0
    for line in read(path):
        number = line.fields.get("n")
        if not line.fields:
            raise Damage(line, "is not a record (cut short, or written by something else)")
        if before is not None and line.fields.get("prev") != before.digest:
            raise Damage(line, "does not continue the line before it")
        if not isinstance(number, int) or (before and number != _next(before)):
            raise Damage(line, "is not where it was written")
        if line.fields.get("event") == PRUNED:
            vouched.add((_plain(line, "through"), _plain(line, "digest")))
        first, before, count = first or line, line, count + 1
    if first is not None and not _begins_well(first, vouched):
        raise Damage(first, "does not continue the line before it, which is missing")
    return count


def _begins_well(first: Line, vouched: set[tuple[Field, Field]]) -> bool:
    """Whether nothing is missing before this line, but what was deleted for its age."""
    number, previous = first.fields.get("n"), _plain(first, "prev")
    if number == 1:
        return previous == CHAIN_START
    return isinstance(number, int) and (number - 1, previous) in vouched


def _plain(line: Line, key: str) -> Field:
    """A field that can be compared, None for what cannot."""
    value = line.fields.get(key)
    return value if isinstance(value, str | int) else None


def _next(line: Line) -> int:
    number = line.fields["n"]
    assert isinstance(number, int)
    return number + 1


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"audit: cannot read {path}: {error.strerror}") from error


def _is_same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))


class Follower:
    """What is added to the record from now on, also when its file is closed for a new one."""

    def __init__(self, path: Path) -> None:
        """Raises: OSError."""
        self._path = path
        self._file: BinaryIO = path.open("rb")
        self._number = sum(1 for _ in self._file)
        self._rest = b""

    def close(self) -> None:
        self._file.close()

    def new(self) -> Iterator[Line]:
        """The lines that were written since the last call.

        Raises: OSError.
        """
        yield from self._drain()
        newest = _opened(self._path)
        if newest is None or _is_same(newest, self._file):
            if newest is not None:
                newest.close()
            return
        yield from self._drain()  # what came between the last look and the closing
        self._file.close()
        self._file, self._number, self._rest = newest, 0, b""
        yield from self._drain()

    def _drain(self) -> Iterator[Line]:
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        for text in whole:
            self._number += 1
            raw = text + b"\n"
            yield Line(self._number, raw, fields_of(raw), self._path.name)
