"""One command with credentials, inside the capsule: started, reported, signalled, ended.

It is process 1 of the command's own namespaces where there are any, a plain child of init's else.
It refuses to know policy and redaction. Its control socket speaks as the host's leader does. To
the broker: `socket` with what listens at one, `terminal` with its master, `started PID`,
`failed STAGE ERRNO`, `stopped SIGNAL`, `ended WAITSTATUS`. From it: `signal N`, `end`, `kill`; its
end means: TERM, LEFTOVER_GRACE_S, KILL, leave. Invariants: values come in a memory file that nobody
but this process reads, and leave with execve alone; the command inherits its three streams and
nothing else.
"""

import errno
import os
import select
import time

from . import kernel
from .agent import DESCRIPTORS_MAX, become, home_of, restore_signals
from .command_sockets import give_away
from .command_terminal import open_terminal, take_terminal
from .jobs import Job
from .tree import signal_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import NoReturn
else:
    try:
        import _signal as signal
    except ImportError:  # an interpreter with another signal module
        import signal

STAGE_CWD, STAGE_EXEC, STAGE_TERMINAL = b"cwd", b"exec", b"terminal"
# From a broker's death to the tree's; the host's leader has the same.
LEFTOVER_GRACE_S = 1.0
# A bash that was just taking the TERM leaves the HUP behind it until it is woken again.
HANG_UP_AGAIN_S = 0.1
# A process in an uninterruptible sleep cannot be waited for; the namespace's end has it.
_KILL_LIMIT_S = 5.0
_KILL_AGAIN_S = 0.02
_MESSAGE_MAX_BYTES = 64
_FATAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTTOU)


class CannotStart(Exception):
    """The command never ran; `stage` and `code` (an errno) say why."""

    def __init__(self, stage: bytes, error: OSError) -> None:
        self.stage = stage
        self.code = error.errno or errno.EIO
        super().__init__(stage, self.code)


class Leader:
    """The loop that waits for the broker and for children."""

    def __init__(
        self,
        job: Job,
        control: int,
        stdio: "Sequence[int]",
        uid: "int | None",
        listeners: "Sequence[int]" = (),
    ) -> None:
        """`stdio`: stdin, stdout, stderr; none of them for a command with a terminal.

        `listeners`: the command's sockets, for the broker.
        """
        self._listeners = listeners
        self._job = job
        self._control = control
        self._stdio = tuple(stdio)
        self._uid = uid
        self._terminal = -1
        self._command = 0
        self._is_reaped = self._is_released = self._is_told_to_end = False
        self._has_children = True
        self._kill_at: float | None = None
        self._hang_up_at: float | None = None
        self._give_up_at: float | None = None

    def lead(self) -> "NoReturn":
        """See the command through, and leave."""
        try:
            self._lead()
        finally:
            os._exit(0)

    def _lead(self) -> None:
        os.setsid()
        if os.getpid() != 1:
            kernel.become_subreaper()
        wakeup = _catch_children()
        try:
            self._start()
        except CannotStart as failure:
            os.write(self._control, b"failed %s %d" % (failure.stage, failure.code))
            return
        self._job.forget()
        for fd in self._stdio:
            os.close(fd)
        os.write(self._control, b"started %d" % self._command)
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(wakeup, select.POLLIN)
        while not self._is_over():
            for fd, _ in poller.poll(self._timeout_ms()):
                if fd == wakeup:
                    os.read(fd, 4096)
                elif not self._obey():
                    poller.unregister(fd)
            self._reap()
            self._kill_if_due()

    # --- the start ----------------------------------------------------------------------

    def _start(self) -> None:
        try:
            give_away(self._control, self._listeners)
        except OSError as error:
            raise CannotStart(STAGE_EXEC, error) from None
        if self._job.terminal is not None:
            try:
                self._terminal = open_terminal(self._control, self._job.terminal, self._uid)
            except OSError as error:
                raise CannotStart(STAGE_TERMINAL, error) from None
        reader, writer = os.pipe()
        self._command = os.fork()
        if self._command == 0:
            self._be_command(writer)
        os.close(writer)
        try:
            failure = os.read(reader, _MESSAGE_MAX_BYTES).split()
        finally:
            os.close(reader)
        if failure:
            os.waitpid(self._command, 0)
            code = int(failure[1])
            raise CannotStart(failure[0], OSError(code, os.strerror(code)))

    def _be_command(self, writer: int) -> "NoReturn":
        """In the new process: become the command, or report why not."""
        stage = STAGE_EXEC
        try:
            os.setpgid(0, 0)
            if self._terminal >= 0:
                take_terminal(self._terminal)
            for number, fd in enumerate(self._stdio or [self._terminal] * 3):
                os.dup2(fd, number)
            become(self._uid)
            stage = STAGE_CWD
            os.chdir(self._job.cwd)
            stage = STAGE_EXEC
            restore_signals()
            kernel.limit_address_space(self._job.address_space_bytes)
            os.closerange(3, writer)
            os.closerange(writer + 1, DESCRIPTORS_MAX)
            env = {**self._job.env, **home_of(self._uid)}
            os.execve(self._job.program(), self._job.argv, env)  # noqa: S606 - no shell
        except OSError as error:
            os.write(writer, b"%s %d" % (stage, error.errno or errno.EIO))
        finally:
            os._exit(1)

    # --- the run ------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if self._give_up_at is not None and time.monotonic() > self._give_up_at:
            return True
        return self._is_released and not self._has_children

    def _timeout_ms(self) -> "int | None":
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
        except OSError:
            return  # the group is empty

    def _terminate(self) -> None:
        self._is_told_to_end = True
        signal_tree(signal.SIGTERM)
        if self._terminal >= 0:
            signal_tree(signal.SIGHUP)  # an interactive shell ends with its terminal, not by TERM
            self._hang_up_at = time.monotonic() + HANG_UP_AGAIN_S
        signal_tree(signal.SIGCONT)  # a stopped process takes TERM only once it goes on

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
            signal_tree(signal.SIGHUP)
        if self._kill_at is None or now < self._kill_at or not self._has_children:
            return
        if self._give_up_at is None:
            self._give_up_at = now + _KILL_LIMIT_S
        signal_tree(signal.SIGKILL)

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
            words = b"ended %d" % status
            if self._terminal >= 0:
                os.close(self._terminal)
        if not self._is_released:
            try:
                os.write(self._control, words)
            except ConnectionError:
                return  # the broker went away just now; the next read says so


def _catch_children() -> int:
    """A pipe that is readable when a child changed; nothing but the end ends us."""
    for number in _FATAL:
        signal.signal(number, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _noted)
    return reader


def _noted(_number: int, _frame: object) -> None:
    """The wake-up pipe has it already."""
