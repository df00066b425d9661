"""A directory of its own for each command that needs one on the host, in memory where possible.

What an unconfined command reads as a file, and the sockets of its ssh-agent, live here, 0700, for
as long as the command does. It refuses to know what they hold. Invariants: everything below the
root belongs to commands of this broker, so what is there at its start is a leftover and goes. Its
own begin with `prefix`: what cleans up after a broker that was killed leaves the next one's alone.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..processes import ProcessGone, opened
from ..trust import ensure_private_dir

# Of a command's ssh-agent; short, for a socket's path may have 103 bytes.
AGENT_SOCKET: Final = "agent"
_AGENT_PROGRAM: Final = "ssh-agent"
# A leftover agent answers at once, or it is not one.
_CONNECT_LIMIT_S: Final = 1.0
# 48 bits: a name is never met twice, and mkdir refuses one that is.
_NAME_BYTES: Final = 6
# The next broker's differ by it, and no more than a few live at a time.
_PREFIX_BYTES: Final = 3
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - what is made in it is refused unless ours
_MEMORY_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
_PEER: Final = struct.Struct("3i")


class Scratch:
    """The directories of one broker's commands."""

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        self.prefix: Final = str(root / secrets.token_hex(_PREFIX_BYTES))
        self._left: set[Path] = set()  # could not be removed yet

    def make(self) -> Path:
        """A new directory that is the operator's alone.

        Raises: ConfigError where its place cannot be trusted, OSError.
        """
        for left in tuple(self._left):
            self.remove(left)
        ensure_private_dir(self.root)
        made = Path(self.prefix + secrets.token_hex(_NAME_BYTES))
        made.mkdir(mode=0o700)
        return made

    def remove(self, directory: Path) -> None:
        """Remove one of them with all that is in it, ending its agent; may be called again.

        What cannot be removed now, as without a free descriptor, is tried again at the next `make`.
        """
        with suppress(OSError):
            _end_agent(directory / AGENT_SOCKET)
        shutil.rmtree(directory, ignore_errors=True)
        (self._left.add if directory.exists() else self._left.discard)(directory)
        with suppress(OSError):  # others are still there
            self.root.rmdir()

    def sweep(self) -> None:
        """Remove what commands of an earlier broker left, ending their agents.

        To be called while nothing runs. Raises: ConfigError where the place cannot be trusted.
        """
        if not self.root.exists():
            return
        ensure_private_dir(self.root)
        for left in list(self.root.iterdir()):
            self.remove(left)


def scratch_root(private_dir: Path) -> Path:
    """Where a broker with this runtime directory keeps them.

    In the runtime directory, which is in memory on most machines; else in /dev/shm, so that no
    value ever reaches a disk; where there is no memory file system at all, in the former.
    """
    here = private_dir / "commands"
    if is_in_memory(private_dir) or not is_in_memory(_MEMORY):
        return here
    digest = hashlib.sha256(os.fsencode(private_dir)).hexdigest()[: 2 * _NAME_BYTES]
    return _MEMORY / f"jackin-exec-{os.geteuid()}-{digest}"


def is_in_memory(path: Path) -> bool:
    """Whether what is written there, or at its nearest parent that exists, stays in memory."""
    while not path.exists():
        path = path.parent
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    # ID PARENT MAJOR:MINOR … - TYPE SOURCE OPTIONS; see proc_pid_mountinfo(5)
    mounts = (line.split() for line in lines)
    kinds = {words[words.index("-") + 1] for words in mounts if words[2] == number}
    return bool(kinds) and kinds <= _MEMORY_SYSTEMS


def _end_agent(path: Path) -> None:
    """End the ssh-agent that listens there, if it is one of ours."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(_CONNECT_LIMIT_S)
        try:
            channel.connect(os.fspath(path))
            peer = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        except OSError:
            return  # nothing listens there
    pid, uid, _ = _PEER.unpack(peer)
    if uid != os.geteuid():
        return
    with suppress(ProcessGone, ProcessLookupError), opened(pid) as process:
        pidfd = os.pidfd_open(pid)
        try:
            if process.status().name == _AGENT_PROGRAM:
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        finally:
            os.close(pidfd)
