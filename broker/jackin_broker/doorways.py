"""The listening sockets: made with their modes, put in place whole, taken away without harm.

A capsule's socket is alone in a directory that is mounted read-only into the capsule, so the
directory outlives the broker and the socket in it is replaced. Whoever may connect is decided by
`peer.py`, not by the mode: the mode only lets a capsule's own uid come as far as that.
It refuses to know what is said over a socket. The caller holds the broker's lock, so a socket
that is already there belongs to a broker that is gone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from .errors import ConfigError
from .paths import Paths
from .trust import (
    PRIVATE_MODE,
    blocked_at,
    check_trusted,
    ensure_private_dir,
    ensure_traversable_dir,
)

# A burst of callers between two turns of the event loop; the kernel's default ceiling is 4096.
LISTEN_BACKLOG: Final = 128
_PRIVATE_SOCKET: Final = 0o600
_OPEN_SOCKET: Final = 0o666
# Where a socket is made before it is renamed into place; shorter than any final name.
_UNFINISHED_NAME: Final = "new.sock"


def open_doorway(name: str, uids: Collection[int], paths: Paths) -> socket.socket:
    """The listening socket of a capsule, which every one of its uids can reach.

    Raises: ConfigError when the place is not trusted, or a uid cannot pass through to it.
    """
    mode = prepare_doorway(name, uids, paths)
    return listen_at(paths.capsule_socket(name), mode)


def prepare_doorway(name: str, uids: Collection[int], paths: Paths) -> int:
    """Give a capsule's directories the modes that its uids need; the mode its socket needs.

    Called again when `launch` adds a uid; `admit` then does the same for the socket.
    Raises: ConfigError when the place is not trusted, or a uid cannot pass through to it.
    """
    leaf = paths.capsule_dir(name)
    strangers = sorted(uid for uid in uids if uid != os.geteuid())
    ensure_dir = ensure_traversable_dir if strangers else ensure_private_dir
    programs = paths.shim_dir(name).parent  # whoever starts the capsule mounts from there too
    for directory in (paths.runtime_dir, programs, leaf.parent, leaf):
        ensure_dir(directory)
    if not strangers:
        os.chmod(leaf, PRIVATE_MODE)
        return _PRIVATE_SOCKET
    for uid in strangers:
        _check_passable(leaf, uid)
    return _OPEN_SOCKET


def admit(name: str, uids: Collection[int], paths: Paths) -> None:
    """Let these uids reach a capsule's doorway that is already open.

    Raises: ConfigError when one of them cannot pass through to it.
    """
    os.chmod(paths.capsule_socket(name), prepare_doorway(name, uids, paths))


def listen_at(path: Path, mode: int = _PRIVATE_SOCKET) -> socket.socket:
    """A listening, non-blocking socket at `path`, in a directory that is ours alone to change.

    It appears there whole: with its mode and its queue, in place of a dead broker's.
    Raises: ConfigError when the directory is not trusted or the socket cannot be made.
    """
    check_trusted(path.parent)
    unfinished = path.parent / _UNFINISHED_NAME
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        unfinished.unlink(missing_ok=True)
        sock.bind(str(unfinished))
        os.chmod(unfinished, mode)
        sock.listen(LISTEN_BACKLOG)
        sock.setblocking(False)
        os.rename(unfinished, path)
    except OSError as error:
        sock.close()
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: cannot listen there: {reason}") from error
    return sock


def close_doorway(sock: socket.socket, path: Path) -> None:
    """Stop listening and take the socket away; its directory stays, it may be mounted."""
    sock.close()
    with suppress(FileNotFoundError):
        path.unlink()


def _check_passable(directory: Path, uid: int) -> None:
    blocked = blocked_at(directory, uid)
    if blocked is not None:
        raise ConfigError(
            f"{blocked}: uid {uid} of the capsule cannot pass through it to {directory}",
            hint='set [broker] runtime_dir to a directory that it can, such as "/run/jackin-exec"',
        )
