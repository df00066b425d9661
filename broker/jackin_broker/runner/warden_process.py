"""The warden: one small process that forks the leader of every command.

Forking from here costs a fraction of forking from the broker, never blocks the broker's loop,
and takes the working directory as an open descriptor, so no path is looked up twice. Being the
nearest subreaper, it inherits, and kills, what a leader's violent death sets free. Stdlib only;
it refuses to know configuration, credentials (they pass in a memory file that it does not read
but in the fork) and policy.

A request is a number with seven descriptors: job, control, stdin, stdout, stderr, cwd,
diagnosis. The answer is the number and the pid, with the pidfd; the number alone where none could
be forked. Invariants: it ends when the broker does, after LINGER_S at most, and its end is the end
of all confined commands; so a fork that fails (the uid has too many processes, the machine no
memory) is one command's misfortune, never its own.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any, Final, NoReturn

from ..hardening import forbid_dumps
from . import landlock, leader
from .tree import become_subreaper

DESCRIPTORS: Final = 7
# Leaders need LEFTOVER_GRACE_S to end their trees; then KILL, still within two seconds.
LINGER_S: Final = leader.LEFTOVER_GRACE_S + 0.5
_REQUEST_MAX_BYTES: Final = 32


def main(channel_fd: int, sweeps: str = "") -> NoReturn:
    """Serve the broker at the other end of `channel_fd` until it goes away.

    Then, once its commands have ended, the directories whose paths begin with `sweeps` are removed:
    a broker that was killed does not do it. The next broker's, which may run already, stay.
    """
    forbid_dumps()
    become_subreaper()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    _Warden(socket.socket(fileno=channel_fd)).serve()
    if sweeps:
        _sweep(sweeps)
    os._exit(0)


class _Warden:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._leaders: set[int] = set()
        self._wakeups, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _woken)

    def serve(self) -> None:
        """Fork as asked, reap what ends; returns after the broker went away."""
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        poller.register(self._wakeups, select.POLLIN)
        broker_is_there = True
        while broker_is_there:
            for fd, _ in poller.poll():
                if fd == self._wakeups:
                    os.read(fd, 4096)
                    self._reap()
                else:
                    broker_is_there = self._take_request()
        self._linger()

    def _take_request(self) -> bool:
        """Whether the broker is still there."""
        try:
            words, descriptors = _receive(self._channel)
        except ConnectionError:
            return False
        if not words:
            return False
        try:
            pid = self._fork(descriptors)
        except OSError:
            return self._answer(words, [])
        finally:
            for fd in descriptors:
                os.close(fd)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # the broker closes the control socket then, so the leader ends
            return self._answer(words, [])
        try:
            return self._answer(words + b" %d" % pid, [pidfd])
        finally:
            os.close(pidfd)

    def _fork(self, descriptors: list[int]) -> int:
        """The new leader's pid. Raises: OSError."""
        if len(descriptors) != DESCRIPTORS:  # there was no room for all
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        pid = os.fork()
        if pid == 0:
            _become_leader(descriptors)
        self._leaders.add(pid)
        return pid

    def _answer(self, words: bytes, descriptors: list[int]) -> bool:
        """Whether the broker is still there."""
        try:
            socket.send_fds(self._channel, [words], descriptors)
        except ConnectionError:
            return False
        except OSError:  # too many descriptors are under way (ETOOMANYREFS)
            return not descriptors or self._answer(words.split()[0], [])
        return True

    def _reap(self) -> bool:
        """Whether children are left. Whatever is no leader was orphaned by a dead one: KILL."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            is_leader = pid in self._leaders
            self._leaders.discard(pid)
            if status or not is_leader:
                self._kill_orphans()

    def _kill_orphans(self) -> None:
        """A leader that ends well leaves nobody; this is for one that was killed."""
        family = leader.children()
        orphans = [pid for pid in family.get(os.getpid(), []) if pid not in self._leaders]
        for pid in orphans + leader.below(orphans, family):
            _kill(pid)

    def _linger(self) -> None:
        """Let the leaders, who saw the broker's end too, end their trees; then KILL."""
        deadline = time.monotonic() + LINGER_S
        poller = select.poll()
        poller.register(self._wakeups, select.POLLIN)
        while self._reap() and (left := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(left * 1000):
                os.read(fd, 4096)
        for pid in leader.below([os.getpid()], leader.children()):
            _kill(pid)


def _sweep(prefix: str) -> None:
    """Remove what commands that are gone had, and the directory above if nothing else is in it."""
    root, name = os.path.split(prefix)
    with contextlib.suppress(OSError):
        for one in os.listdir(root):
            if one.startswith(name):
                _remove(os.path.join(root, one))
        os.rmdir(root)


def _remove(directory: str) -> None:
    """Remove it with all that is in it: files and sockets."""
    for folder, folders, files in os.walk(directory, topdown=False):
        for path in (os.path.join(folder, name) for name in files):
            with contextlib.suppress(OSError):
                os.unlink(path)
        for path in (os.path.join(folder, name) for name in folders):
            with contextlib.suppress(OSError):
                os.rmdir(path)
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def _woken(number: int, frame: object) -> None:
    """A child changed; that this is a handler makes the wake-up pipe readable."""


def _kill(pid: int) -> None:
    # It ended meanwhile, or is another user's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    room = socket.CMSG_SPACE(DESCRIPTORS * 4)
    words, ancillary, _, _ = channel.recvmsg(_REQUEST_MAX_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for _level, _kind, data in ancillary:
        numbers = memoryview(data).cast("i")
        descriptors.extend(numbers)
    return words, descriptors


def _become_leader(descriptors: list[int]) -> NoReturn:
    """The forked child: the leader itself, or bubblewrap with the leader inside."""
    try:
        job, control, stdin, stdout, stderr, cwd, diagnosis = descriptors
        os.setsid()
        _forget_the_warden(descriptors, diagnosis)
        os.fchdir(cwd)
        os.close(cwd)
        work: dict[str, Any] = marshal.loads(os.pread(job, os.fstat(job).st_size, 0))  # noqa: S302 - the broker wrote it
        if work["bwrap"]:
            _exec_bwrap(work, (job, control, stdin, stdout, stderr))
        os.ftruncate(job, 0)
        os.close(job)
        become_subreaper()
        leader.lead(work, control, stdin, stdout, stderr)  # type: ignore[arg-type]  # a Job came
        os._exit(0)
    except BaseException:  # whatever it was, this fork must never go on as a second warden
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _forget_the_warden(kept: list[int], diagnosis: int) -> None:
    """Close everything but the kept descriptors; standard streams lead nowhere else."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(diagnosis, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            # The one that listed the directory is gone already.
            with contextlib.suppress(OSError):
                os.close(int(name))


def _exec_bwrap(work: dict[str, Any], inside: tuple[int, ...]) -> NoReturn:
    """Become bubblewrap. Its environment is empty: values are in the job alone."""
    # bubblewrap resolves what it binds from here, and must not hold the agent's directory.
    os.chdir("/")
    for fd in inside:
        os.set_inheritable(fd, True)
    if work["is_scoped"]:
        landlock.hide_abstract_sockets()
    place = work["bwrap"].index("--")
    options, program = work["bwrap"][:place], work["bwrap"][place:]
    argv = [*options, *_file_options(work["files"]), *program, *(str(fd) for fd in inside)]
    os.execve(argv[0], argv, {})  # noqa: S606 - no shell, as everywhere


def _file_options(files: tuple[tuple[bytes, bytes], ...]) -> list[str]:
    """Bubblewrap's options that make the command's own files; it closes what it read from."""
    words: list[str] = []
    for path, content in files:
        fd = os.memfd_create("file", 0)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        words += ["--perms", "0600", "--file", str(fd), os.fsdecode(path)]
    return words
