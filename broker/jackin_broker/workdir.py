"""The working directory: where a command of a capsule runs, open from asking to spawning.

A path of the capsule is mapped by `mountwalk.py`; what is under no mount is refused, or replaced
by the configured fallback in plain sight; with kind `none` paths are the host's own (DESIGN §9).
The path is never resolved a second time: who spawns stands in the held directory. It refuses to
know what runs there.

Invariants: what is returned is, or is below, the host directory of a mount, or the fallback, or
(kind `none`) no place of the broker's own; a refusal says what to do.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol

from .config.model import CapsuleKind, Mount, UnmappedCwd
from .config.places import is_within, overlap
from .errors import DenialCode, Refusal
from .mountwalk import OPEN_DIRECTORY, Unmapped, Unreachable, walk, why

__all__ = ["Mount", "WorkDir", "open_workdir"]

# A message shows where the agent stands, not a novel.
_SHOWN_MAX_CHARS: Final = 200


class MappedCapsule(Protocol):
    """What is read of a capsule's configuration."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> CapsuleKind: ...
    @property
    def mounts(self) -> tuple[Mount, ...]: ...
    @property
    def unmapped_cwd(self) -> UnmappedCwd: ...
    @property
    def fallback_cwd(self) -> str: ...


class WorkDir:
    """An open directory of the host, held until `close`.

    `host_path` is its path when it was opened, free of links; `below` the components that lead
    to it from the mount's host directory; `identity` is the device and inode that another walk
    must meet, `root` those that it must begin with. `mount` is None for the fallback.
    """

    def __init__(
        self,
        fd: int,
        *,
        host_path: bytes,
        capsule_path: bytes,
        mount: Mount | None,
        root: tuple[int, int] | None = None,
        below: tuple[bytes, ...] = (),
        is_agent_writable: bool,
    ) -> None:
        found = os.fstat(fd)
        self.fd: Final = fd
        self.host_path: Final = host_path
        self.capsule_path: Final = capsule_path
        self.mount: Final = mount
        self.below: Final = below
        self.is_agent_writable: Final = is_agent_writable
        self.identity: Final = (found.st_dev, found.st_ino)
        self.root: Final = root or self.identity
        self._is_open = True

    @property
    def is_fallback(self) -> bool:
        """Whether this is not where the agent is, but what stands in for it."""
        return self.mount is None

    def close(self) -> None:
        """Let go of the directory; a second time is nothing."""
        if self._is_open:
            self._is_open = False
            os.close(self.fd)

    def __enter__(self) -> WorkDir:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<workdir {self.host_path!r}>"


def open_workdir(cwd: bytes, capsule: MappedCapsule, *, hidden: Sequence[str] = ()) -> WorkDir:
    """The open directory in which a command of this capsule runs.

    `hidden` are host paths that commands must not see (the trust roots): with kind `none`, a
    directory that holds one is only readable, one inside is refused.
    Raises: Refusal(WORKDIR_REJECTED), with what to do.
    """
    if capsule.kind is CapsuleKind.NONE:
        return _open_unmapped(cwd, capsule, hidden)
    try:
        return _open_mapped(cwd, capsule)
    except Unmapped:
        if capsule.unmapped_cwd is UnmappedCwd.FALLBACK:
            return _open_fallback(cwd, capsule)
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"the working directory {_shown(cwd)} is under no mount of capsule {capsule.name!r}",
            hint=_mounts_hint(capsule),
        ) from None
    except Unreachable as error:
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"the working directory {_shown(cwd)} {error}",
            hint=_mounts_hint(capsule),
        ) from error.__cause__


def _open_mapped(cwd: bytes, capsule: MappedCapsule) -> WorkDir:
    """Raises: Unmapped, Unreachable."""
    place = walk(cwd, capsule.mounts)
    return WorkDir(
        place.fd,
        host_path=place.host_path,
        capsule_path=cwd,
        mount=place.mount,
        root=place.root,
        below=place.below,
        is_agent_writable=_is_writable(place.host_path, capsule.mounts),
    )


def _is_writable(host: bytes, mounts: Sequence[Mount]) -> bool:
    """Whether the agent can write there, or below, through any of its mounts."""
    path = os.fsdecode(host)
    return any(not mount.read_only and overlap(path, mount.host) for mount in mounts)


def _open_fallback(cwd: bytes, capsule: MappedCapsule) -> WorkDir:
    directory = capsule.fallback_cwd or os.getcwd()
    try:
        # Its links were resolved when it was configured: one that is there now is the agent's.
        place = walk(b"/", (Mount("/", directory),))
    except Unreachable as error:
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"the fallback directory {error}",
            hint=f"the operator can correct fallback_cwd of [capsules.{capsule.name}]",
        ) from error.__cause__
    return WorkDir(
        place.fd,
        host_path=place.host_path,
        capsule_path=cwd,
        mount=None,
        is_agent_writable=_is_writable(place.host_path, capsule.mounts),
    )


def _open_unmapped(cwd: bytes, capsule: MappedCapsule, hidden: Sequence[str]) -> WorkDir:
    """Kind `none`: the path is the host's own, and the agent can write what we can."""
    if not cwd.startswith(b"/"):
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"the working directory {_shown(cwd)} is not an absolute path",
            hint="run it from a directory that exists",
        )
    fd, host = _open_plain(cwd, f"the working directory {_shown(cwd)}")
    path = os.fsdecode(host)
    for secret in hidden:
        if is_within(path, os.path.realpath(secret)):
            os.close(fd)
            raise Refusal(
                DenialCode.WORKDIR_REJECTED,
                f"the working directory {_shown(cwd)} belongs to the broker",
                hint="run it from a directory of your project",
            )
    holds_hidden = any(is_within(os.path.realpath(place), path) for place in hidden)
    read_only = holds_hidden or any(is_within(home, path) for home in _homes())
    return WorkDir(
        fd,
        host_path=host,
        capsule_path=cwd,
        mount=Mount(path, path, read_only),
        is_agent_writable=True,
    )


def _open_plain(path: bytes, words: str) -> tuple[int, bytes]:
    """An open directory by its path, links followed, and the path that it really has.

    Raises: Refusal.
    """
    try:
        fd = os.open(path, OPEN_DIRECTORY)
    except OSError as error:
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"{words} {why(error)}",
            hint="run it from a directory that exists",
        ) from error
    if os.fstat(fd).st_nlink == 0:
        os.close(fd)
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"{words} was removed",
            hint="run it from a directory that exists",
        )
    return fd, os.readlink(b"/proc/self/fd/%d" % fd)


def _homes() -> set[str]:
    """The operator's HOME, the variable's and the passwd entry's."""
    homes = {os.path.expanduser("~")}
    with suppress(KeyError):  # a uid without an entry has the variable's alone
        homes.add(pwd.getpwuid(os.geteuid()).pw_dir)
    return {os.path.realpath(home) for home in homes}


def _shown(path: bytes) -> str:
    if not path:
        return "(empty)"
    text = ascii(os.fsdecode(path))
    return text if len(text) <= _SHOWN_MAX_CHARS else text[:_SHOWN_MAX_CHARS] + "...'"


def _mounts_hint(capsule: MappedCapsule) -> str:
    if not capsule.mounts:
        return f"the operator can add mounts to [capsules.{capsule.name}]"
    places = ", ".join(mount.capsule for mount in capsule.mounts)
    return f"run it from a directory under {places}"
