"""The descriptors of one command: which ends are ours, which go to the warden.

It refuses to know what flows through them. Invariants: ours are non-blocking and close on exec;
theirs are closed here once the warden has them; a failure half-way leaks none.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from ..protocol import StdinKind

# Enough for bubblewrap's one line or a traceback; a fixed size, so that nobody can fill memory.
DIAGNOSIS_BYTES: Final = 4096
# A leader's longest message is a word and two numbers.
MESSAGE_MAX_BYTES: Final = 64


@dataclass
class Ours:
    """Our ends; whoever takes one over sets it to -1 here. `stdin` is -1 for no stdin."""

    control: int
    stdin: int
    stdout: int
    stderr: int
    diagnosis: int

    def close(self) -> None:
        """Close what nobody took over."""
        for name in ("control", "stdin", "stdout", "stderr", "diagnosis"):
            fd: int = getattr(self, name)
            setattr(self, name, -1)
            if fd >= 0:
                os.close(fd)


@dataclass
class _Theirs:
    stack: ExitStack = field(default_factory=ExitStack)

    def own(self, fd: int) -> int:
        self.stack.callback(os.close, fd)
        return fd


@contextmanager
def opened(
    job: bytes, stdin: StdinKind, cwd: int, *, has_terminal: bool = False
) -> Generator[tuple[Ours, list[int]]]:
    """Our ends, and the list for the warden; theirs are closed at the end of the block.

    Ours are closed when the block raises. With a terminal there are no streams: its one end
    comes later, see `receive`.
    """
    ours = Ours(-1, -1, -1, -1, -1)
    theirs = _Theirs()
    try:
        with theirs.stack:
            work = theirs.own(_memory_file("job"))
            write_all(work, job)
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            near.setblocking(False)
            ours.control, control = near.detach(), theirs.own(far.detach())
            if has_terminal or stdin is StdinKind.NONE:
                reads = theirs.own(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            else:
                end, ours.stdin = os.pipe2(os.O_CLOEXEC)
                reads = theirs.own(end)
                os.set_blocking(ours.stdin, False)
            if has_terminal:
                out = err = reads
            else:
                ours.stdout, out = _output_pipe(theirs)
                ours.stderr, err = _output_pipe(theirs)
            ours.diagnosis = _diagnosis_file()
            yield ours, [work, control, reads, out, err, cwd, ours.diagnosis]
    except BaseException:
        ours.close()
        raise


def receive(control: int) -> tuple[bytes, int]:
    """A message of the leader's, and the descriptor that came with it, or -1.

    Raises: BlockingIOError when there is none now, ConnectionError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=control) as channel:
        try:
            words, found, _, _ = socket.recv_fds(
                channel, MESSAGE_MAX_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
        finally:
            channel.detach()
    return words, found[0] if found else -1


def is_listening(fd: int) -> bool:
    """Whether it is a Unix socket that waits for connections, and nothing else."""
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            is_stream = (sock.family, sock.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
            return is_stream and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def read_diagnosis(fd: int) -> str:
    """The first line of what was written there, or nothing."""
    text = os.pread(fd, DIAGNOSIS_BYTES, 0).partition(b"\0")[0].decode("utf-8", "backslashreplace")
    return text.strip()


def write_all(fd: int, data: bytes) -> None:
    """Write everything to a file."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _output_pipe(theirs: _Theirs) -> tuple[int, int]:
    ours, end = os.pipe2(os.O_CLOEXEC)
    theirs.own(end)
    os.set_blocking(ours, False)
    return ours, end


def _memory_file(name: str) -> int:
    return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _diagnosis_file() -> int:
    fd = _memory_file("diagnosis")
    os.ftruncate(fd, DIAGNOSIS_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return fd
