"""From a path of the capsule to an open host directory below one of its mounts.

The longest mount that holds the path is walked from `/` and then below the mount, one component
at a time, each opened relative to the one before with O_NOFOLLOW. A link that is met below the
mount is read and walked the same way, so it leads where the agent sees it lead, or nowhere:
`..` never climbs above the mount, and an absolute target is a path of the capsule, mapped anew.
It refuses to know what is to happen there.

Invariants: the kernel never follows a link for us, so nothing that an agent renames or links
while we walk leads out of its mounts; descriptors are close-on-exec and none is leaked.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from .config.model import Mount

# Search permission is enough to stand in a directory, so none is asked for reading.
OPEN_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_STEP: Final = OPEN_DIRECTORY | os.O_NOFOLLOW
# The kernel's own limit (MAXSYMLINKS in path_resolution(7)).
LINKS_MAX: Final = 40
# PATH_MAX: the kernel takes no longer one either.
PATH_MAX_BYTES: Final = 4096
# Each level is a descriptor while the walk lasts, and an agent can make thousands of levels.
DEPTH_MAX: Final = 128


class Unmapped(Exception):
    """The path is under no mount."""


class Unreachable(Exception):
    """The path is under a mount, but is not a directory that can be reached there. Says why."""


class _AbsoluteLink(Exception):
    """A link that names a path of the capsule: the mapping begins anew."""

    def __init__(self, target: bytes, links: int) -> None:
        self.target: Final = target
        self.links: Final = links


class Place(msgspec.Struct, frozen=True):
    """An open directory: `below` are the components, free of links, from the mount's root.

    `root` is that root's device and inode.
    """

    fd: int
    mount: Mount
    root: tuple[int, int]
    below: tuple[bytes, ...]

    @property
    def host_path(self) -> bytes:
        return b"/".join((os.fsencode(self.mount.host).rstrip(b"/"), *self.below)) or b"/"


def walk(path: bytes, mounts: Sequence[Mount]) -> Place:
    """The open host directory of a capsule path. The caller closes its descriptor.

    Raises: Unmapped, Unreachable.
    """
    links = 0
    while True:
        mount, relative = _longest_mount(path, mounts)
        try:
            fd, root, below = _descend(mount, relative, links)
        except _AbsoluteLink as link:
            path, links = link.target, link.links
            continue
        return Place(fd, mount, root, below)


def why(error: OSError) -> str:
    """What kept a directory from being opened, after its name."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, NotADirectoryError):
        return "is not a directory"
    if isinstance(error, PermissionError):
        return "cannot be entered by the broker"
    return f"cannot be opened ({error.strerror or 'unknown error'})".lower()


def _longest_mount(path: bytes, mounts: Sequence[Mount]) -> tuple[Mount, list[bytes]]:
    """The mount that holds a capsule path, and the components below it.

    Raises: Unmapped.
    """
    if not path.startswith(b"/"):
        raise Unmapped
    if len(path) > PATH_MAX_BYTES:
        raise Unreachable("is too long")
    wanted = _normal(path)
    best: tuple[Mount, list[bytes]] | None = None
    for mount in mounts:
        root = _normal(os.fsencode(mount.capsule))
        below = wanted[len(root) :]
        if wanted[: len(root)] == root and (best is None or len(below) < len(best[1])):
            best = mount, below
    if best is None:
        raise Unmapped
    return best


def _normal(path: bytes) -> list[bytes]:
    """The components of an absolute path, `.` and `..` taken out as text."""
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            parts.append(part)
    return parts


def _descend(
    mount: Mount, relative: list[bytes], links: int
) -> tuple[int, tuple[int, int], tuple[bytes, ...]]:
    """The directory at `relative` below a mount, that mount's root, the components between.

    Raises: Unreachable, _AbsoluteLink.
    """
    held = [_open_root(mount)]
    root = os.fstat(held[0])
    names: list[bytes] = []
    pending = deque(relative)
    try:
        while pending:
            name = pending.popleft()
            if name in (b"", b"."):
                continue
            if name == b"..":
                if not names:
                    raise Unreachable("leads out of its mount through a link")
                names.pop()
                os.close(held.pop())
                continue
            target = _step(held, names, name)
            if target is None:
                continue
            links += 1
            if links > LINKS_MAX:
                raise Unreachable("goes through too many links")
            if target.startswith(b"/"):
                raise _AbsoluteLink(b"/".join((target, *pending)), links)
            pending.extendleft(reversed(target.split(b"/")))
        return held.pop(), (root.st_dev, root.st_ino), tuple(names)
    finally:
        for fd in held:
            os.close(fd)


def _open_root(mount: Mount) -> int:
    """The mount's host directory, walked from `/`: the agent may write what is above it.

    Raises: Unreachable.
    """
    fd = os.open("/", OPEN_DIRECTORY)
    for name in _normal(os.fsencode(mount.host)):
        try:
            below = os.open(name, _STEP, dir_fd=fd)
        except OSError as error:
            raise Unreachable(f"cannot be reached: {mount.host} {why(error)}") from error
        finally:
            os.close(fd)
        fd = below
    return fd


def _step(held: list[int], names: list[bytes], name: bytes) -> bytes | None:
    """Go one component down, or return where the link of that name leads.

    Raises: Unreachable.
    """
    try:
        fd = os.open(name, _STEP, dir_fd=held[-1])
    except OSError as error:
        try:
            return os.readlink(name, dir_fd=held[-1])
        except OSError:
            raise Unreachable(why(error)) from error
    held.append(fd)
    names.append(name)
    if len(names) > DEPTH_MAX:
        raise Unreachable("is too deep")
    return None
