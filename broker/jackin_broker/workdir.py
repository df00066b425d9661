"""The working directory: a path of the capsule becomes an open host directory (DESIGN §9).

The longest mount that holds the path is walked from `/` and then below the mount, one component
at a time, each opened relative to the one before with O_NOFOLLOW. A link that is met below the
mount is read and walked the same way, so it leads where the agent sees it lead, or nowhere:
`..` never climbs above the mount, and an absolute target is a path of the capsule, mapped anew.
The directory that was reached stays open from asking to spawning; its path is never resolved
a second time. It refuses to know what runs there.

Invariants: no link is ever followed by the kernel for a mapped path; what is returned is, or is
below, the host directory of a mount, or the configured fallback; the descriptor is
close-on-exec.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol

from .config.model import CapsuleKind, Mount, UnmappedCwd
from .config.places import is_within, overlap
from .errors import DenialCode, Refusal

__all__ = ["Mount", "WorkDir", "open_workdir"]

# Search permission is enough to stand in a directory, so none is asked for reading.
_OPEN_DIR: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_STEP: Final = _OPEN_DIR | os.O_NOFOLLOW
# The kernel's own limit (MAXSYMLINKS in path_resolution(7)).
LINKS_MAX: Final = 40
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
    to it from the mount's host directory; `device` and `inode` what another walk must meet.
    `mount` is None for the fallback.
    """

    def __init__(
        self,
        fd: int,
        *,
        host_path: bytes,
        capsule_path: bytes,
        mount: Mount | None,
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
        self.device: Final = found.st_dev
        self.inode: Final = found.st_ino
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


class _Unmapped(Exception):
    """The path is under no mount."""


class _Rejected(Exception):
    """The path is under a mount, but is not a directory that can be reached there."""


class _AbsoluteLink(Exception):
    """A link that names a path of the capsule: the mapping begins anew."""

    def __init__(self, target: bytes) -> None:
        self.target: Final = target


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
    except _Unmapped:
        if capsule.unmapped_cwd is UnmappedCwd.FALLBACK:
            return _open_fallback(cwd, capsule)
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"the working directory {_shown(cwd)} is under no mount of capsule {capsule.name!r}",
            hint=_mounts_hint(capsule),
        ) from None
    except _Rejected as error:
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"the working directory {_shown(cwd)} {error}",
            hint=_mounts_hint(capsule),
        ) from error.__cause__


# --- mapped paths -----------------------------------------------------------------------


def _open_mapped(cwd: bytes, capsule: MappedCapsule) -> WorkDir:
    links = 0
    path = cwd
    while True:
        mount, relative = _longest_mount(path, capsule.mounts)
        try:
            fd, below, links = _walk(mount, relative, links)
        except _AbsoluteLink as link:
            links += 1
            path = link.target
            continue
        host = b"/".join((os.fsencode(mount.host).rstrip(b"/"), *below)) or b"/"
        return WorkDir(
            fd,
            host_path=host,
            capsule_path=cwd,
            mount=mount,
            below=below,
            is_agent_writable=_is_writable(host, capsule.mounts),
        )


def _longest_mount(path: bytes, mounts: Sequence[Mount]) -> tuple[Mount, list[bytes]]:
    """The mount that holds a capsule path, and the components below it.

    Raises: _Unmapped.
    """
    if not path.startswith(b"/"):
        raise _Unmapped
    wanted = _normal(path)
    best: tuple[Mount, list[bytes]] | None = None
    for mount in mounts:
        root = _normal(os.fsencode(mount.capsule))
        if wanted[: len(root)] == root and (best is None or len(wanted) - len(root) < len(best[1])):
            best = mount, wanted[len(root) :]
    if best is None:
        raise _Unmapped
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


def _walk(mount: Mount, relative: list[bytes], links: int) -> tuple[int, tuple[bytes, ...], int]:
    """The directory at `relative` below a mount, its components without links, links so far.

    Raises: _Rejected, _AbsoluteLink.
    """
    held = [_open_root(mount)]
    names: list[bytes] = []
    pending = deque(relative)
    try:
        while pending:
            name = pending.popleft()
            if name in (b"", b"."):
                continue
            if name == b"..":
                if not names:
                    raise _Rejected("leads out of its mount through a link")
                names.pop()
                os.close(held.pop())
                continue
            target = _step(held, names, name)
            if target is None:
                continue
            links += 1
            if links > LINKS_MAX:
                raise _Rejected("goes through too many links")
            if target.startswith(b"/"):
                raise _AbsoluteLink(b"/".join((target, *pending)))
            pending.extendleft(reversed(target.split(b"/")))
        return held.pop(), tuple(names), links
    finally:
        for fd in held:
            os.close(fd)


def _open_root(mount: Mount) -> int:
    """The mount's host directory, walked from `/`: an agent may own what is above it."""
    fd = os.open("/", _OPEN_DIR)
    for name in _normal(os.fsencode(mount.host)):
        try:
            below = os.open(name, _STEP, dir_fd=fd)
        except OSError as error:
            raise _Rejected(f"cannot be reached: {mount.host} {_why(error)}") from error
        finally:
            os.close(fd)
        fd = below
    return fd


def _step(held: list[int], names: list[bytes], name: bytes) -> bytes | None:
    """Go one component down, or return where the link of that name leads.

    Raises: _Rejected.
    """
    try:
        held.append(os.open(name, _STEP, dir_fd=held[-1]))
    except (NotADirectoryError, OSError) as error:
        target = _link_target(held[-1], name)
        if target is None:
            raise _Rejected(_why(error)) from error
        return target
    names.append(name)
    return None


def _link_target(parent: int, name: bytes) -> bytes | None:
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError:
        return None


def _is_writable(host: bytes, mounts: Sequence[Mount]) -> bool:
    """Whether the agent can write there, or below, through any of its mounts."""
    path = os.fsdecode(host)
    return any(not mount.read_only and overlap(path, mount.host) for mount in mounts)


# --- paths that are not mapped ----------------------------------------------------------


def _open_fallback(cwd: bytes, capsule: MappedCapsule) -> WorkDir:
    directory = capsule.fallback_cwd or os.getcwd()
    fd, host = _open_plain(os.fsencode(directory), f"the fallback directory {directory}")
    return WorkDir(
        fd,
        host_path=host,
        capsule_path=cwd,
        mount=None,
        is_agent_writable=_is_writable(host, capsule.mounts),
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
        fd = os.open(path, _OPEN_DIR)
    except OSError as error:
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"{words} {_why(error)}",
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
    try:
        homes.add(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pass  # a uid without an entry has the variable's alone
    return {os.path.realpath(home) for home in homes}


# --- words ------------------------------------------------------------------------------


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, NotADirectoryError):
        return "is not a directory"
    if isinstance(error, PermissionError):
        return "cannot be entered by the broker"
    return f"cannot be opened ({error.strerror or 'unknown error'})".lower()


def _shown(path: bytes) -> str:
    if not path:
        return "(empty)"
    text = ascii(os.fsdecode(path))
    return text if len(text) <= _SHOWN_MAX_CHARS else text[:_SHOWN_MAX_CHARS] + "…'"


def _mounts_hint(capsule: MappedCapsule) -> str:
    if not capsule.mounts:
        return f"the operator can add mounts to [capsules.{capsule.name}]"
    places = ", ".join(mount.capsule for mount in capsule.mounts)
    return f"run it from a directory under {places}"
