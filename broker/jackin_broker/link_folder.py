"""Links to the shim in a directory of the operator's, one for each listed binary.

For a directory that a capsule shares and has on its PATH, such as a mounted ~/.local/bin: adding
or removing a binary takes effect without a rebuild. What was made here is in a manifest of the
state directory, out of the agent's reach, whatever the agent does to the directory itself.
It refuses to know capsules. Invariants: nothing is touched that the manifest does not name, or that
is no longer the link that it names; nothing is ever overwritten; a link is whole or not there; the
directory is opened once, and no name in it is followed; a second run changes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from .atomic import replace_file
from .errors import ConfigError
from .trust import ensure_private_dir

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Names one directory among the manifests; collisions of 64 bits do not happen to one operator.
_DIGITS: Final = 16


class Manifest(msgspec.Struct, frozen=True):
    """The links that were made in a directory: each name, and what it leads to."""

    folder: str
    links: dict[str, str] = {}


class Synced(msgspec.Struct, frozen=True):
    """What one run did. `in_the_way` are names that somebody else has; they were left alone."""

    folder: str
    made: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    in_the_way: tuple[str, ...] = ()
    is_skipped: bool = False


def sync_links(folder: Path, names: Iterable[str], target: str, manifests: Path) -> Synced:
    """Bring the links in a directory up to date; another run that is at it is left to it.

    Raises: ConfigError for a directory that is not there, or cannot be written.
    """
    place = _place(folder)
    ensure_private_dir(manifests)
    record = manifests / f"{_digest(place)}.json"
    try:
        with _free_lock(record.with_suffix(".lock")) as is_ours:
            if not is_ours:
                return Synced(place, is_skipped=True)
            fd = os.open(place, _OPEN_FOLDER)
            try:
                if os.readlink(f"/proc/self/fd/{fd}") != place:  # a link was put on the way there
                    raise OSError(errno.EXDEV, "it was moved at this moment")
                return _sync(fd, place, dict.fromkeys(names, target), record)
            finally:
                os.close(fd)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{folder}: cannot make links there: {reason}",
            hint="name a directory of yours that exists",
        ) from error


def all_manifests(manifests: Path) -> list[Manifest]:
    """What was made, directory by directory; one that cannot be read is left out."""
    found: list[Manifest] = []
    for path in sorted(manifests.glob("*.json")):
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            found.append(msgspec.json.decode(path.read_bytes(), type=Manifest))
    return found


def _sync(fd: int, place: str, wanted: Mapping[str, str], record: Path) -> Synced:
    known = _read(record, place)
    ours = {name: target for name, target in known.items() if _link(fd, name) == target}
    removed = sorted(name for name, target in ours.items() if wanted.get(name) != target)
    kept = {name: target for name, target in ours.items() if name not in removed}
    missing = {name: target for name, target in wanted.items() if name not in kept}
    # On the disk before they are made: a run that is cut off leaves no link that nobody knows.
    _write(record, Manifest(place, {**ours, **missing}), known)
    for name in removed:
        os.unlink(name, dir_fd=fd)
    made: list[str] = []
    for name, target in missing.items():
        with suppress(FileExistsError):
            os.symlink(target, name, dir_fd=fd)
            made.append(name)
    links = {**kept, **{name: missing[name] for name in made}}
    _write(record, Manifest(place, links), {**ours, **missing})
    replaced = {name for name in removed if name in made}
    return Synced(
        place,
        made=tuple(sorted(made)),
        removed=tuple(name for name in removed if name not in replaced),
        in_the_way=tuple(sorted(set(missing) - set(made))),
    )


def _read(record: Path, place: str) -> dict[str, str]:
    try:
        found = msgspec.json.decode(record.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(
            f"{record}: is not a manifest of links",
            hint="remove it; links that were made before are then yours to remove",
        ) from None
    return {name: target for name, target in found.links.items() if found.folder == place}


def _write(record: Path, manifest: Manifest, former: Mapping[str, str]) -> None:
    if dict(former) != manifest.links or not record.exists():
        replace_file(record, msgspec.json.encode(manifest))


def _link(fd: int, name: str) -> str | None:
    """Where a link of this name leads, None for anything else."""
    if "/" in name or name in ("", ".", ".."):
        return None
    try:
        return os.readlink(name, dir_fd=fd)
    except OSError:
        return None


def _place(folder: Path) -> str:
    """The directory's real path.

    Raises: ConfigError where it is none.
    """
    place = os.path.realpath(folder.expanduser())
    if not os.path.isdir(place):
        raise ConfigError(f"{folder}: is not a directory", hint=f"make it with: mkdir -p {folder}")
    return place


def _digest(place: str) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:_DIGITS]


@contextmanager
def _free_lock(path: Path) -> Generator[bool]:
    """Hold the lock if it is free; whether it was."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)
