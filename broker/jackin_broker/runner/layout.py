"""What a confined command sees of the file system: an ordered list of mounts.

It builds bubblewrap's arguments and answers whether a path is visible under them. It refuses to
know configuration. Invariants: later mounts cover earlier ones, here as in the kernel; every path
in it is absolute and without links, so that no argument is resolved differently inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import Enum

# Names below /run that a command needs and that hold no socket of a session.
_RUN_NEEDED = (
    "/run/systemd/resolve",  # resolv.conf points there
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/postgresql",  # its local socket, authenticated by the server
    "/run/current-system",  # NixOS: all programs
)
EMPTIED = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - the real ones are what gets hidden


class _Kind(Enum):
    EMPTY = "empty"
    READ_ONLY = "read-only"
    WRITABLE = "writable"
    MASK = "mask"


class Layout:
    """Starts as the host's file system, read-only, without what EMPTIED names."""

    def __init__(self) -> None:
        self._mounts: list[tuple[_Kind, str]] = []
        for path in EMPTIED:
            self.empty(path)
        for path in _RUN_NEEDED:
            if os.path.exists(path):
                self._mounts.append((_Kind.READ_ONLY, path))

    def empty(self, path: str) -> None:
        """An empty directory in memory instead of what is there."""
        path = os.path.realpath(path)
        if path != "/" and os.path.isdir(path):
            self._mounts.append((_Kind.EMPTY, path))

    def show(self, path: str, *, writable: bool) -> None:
        """The host's file or directory, at the same place."""
        path = os.path.realpath(path)
        if path != "/" and os.path.exists(path):
            self._mounts.append((_Kind.WRITABLE if writable else _Kind.READ_ONLY, path))

    def show_as_named(self, path: str, *, writable: bool) -> None:
        """The same for a directory that the agent may have replaced by a link since.

        Where that leads is shown nowhere else, so whoever enters it sees what it is.
        """
        if path != "/":
            self._mounts.append((_Kind.WRITABLE if writable else _Kind.READ_ONLY, path))

    def hide(self, path: str) -> None:
        """Nothing at this place, if anything can be seen there so far."""
        path = os.path.realpath(path)
        if not self.is_visible(path):
            return
        if os.path.isdir(path):
            self.empty(path)
        elif os.path.lexists(path):
            self._mounts.append((_Kind.MASK, path))

    def is_visible(self, path: str) -> bool:
        """Whether the host's own file is at this path. Shape: without links."""
        for kind, place in reversed(self._mounts):
            if is_within(path, place):
                return kind in {_Kind.READ_ONLY, _Kind.WRITABLE}
        return True

    def options(self) -> list[str]:
        """Bubblewrap's arguments, to follow those that bind the root."""
        words: list[str] = []
        for kind, path in self._mounts:
            match kind:
                case _Kind.EMPTY:
                    words += ["--tmpfs", path]
                case _Kind.READ_ONLY:
                    words += ["--ro-bind", path, path]
                case _Kind.WRITABLE:
                    words += ["--bind", path, path]
                case _Kind.MASK:
                    words += ["--ro-bind", os.devnull, path]
        return words


def is_within(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or below it. Shape: both without links."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def contains_any(directory: str, paths: Iterable[str]) -> bool:
    """Whether one of `paths` is `directory` or below it."""
    return any(is_within(path, directory) for path in paths)
