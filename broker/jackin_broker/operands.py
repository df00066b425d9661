"""File operands: arguments that name files which the agent can write (DESIGN §6).

A command that was approved for `psql -f report.sql` must not run another `report.sql`. So each
argument that may name a regular file which the agent can change is digested when asked, and
again before it runs. Read generously: the argument itself, what follows its first `=` and its
second, what follows a short option's letter, each also without a leading `@`; the parts of a list
(`a.yaml,b.yaml`, `src:dst`, `file:///a`) and the values in a text (`host=db passfile=/src/pass`).
A wrong guess costs a digest. What such files include is not covered.

Invariants: opening never blocks, never has a side effect (first by O_PATH, read only once it is
known to be a regular file), and never reads more than the limits; nothing here is run.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

# DESIGN §6: what a prompt can show, and 15 ms of SHA-256.
DIGESTED_MAX_COUNT: Final = 16
DIGESTED_MAX_BYTES: Final = 16 * 1024 * 1024
# Further files are compared by stat; ctime changes with every write and cannot be set back.
OPERANDS_MAX_COUNT: Final = 64
# Three system calls each; a `**` of a large project stays under 10 ms.
EXAMINED_MAX_ARGS: Final = 1024
# Each component of a path costs a system call: a quarter of a second at the very worst.
EXAMINED_MAX_BYTES: Final = 256 * 1024
_LINKS_MAX: Final = 40
# PATH_MAX: nothing longer can be opened.
_PATH_MAX_BYTES: Final = 4096
_CHUNK_BYTES: Final = 1024 * 1024
# An option's own and that of the field which it sets.
_EQUALS_MAX: Final = 2
# Parts of one argument that are looked at; more is no list of files that anybody reads.
PARTS_MAX: Final = 256
# A longer argument is a text; looking through four megabytes takes half a second.
PARTED_MAX_BYTES: Final = 64 * 1024
_BETWEEN: Final = re.compile(rb"[=,:;@]+")
_BLANK: Final = re.compile(rb"\s")
_VALUE: Final = re.compile(rb"(?:^|[\s,;])[\w.-]{1,64}=[\"']?([^\s,;\"']+)")
# `self` there is another process for the command than for us.
_PROC: Final = b"/proc"
# Its own streams, whose kind a request declares and a rule admits.
_STREAMS: Final = frozenset(
    {b"/dev/stdin", b"/dev/stdout", b"/dev/stderr", b"/dev/fd/0", b"/dev/fd/1", b"/dev/fd/2"}
)


class FileOperand(msgspec.Struct, frozen=True):
    """A file that an argument names and the agent can change.

    `path` is the text within the argument; `sha256` is empty beyond the limits, then stat
    alone is compared. `argument` is the index in the arguments, from zero.
    """

    path: bytes
    argument: int
    size_bytes: int
    sha256: str
    device: int
    inode: int
    mtime_ns: int
    ctime_ns: int


class Reach(msgspec.Struct, frozen=True):
    """What the arguments lead to beyond plain files.

    `is_writable`: the agent may change a place that one of them names, whatever is there now,
    or not all could be looked at. `moving` names a pipe, or a path by way of /proc: no digest
    fixes what the command reads there.
    """

    is_writable: bool = False
    moving: bytes = b""


class _Budget:
    def __init__(self) -> None:
        self.files = DIGESTED_MAX_COUNT
        self.size_bytes = DIGESTED_MAX_BYTES

    def takes(self, size: int) -> bool:
        """Whether a file of this size is still digested."""
        if self.files == 0 or size > self.size_bytes:
            return False
        self.files -= 1
        self.size_bytes -= size
        return True


def file_operands(
    args: Sequence[bytes], cwd_fd: int, writable_roots: Sequence[bytes]
) -> tuple[FileOperand, ...]:
    """The files that the arguments name and the agent can change, in order, each once.

    `args` without the command's name. `writable_roots`: the host directories of the capsule's
    writable mounts; for kind `none` that is `/`.
    """
    found: list[FileOperand] = []
    budget = _Budget()
    cwd = _path_of(cwd_fd)
    for argument, path in _candidates(args):
        operand = _operand(path, argument, cwd_fd, cwd, writable_roots, budget)
        if operand is not None:
            found.append(operand)
        if len(found) == OPERANDS_MAX_COUNT:
            break
    return tuple(found)


def reach_of(args: Sequence[bytes], cwd_fd: int, writable_roots: Sequence[bytes]) -> Reach:
    """Where the arguments lead. Wider than `file_operands`: a rule is bound by it."""
    cwd = _path_of(cwd_fd)
    is_writable, moving = _is_beyond_looking(args), b""
    for _, path in _candidates(args):
        if path in _STREAMS:
            continue
        place = os.path.join(cwd, path)
        is_own = _passes_through(place, (_PROC,))
        is_changeable = is_own or _passes_through(place, writable_roots)
        is_writable = is_writable or is_changeable
        if not moving and (is_own or (is_changeable and _is_pipe(path, cwd_fd))):
            moving = path
    return Reach(is_writable, moving)


def is_unchanged(operand: FileOperand, cwd_fd: int) -> bool:
    """Whether the path still names the same bytes."""
    fd = _open_regular(operand.path, cwd_fd)
    if fd is None:
        return False
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if found.st_size != operand.size_bytes:
            return False
        if operand.sha256:
            return _digest(file.fileno(), operand.size_bytes) == operand.sha256
        now = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
        return now == (operand.device, operand.inode, operand.mtime_ns, operand.ctime_ns)


def changed_operand(
    before: Sequence[FileOperand],
    args: Sequence[bytes],
    cwd_fd: int,
    writable_roots: Sequence[bytes],
) -> bytes | None:
    """The first path that no longer names what it did, or names a file only now; else None."""
    known = {operand.path for operand in before}
    for operand in before:
        if not is_unchanged(operand, cwd_fd):
            return operand.path
    for operand in file_operands(args, cwd_fd, writable_roots):
        if operand.path not in known:
            return operand.path
    return None


def has_more(args: Sequence[bytes], operands: Sequence[FileOperand]) -> bool:
    """Whether there may be files among the arguments beyond those that were looked at."""
    return len(operands) >= OPERANDS_MAX_COUNT or _is_beyond_looking(args)


def _is_beyond_looking(args: Sequence[bytes]) -> bool:
    if len(args) > EXAMINED_MAX_ARGS or any(len(arg) > PARTED_MAX_BYTES for arg in args):
        return True
    left = EXAMINED_MAX_BYTES
    for arg in args:
        left -= sum(len(path) for path in _paths_in(arg))
        if left < 0 or len(_parts_of(arg)) > PARTS_MAX:
            return True
    return False


def _candidates(args: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """The index of an argument and a text in it that may be a path, each text once."""
    seen: set[bytes] = set()
    left = EXAMINED_MAX_BYTES
    for argument, arg in enumerate(args[:EXAMINED_MAX_ARGS]):
        for path in _paths_in(arg):
            left -= len(path)
            if left < 0:
                return
            if path not in seen:
                seen.add(path)
                yield argument, path


def _path_of(fd: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % fd)


def _is_pipe(path: bytes, cwd_fd: int) -> bool:
    """Whether a pipe or a socket is there: whoever writes to it decides what is read."""
    try:
        mode = os.stat(path, dir_fd=cwd_fd).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _paths_in(arg: bytes) -> Iterator[bytes]:
    """The texts within an argument that may be paths."""
    texts = [arg]
    # `--field=body=@notes` names a file after its second one.
    for _ in range(_EQUALS_MAX):
        if b"=" not in texts[-1]:
            break
        texts.append(texts[-1].split(b"=", 1)[1])
    if arg.startswith(b"-") and not arg.startswith(b"--"):
        texts.append(arg[2:])
    texts += _parts_of(arg)
    for text in texts:
        for path in (text, text.removeprefix(b"@")):
            if path and len(path) < _PATH_MAX_BYTES:
                yield path


def _parts_of(arg: bytes) -> list[bytes]:
    """The parts of an argument that is a list, or the values in a text.

    Shape: one more than PARTS_MAX where there are more; none of an argument that is too long.
    """
    if len(arg) > PARTED_MAX_BYTES:
        return []
    if _BLANK.search(arg):
        return [found[1] for found in islice(_VALUE.finditer(arg), PARTS_MAX + 1)]
    parts = _BETWEEN.split(arg, PARTS_MAX)
    return parts if len(parts) > 1 else []


def _operand(
    path: bytes,
    argument: int,
    cwd_fd: int,
    cwd: bytes,
    writable_roots: Sequence[bytes],
    budget: _Budget,
) -> FileOperand | None:
    fd = _open_regular(path, cwd_fd)
    if fd is None:
        return None
    with open(fd, "rb"):
        found = os.fstat(fd)
        if not _passes_through(os.path.join(cwd, path), writable_roots):
            return None
        digest = _digest(fd, found.st_size) if budget.takes(found.st_size) else ""
        return FileOperand(
            path=path,
            argument=argument,
            size_bytes=found.st_size,
            sha256=digest,
            device=found.st_dev,
            inode=found.st_ino,
            mtime_ns=found.st_mtime_ns,
            ctime_ns=found.st_ctime_ns,
        )


def _open_regular(path: bytes, cwd_fd: int) -> int | None:
    """A descriptor that reads a regular file, None for everything else."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=cwd_fd)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return None
        # Through the descriptor: what is read is what was looked at.
        return os.open(b"/proc/self/fd/%d" % place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    finally:
        os.close(place)


def _digest(fd: int, size: int) -> str:
    """The SHA-256 of a file of this size; a file that grows is cut, and so differs."""
    digest = hashlib.sha256()
    left = size + 1
    while left > 0 and (chunk := os.read(fd, min(left, _CHUNK_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def _passes_through(path: bytes, roots: Sequence[bytes]) -> bool:
    """Whether the way to a file, link by link, touches a directory that the agent can write."""
    pending = [part for part in path.split(b"/") if part not in (b"", b".")]
    done = b"/"
    links = 0
    while True:
        if any(_is_within(done, root) for root in roots):
            return True
        if not pending:
            return False
        part = pending.pop(0)
        if part == b"..":
            done = os.path.dirname(done)
            continue
        here = os.path.join(done, part)
        try:
            target = os.readlink(here)
        except OSError:
            done = here
            continue
        links += 1
        if links > _LINKS_MAX:
            return True
        done = b"/" if target.startswith(b"/") else done
        pending = [p for p in target.split(b"/") if p not in (b"", b".")] + pending


def _is_within(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")
