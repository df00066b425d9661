"""Paths as a configuration writes them: absolute, or under `~/`.

Links are resolved here, once, when the operator's file is read: whoever walks such a path
later follows none. It refuses to know whether the places exist.
"""

from __future__ import annotations

import os


def expand(path: str, home: str) -> str | None:
    """The absolute, normal form of a path, or None when it is neither absolute nor `~`."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    if not path.startswith("/"):
        return None
    normal = os.path.normpath(path)
    return "/" + normal.lstrip("/")  # POSIX lets normpath keep two leading slashes


def expand_resolved(path: str, home: str) -> str | None:
    """Like `expand`, with every link on the way resolved as it leads now."""
    expanded = expand(path, home)
    return None if expanded is None else os.path.realpath(expanded)


def is_within(path: str, root: str) -> bool:
    """Whether a normal path is `root` or below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def overlap(one: str, other: str) -> bool:
    """Whether one of two normal paths is, or holds, the other."""
    return is_within(one, other) or is_within(other, one)
