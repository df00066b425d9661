"""The process that starts one command, reports how it fares, signals it and ends its tree.

Confined, it is PID 1 of the command's namespaces and starts from `python -I -S -c BOOTSTRAP`;
unconfined, the warden's fork calls `lead`. It imports what costs nothing to import (9 ms of
Python are on the way of every confined command) and no other file of ours.

Its control socket keeps messages apart. To the broker: `terminal` with its master, `started PID`,
`failed STAGE ERRNO`, `stopped SIGNAL`, `ended WAITSTATUS`. From the broker: `signal N` (to the
command's group, once), `end` (TERM for all), `kill` (KILL for all); its end means: TERM,
LEFTOVER_GRACE_S, KILL, leave.
Invariants: the leader holds no end of the command's streams, but its end of a terminal until the
command was reaped, so that no gap between two programs looks like the end; nothing that it started
outlives it; a signal never goes to a group whose command was reaped.
"""

# ruff: noqa: SIM105 - `contextlib` costs 3 ms to import, a try costs nothing
from __future__ import annotations

import errno
import os
import select
import time

TYPE_CHECKING = False  # `typing` costs 4 ms; type checkers know this name
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, TypedDict

    # A root, its device and inode, the components below it, those of where they lead.
    Walk = tuple[bytes, tuple[int, int], tuple[bytes, ...], tuple[int, int]]

    class Job(TypedDict):
        """What to start. `walk` None: stay here.

        `limits` are (a number of setrlimit(2), the most), which nothing inside can raise.
        `terminal` is (rows, columns, is plain); `terminal_code` comes with it (leader_terminal.py).
        """

        path: bytes
        argv: tuple[bytes, ...]
        env: dict[bytes, bytes]
        walk: Walk | None
        terminal: tuple[int, int, bool] | None
        terminal_code: CodeType
        limits: tuple[tuple[int, int], ...]


# The C half of `signal`; the public half imports `enum`, which costs as much as all the rest.
_signal = __import__("_signal")

# Runs in the confined interpreter: no file of ours needs to be visible there.
BOOTSTRAP = """\
import marshal, os, sys
job, *rest = map(int, sys.argv[1:])
work = marshal.loads(os.pread(job, os.fstat(job).st_size, 0))
os.ftruncate(job, 0)
os.close(job)
scope = {"__name__": "leader"}
exec(work["code"], scope)
scope["lead"](work, *rest)
"""

STAGE_CWD = b"cwd"
STAGE_EXEC = b"exec"
STAGE_TERMINAL = b"terminal"

# From a broker's death to the tree's, less than the two seconds that DESIGN §9 tests for.
LEFTOVER_GRACE_S = 1.0
# A bash that was just taking the TERM leaves the HUP behind it until it is woken again.
HANG_UP_AGAIN_S = 0.1
# A process in an uninterruptible sleep cannot be waited for; after this the warden has it.
_KILL_LIMIT_S = 5.0
# Between two looks for processes that were forked while we killed.
_KILL_AGAIN_S = 0.02
_MESSAGE_MAX_BYTES = 64

_UNCATCHABLE = (_signal.SIGKILL, _signal.SIGSTOP)
_RESET = tuple(n for n in range(1, 32) if n not in _UNCATCHABLE)
_TO_IGNORE = tuple(n for n in _RESET if n not in (_signal.SIGCHLD, _signal.SIGSEGV, _signal.SIGBUS))
# What opening one component of a path inside an untrusted directory allows.
_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CannotStart(Exception):
    """The command never ran; `stage` and `code` (an errno) say why."""

    def __init__(self, stage: bytes, error: OSError) -> None:
        self.stage = stage
        self.code = error.errno or errno.EIO
        super().__init__(stage, self.code)


def lead(job: Job, control: int, stdin: int, stdout: int, stderr: int) -> None:
    """Start the command, see it through, end its tree; returns when nothing is left."""
    for fd in (control, stdin, stdout, stderr):
        os.set_inheritable(fd, False)
    try:
        os.setsid()
    except PermissionError:
        pass  # the warden's fork has a session of its own already
    leader = _Leader(control)
    terminal = -1
    try:
        if job["walk"] is not None:
            enter_or_fail(job["walk"])
        if job["limits"]:
            limit(job["limits"])
        if job["terminal"] is None:
            command = start(job, (stdin, stdout, stderr))
        else:
            command, terminal = start_on_terminal(job, control, *job["terminal"])
    except CannotStart as failure:
        os.write(control, b"failed %s %d" % (failure.stage, failure.code))
        return
    finally:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
    job["env"].clear()
    leader.see_through(command, terminal)


def limit(limits: tuple[tuple[int, int], ...]) -> None:
    """Limit this process and so its command: there is no moment without, however it is started."""
    import resource

    for number, most in limits:
        allowed = resource.getrlimit(number)[1]
        if allowed != resource.RLIM_INFINITY:
            most = min(most, allowed)
        resource.setrlimit(number, (most, most))


def enter_or_fail(walk: Walk) -> None:
    """Raises: CannotStart when the working directory is not the one that the broker holds."""
    try:
        enter(*walk)
    except OSError as error:
        raise CannotStart(STAGE_CWD, error) from None


def start_on_terminal(
    job: Job, control: int, rows: int, cols: int, is_plain: bool
) -> tuple[int, int]:
    """The pid of the command and our end of its terminal; the other end went to the broker.

    Raises: CannotStart.
    """
    part: dict[str, Any] = {"__name__": "leader_terminal"}
    exec(job["terminal_code"], part)  # noqa: S102 - our own file's, see host.py
    try:
        slave: int = part["make"](control, rows, cols, is_plain)
    except OSError as error:
        raise CannotStart(STAGE_TERMINAL, error) from None
    try:
        return part["start"](job, slave, _RESET), slave
    except OSError as error:
        raise CannotStart(STAGE_EXEC, error) from None


def start(job: Job, stdio: tuple[int, int, int]) -> int:
    """The pid of the started command, the leader of its own process group.

    Raises: CannotStart; the kernel's own answer to execve(2) comes back as its errno.
    """
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)]
    try:
        return os.posix_spawn(
            job["path"],
            job["argv"],
            job["env"],
            file_actions=actions,
            setpgroup=0,
            setsigmask=(),
            setsigdef=_RESET,
        )
    except OSError as error:
        raise CannotStart(STAGE_EXEC, error) from None


def enter(
    root: bytes, start: tuple[int, int], components: tuple[bytes, ...], end: tuple[int, int]
) -> None:
    """Make the directory that the broker holds the working directory, or nothing.

    Raises: OSError; ESTALE when another directory is there now, ELOOP or ENOTDIR for a link.
    """
    fd = os.open(root, _STEP)
    try:
        # What is shown to the command is this root: it may be a link's target by now.
        check(fd, start)
        for component in components:
            step = os.open(component, _STEP, dir_fd=fd)
            os.close(fd)
            fd = step
        check(fd, end)
        os.fchdir(fd)
    finally:
        os.close(fd)


def check(fd: int, identity: tuple[int, int]) -> None:
    """Return when this is that file.

    Raises: OSError.
    """
    found = os.fstat(fd)
    if (found.st_dev, found.st_ino) != identity:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def children() -> dict[int, list[int]]:
    """Every process that has children now, with their pids."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fd = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # it ended meanwhile
        try:
            # The name in parentheses may hold anything; state and parent follow the last one.
            parent = int(os.read(fd, 512).rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        finally:
            os.close(fd)
        found.setdefault(parent, []).append(int(name))
    return found


def below(tops: list[int], family: dict[int, list[int]]) -> list[int]:
    """Every process below `tops`, whatever session it made for itself."""
    found: list[int] = []
    queue = list(tops)
    while queue:
        ours = family.get(queue.pop(), [])
        found += ours
        queue += ours
    return found


def signal_tree(number: int) -> None:
    """Signal every process below this one; as PID 1, every other in the namespace."""
    me = os.getpid()
    targets = [-1] if me == 1 else below([me], children())
    for pid in targets:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # it ended, or became another user's: sudo passes TERM on by itself


def _woken(number: int, frame: object) -> None:
    """A child changed; that this is a handler makes the wake-up pipe readable."""


class _Leader:
    """The loop that waits for the broker and for children."""

    def __init__(self, control: int) -> None:
        self._control = control
        self._command = 0
        self._terminal = -1
        self._has_terminal = False
        self._is_reaped = False
        self._has_children = True
        self._is_released = False
        self._is_told_to_end = False
        self._kill_at: float | None = None
        self._hang_up_at: float | None = None
        self._give_up_at: float | None = None
        for number in _TO_IGNORE:
            _signal.signal(number, _signal.SIG_IGN)
        self._wakeups, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, _woken)

    def see_through(self, command: int, terminal: int = -1) -> None:
        """Return when the broker let go and nothing is left, or cannot be ended."""
        self._command, self._terminal = command, terminal
        self._has_terminal = terminal >= 0
        os.write(self._control, b"started %d" % command)
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._wakeups, select.POLLIN)
        while not self._is_over():
            for fd, _ in poller.poll(self._timeout_ms()):
                if fd == self._wakeups:
                    os.read(fd, 4096)
                elif not self._obey():
                    poller.unregister(fd)
            self._reap()
            self._kill_if_due()

    def _is_over(self) -> bool:
        if self._give_up_at is not None and time.monotonic() > self._give_up_at:
            return True
        return self._is_released and not self._has_children

    def _timeout_ms(self) -> int | None:
        if not self._has_children:
            return None
        if self._give_up_at is not None:
            return int(_KILL_AGAIN_S * 1000)
        due = [at for at in (self._kill_at, self._hang_up_at) if at is not None]
        return max(0, int((min(due) - time.monotonic()) * 1000) + 1) if due else None

    def _obey(self) -> bool:
        """Whether the broker is still there after this message."""
        try:
            words = os.read(self._control, _MESSAGE_MAX_BYTES).split()
        except ConnectionError:
            words = []
        if not words:
            self._is_released = True
            self._end_leftovers()
        elif words[0] == b"signal":
            self._signal_command(int(words[1]))
        elif words[0] == b"end":
            self._terminate()
        else:
            self._kill_at = time.monotonic()
        return bool(words)

    def _signal_command(self, number: int) -> None:
        if self._is_reaped:
            return
        try:
            os.killpg(self._command, number)
        except (ProcessLookupError, PermissionError):
            pass  # the group is empty, or became another user's

    def _terminate(self) -> None:
        self._is_told_to_end = True
        signal_tree(_signal.SIGTERM)
        if self._has_terminal:
            signal_tree(_signal.SIGHUP)  # an interactive shell ends with its terminal, not by TERM
            self._hang_up_at = time.monotonic() + HANG_UP_AGAIN_S
        signal_tree(_signal.SIGCONT)  # a stopped process takes TERM only once it goes on

    def _end_leftovers(self) -> None:
        now = time.monotonic()
        if self._is_told_to_end and self._is_reaped:
            self._kill_at = now  # they had their TERM, and the time since
        elif self._kill_at is None:
            self._terminate()
            self._kill_at = now + LEFTOVER_GRACE_S

    def _kill_if_due(self) -> None:
        now = time.monotonic()
        if self._hang_up_at is not None and now >= self._hang_up_at:
            self._hang_up_at = None
            signal_tree(_signal.SIGHUP)
        if self._kill_at is None or now < self._kill_at or not self._has_children:
            return
        if self._give_up_at is None:
            self._give_up_at = now + _KILL_LIMIT_S
        signal_tree(_signal.SIGKILL)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                self._has_children = False
                return
            if pid == 0:
                return
            if pid == self._command:
                self._report(status)

    def _report(self, status: int) -> None:
        if os.WIFSTOPPED(status):
            words = b"stopped %d" % os.WSTOPSIG(status)
        else:
            self._is_reaped = True
            if self._terminal >= 0:
                os.close(self._terminal)
                self._terminal = -1
            words = b"ended %d" % status
        if not self._is_released:
            try:
                os.write(self._control, words)
            except ConnectionError:
                pass  # the broker went away just now; the next read says so
