"""What would run: the pinned binary behind a listed name (DESIGN §6).

A name without a slash is found on the PATH that the broker started with, in directories that
only root and the operator can write. What is executed is the path that was found, for programs
that behave by their name; what is pinned is the file that it leads to, and the interpreter of a
script. A later look compares what stat says and reads the bytes only where it differs.
It refuses to know rules, requests and arguments (`operands.py`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from .errors import ConfigError
from .operands import FileOperand, changed_operand, file_operands, is_unchanged
from .trust import check_trusted

__all__ = [
    "BinaryState",
    "FileOperand",
    "PinnedBinary",
    "PinnedFile",
    "changed_operand",
    "digest_of",
    "file_operands",
    "find_binary",
    "is_unchanged",
    "pin_again",
    "state_of",
]

# Larger programs exist (a static bundle of 300 MB); reading one takes half a second, once.
_DIGEST_MAX_BYTES: Final = 512 * 1024 * 1024
# BINPRM_BUF_SIZE of Linux ≥ 5.1: what the kernel reads of a `#!` line.
_SHEBANG_MAX_BYTES: Final = 256
_CHUNK_BYTES: Final = 1024 * 1024
_ENV_PROGRAM: Final = "env"


class BinaryState(Enum):
    """What a pinned binary is now."""

    SAME = "same"
    CHANGED = "changed"
    MISSING = "missing"


class PinnedFile(msgspec.Struct, frozen=True):
    """A file as it was: what stat said and the digest of its bytes (empty: too large)."""

    path: str
    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    uid: int
    sha256: str


class PinnedBinary(msgspec.Struct, frozen=True):
    """A listed binary. `path` is what is executed, `file` what it leads to.

    `interpreters` are what a script's first line names, and what `env` there would find.
    """

    name: str
    path: str
    file: PinnedFile
    search_path: str
    interpreters: tuple[PinnedFile, ...] = ()

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories whose writers could change what runs: no capsule may mount them."""
        places = [os.path.dirname(self.path)]
        places += [os.path.dirname(pinned.path) for pinned in (self.file, *self.interpreters)]
        return tuple(dict.fromkeys(places))


def find_binary(name: str, search_path: str) -> PinnedBinary:
    """The binary of this name on this PATH, pinned.

    A directory that others can write is passed over: it could answer for any name.
    Raises: ConfigError that names the binary.
    """
    if not name or "/" in name or "\0" in name:
        raise ConfigError(f"host_binaries: {name!r} is not a plain name")
    passed_over = ""
    for directory in search_path.split(os.pathsep):
        if not directory.startswith("/"):
            continue  # an empty or relative entry means wherever the broker happens to be
        path = os.path.join(directory, name)
        if not _is_executable(path):
            continue
        try:
            check_trusted(Path(path))
        except ConfigError as error:
            passed_over = passed_over or f", {error}"
            continue
        return _pin(name, path, search_path)
    raise ConfigError(
        f"host_binaries: {name!r} is not on the broker's PATH{passed_over}",
        hint=f"install {name}, start the broker with a PATH that has it, or take it off the list",
    )


def pin_again(pinned: PinnedBinary) -> PinnedBinary:
    """The same binary as it is now: what a request is asked about, compared before it runs.

    Raises: ConfigError when it is missing or can no longer be trusted.
    """
    if state_of(pinned) is BinaryState.SAME:
        return pinned
    if not _is_executable(pinned.path):
        raise ConfigError(f"host_binaries: {pinned.name!r} is no longer at {pinned.path}")
    check_trusted(Path(pinned.path))
    return _pin(pinned.name, pinned.path, pinned.search_path)


def digest_of(pinned: PinnedBinary) -> str:
    """The digest that an approval stores: of the program's bytes, and of a script's interpreters.

    Empty for a program that is too large to be read.
    """
    digests = [file.sha256 for file in (pinned.file, *pinned.interpreters)]
    if not all(digests):
        return ""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{one}\n" for one in digests).encode()).hexdigest()


def state_of(pinned: PinnedBinary) -> BinaryState:
    """Whether what would run is still what was pinned.

    The same bytes at the same place are the same binary, also when it was installed again.
    """
    if not _is_executable(pinned.path):
        return BinaryState.MISSING
    try:
        check_trusted(Path(pinned.path))
        same = _is_same(pinned.file, os.path.realpath(pinned.path))
        same = same and all(_is_same(script, script.path) for script in pinned.interpreters)
    except FileNotFoundError:
        return BinaryState.MISSING
    except (OSError, ConfigError):
        return BinaryState.CHANGED
    return BinaryState.SAME if same else BinaryState.CHANGED


def _pin(name: str, path: str, search_path: str) -> PinnedBinary:
    try:
        file = _pin_file(os.path.realpath(path))
        interpreters = _interpreters(name, file.path, search_path)
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise ConfigError(f"host_binaries: {name!r} at {path}: {reason}") from error
    return PinnedBinary(name, path, file, search_path, interpreters)


def _pin_file(path: str) -> PinnedFile:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        digest = hashlib.sha256()
        if found.st_size <= _DIGEST_MAX_BYTES:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return PinnedFile(
        path=path,
        device=found.st_dev,
        inode=found.st_ino,
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        mode=found.st_mode,
        uid=found.st_uid,
        sha256=digest.hexdigest() if found.st_size <= _DIGEST_MAX_BYTES else "",
    )


def _is_same(pinned: PinnedFile, path: str) -> bool:
    """Whether the file at a path is the pinned one, by stat, then by its bytes.

    Raises: OSError.
    """
    found = os.stat(path)
    stats = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    pins = (pinned.device, pinned.inode, pinned.size_bytes, pinned.mtime_ns, pinned.ctime_ns)
    if (found.st_mode, found.st_uid) != (pinned.mode, pinned.uid):
        return False
    if stats == pins:
        return True
    if found.st_size != pinned.size_bytes or not pinned.sha256:
        return False
    return _pin_file(os.path.realpath(path)).sha256 == pinned.sha256


def _is_executable(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and os.access(path, os.X_OK)


def _interpreters(name: str, path: str, search_path: str) -> tuple[PinnedFile, ...]:
    """What runs a script: the program of its `#!` line, and what `env` there would start.

    Raises: OSError, ConfigError when the program is missing or others can change it.
    """
    with open(path, "rb") as file:
        line = file.read(_SHEBANG_MAX_BYTES)
    if not line.startswith(b"#!"):
        return ()
    words = os.fsdecode(line[2:].split(b"\n", 1)[0]).split()
    if not words or not words[0].startswith("/"):
        return ()
    if not _is_executable(words[0]):
        raise ConfigError(
            f"host_binaries: {name!r} is a script, and its interpreter {words[0]} is missing",
            hint="install the interpreter, or mend the script's first line",
        )
    check_trusted(Path(words[0]))
    program = _pin_file(os.path.realpath(words[0]))
    if os.path.basename(words[0]) != _ENV_PROGRAM:
        return (program,)
    started = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not started or "/" in started[0]:
        return (program,)
    return (program, find_binary(started[0], search_path).file)
