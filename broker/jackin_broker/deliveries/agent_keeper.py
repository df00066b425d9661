"""The process that keeps one command's ssh-agent: starts it, fills it, ends it.

Run by its path under `python -I -S`, so it imports no other file of ours, and nothing that costs
time. Its stdin is a socket: a job comes in, one answer goes out, and when the other end closes,
for whatever reason, the agent ends and so does it. Keys go to `ssh-add` by a pipe, passphrases by
a terminal of its own: never by argv, environment or file. It refuses to know why.
"""

# ruff: noqa: SIM105 - `contextlib` costs 3 ms to import, a try costs nothing
from __future__ import annotations

import ctypes
import marshal
import os
import select
import time

TYPE_CHECKING = False  # `typing` costs 4 ms; type checkers know this name
if TYPE_CHECKING:
    from typing import TypedDict

    class Job(TypedDict):
        """Two programs by absolute path, the agent's socket, and the keys with their options."""

        agent: bytes
        add: bytes
        socket: bytes
        options: list[list[bytes]]
        keys: list[bytes]
        passphrases: list[bytes]
        limit_s: float


# What became of a key.
ADDED, NEEDS_PASSPHRASE, WRONG_PASSPHRASE, NO_HOST_KEY, REFUSED, NO_AGENT, LATE = range(7)

_PR_SET_DUMPABLE = 4  # linux/prctl.h
_READ_BYTES = 65536
_HEADER_BYTES = 4
_SIGTERM, _SIGKILL = 15, 9
# An agent ends at once; one that is stopped is killed.
_GRACE_S = 0.5


class NoAgent(Exception):
    """It did not start, or did not listen in time."""


def main() -> None:
    """Serve one job, then hold the agent until the other end of stdin closes."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    job: Job = marshal.loads(_receive())  # noqa: S302 - the broker wrote it
    deadline = time.monotonic() + job["limit_s"]
    agent = 0
    try:
        agent = start_agent(job, deadline)
        answer = add_keys(job, deadline)
    except NoAgent:
        answer = (NO_AGENT, -1)
    job["keys"].clear()
    job["passphrases"].clear()
    try:
        os.write(0, marshal.dumps(answer))
        while os.read(0, _READ_BYTES):
            pass
    except OSError:
        pass  # the broker went away
    finally:
        end(agent)


def start_agent(job: Job, deadline: float) -> int:
    """The pid of an agent that listens.

    Raises: NoAgent.
    """
    reads, writes = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    stdio = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((null, writes, null))]
    argv = [job["agent"], b"-D", b"-a", job["socket"]]
    try:
        pid = os.posix_spawn(job["agent"], argv, {}, file_actions=stdio, setpgroup=0)
    except OSError:
        raise NoAgent from None
    finally:
        os.close(writes)
        os.close(null)
    # It says where it listens once it does; `reads` stays open, for it may say more.
    if not _wait_readable(reads, deadline) or not os.read(reads, _READ_BYTES):
        end(pid)
        raise NoAgent
    return pid


def add_keys(job: Job, deadline: float) -> tuple[int, int]:
    """ADDED, or why a key was not, with its number."""
    for place in range(len(job["keys"])):
        why = add_key(job, place, deadline)
        if why != ADDED:
            return why, place
    return ADDED, -1


def add_key(job: Job, place: int, deadline: float) -> int:
    """What became of a key: ADDED, or why not."""
    reads, writes = os.pipe()
    argv = [job["add"], *job["options"][place], b"-"]
    env = {b"SSH_AUTH_SOCK": job["socket"], b"SSH_ASKPASS_REQUIRE": b"never", b"LC_ALL": b"C"}
    pid, terminal = os.forkpty()
    if pid == 0:
        try:
            os.dup2(reads, 0)
            os.closerange(3, 256)
            os.execve(job["add"], argv, env)  # noqa: S606 - no shell, as everywhere
        finally:
            os._exit(127)
    os.close(reads)
    try:
        os.write(writes, job["keys"][place])  # at most a pipe's capacity, so it never waits
    except OSError:
        pass  # it ended already; its status says why
    os.close(writes)
    try:
        return _converse(pid, terminal, job["passphrases"][place], deadline)
    finally:
        os.close(terminal)


def _converse(pid: int, terminal: int, passphrase: bytes, deadline: float) -> int:
    """Answer the one question that ssh-add may have; what became of the key."""
    said, is_answered = b"", False
    why = REFUSED
    while _wait_readable(terminal, deadline):
        try:
            data = os.read(terminal, _READ_BYTES)
        except OSError:
            data = b""  # Linux says so when nobody has the other end
        if not data:
            return ADDED if _status_of(pid) == 0 else _cause(said)
        said += data
        if b"assphrase" not in said:
            continue
        # It switched the echo off before it asked.
        if is_answered or not passphrase:
            why = WRONG_PASSPHRASE if is_answered else NEEDS_PASSPHRASE
            break
        os.write(terminal, passphrase + b"\n")
        said, is_answered = b"", True
    else:
        why = LATE
    os.kill(pid, _SIGKILL)
    _status_of(pid)
    return why


def _cause(said: bytes) -> int:
    return NO_HOST_KEY if b"ost key" in said else REFUSED


def end(pid: int) -> None:
    """End a process of ours, and reap it."""
    if pid <= 0:
        return
    for number in (_SIGTERM, _SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        limit = time.monotonic() + _GRACE_S
        while time.monotonic() < limit:
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    return
            except ChildProcessError:
                return
            time.sleep(0.001)


def _status_of(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def _wait_readable(fd: int, deadline: float) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _receive() -> bytes:
    """One message: its length in four bytes, then the message."""
    size = int.from_bytes(_exactly(_HEADER_BYTES), "big")
    return _exactly(size)


def _exactly(size: int) -> bytes:
    """Raises: SystemExit when the broker went away."""
    pieces = b""
    while len(pieces) < size:
        piece = os.read(0, size - len(pieces))
        if not piece:
            raise SystemExit
        pieces += piece
    return pieces


if __name__ == "__main__":
    main()
