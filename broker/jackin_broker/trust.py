"""Whether a path can be trusted, and directories that can.

A path is trusted when nobody but root and the operator can change what it names: each component,
and each link on the way, is owned by one of them and writable by nobody else. Root's own sticky
directories (/tmp) may stand above ours: in them others cannot touch what is not theirs.
It refuses to know what the paths are for. Access lists beyond the mode are not read.
Invariant: what is made here has its mode before anybody else could have used another one.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from .errors import ConfigError

_ROOT: Final = 0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
PRIVATE_MODE: Final = 0o700
# Passing through, no listing.
TRAVERSABLE_MODE: Final = 0o711
# The kernel's own limit (MAXSYMLINKS in path_resolution(7)).
_LINKS_MAX: Final = 40


def check_trusted(path: Path) -> None:
    """Return when every component of an absolute, existing path is trusted.

    Raises: ConfigError that names the component, what is wrong and the command that mends it.
    """
    uid = os.geteuid()
    pending = _components(str(path))
    done = "/"
    links = 0
    _check_component(done, os.lstat(done), uid, is_last=not pending)
    while pending:
        part = pending.pop(0)
        if part == "..":  # `done` holds no link, so this is its real parent, already checked
            done = os.path.dirname(done)
            continue
        here = os.path.join(done, part)
        found, target = _look(here)
        if target is None:
            _check_component(here, found, uid, is_last=not pending)
            done = here
            continue
        links += 1
        if links > _LINKS_MAX:
            raise ConfigError(f"{path}: too many symbolic links")
        _check_owner(here, found, uid)
        done = "/" if os.path.isabs(target) else done
        pending = _components(target) + pending


def ensure_private_dir(path: Path) -> None:
    """Make the directory, and what is missing above it, the operator's alone.

    One that others may only pass through (0711, for a capsule's sake) stays as it is.
    Raises: ConfigError when the place is not trusted or cannot be made.
    """
    _ensure_dir(path, PRIVATE_MODE, kept=TRAVERSABLE_MODE)


def ensure_traversable_dir(path: Path) -> None:
    """Like `ensure_private_dir`, but another uid may pass through it, without listing.

    Raises: ConfigError when the place is not trusted or cannot be made.
    """
    _ensure_dir(path, TRAVERSABLE_MODE, kept=TRAVERSABLE_MODE)


def blocked_at(path: Path, uid: int) -> Path | None:
    """The first component of a directory's path that `uid` may not pass through, if any."""
    if uid == _ROOT:
        return None
    for here in [*reversed(path.parents), path]:
        found = os.stat(here)
        needed = stat.S_IXUSR if found.st_uid == uid else stat.S_IXOTH
        if not found.st_mode & needed:
            return here
    return None


def is_owned_directory(path: str, uid: int) -> bool:
    """Whether this is a directory of `uid` that nobody else can write."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & _OTHERS_WRITE


def _ensure_dir(path: Path, mode: int, *, kept: int) -> None:
    try:
        _make_missing(path, mode)
        check_trusted(path)
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise ConfigError(f"{path}: is not a directory", hint=f"move {path} away")
        if found.st_uid != os.geteuid():
            raise ConfigError(f"{path}: belongs to uid {found.st_uid}, not to you")
        if stat.S_IMODE(found.st_mode) not in (mode, kept):
            os.chmod(path, mode)
    except OSError as error:
        raise ConfigError(f"{path}: {_reason(error)}") from error


def _make_missing(path: Path, mode: int) -> None:
    """mkdir -p where each new directory begins private and never has a mode beyond `mode`."""
    if path.is_dir():
        return
    _make_missing(path.parent, mode)
    try:
        os.mkdir(path, PRIVATE_MODE)
    except FileExistsError:
        return  # made by another of our programs, or not a directory: the caller looks
    if mode != PRIVATE_MODE:
        os.chmod(path, mode)


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _look(path: str) -> tuple[os.stat_result, str | None]:
    """What is there, itself, and where it leads to if it is a link."""
    try:
        found = os.lstat(path)
        return found, os.readlink(path) if stat.S_ISLNK(found.st_mode) else None
    except OSError as error:
        raise ConfigError(f"{path}: {_reason(error)}") from error


def _check_component(path: str, found: os.stat_result, uid: int, *, is_last: bool) -> None:
    _check_owner(path, found, uid)
    if not found.st_mode & _OTHERS_WRITE:
        return
    is_roots_sticky = found.st_uid == _ROOT and found.st_mode & stat.S_ISVTX
    if is_roots_sticky and stat.S_ISDIR(found.st_mode) and not is_last:
        return
    raise ConfigError(
        f"{path}: can be written by others (mode {stat.S_IMODE(found.st_mode):04o})",
        hint=f"chmod go-w {path}",
    )


def _check_owner(path: str, found: os.stat_result, uid: int) -> None:
    if found.st_uid not in (_ROOT, uid):
        raise ConfigError(
            f"{path}: belongs to uid {found.st_uid}, who could change it",
            hint="use a path that only you and root own",
        )


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
