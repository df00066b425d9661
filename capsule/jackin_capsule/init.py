"""Process 1 of a capsule: starts the agent, passes signals on, collects orphans.

It exits with the agent's status. It refuses to know the broker's messages; the control socket that
it may inherit is the runner's channel and is held by this process alone.
Invariants: not dumpable, so that an agent of the same uid cannot read it; the agent inherits no
descriptor but the standard ones. The agent stays in the session that it was started in, because a
controlling terminal belongs to a session: as a process group of its own in the foreground, so that
Ctrl-C reaches it once and nobody above it, and a shell has job control.
"""

import ctypes
import errno
import fcntl
import os
import select
import signal
import stat
import termios

from .manual import CAPSULE
from .problems import report
from .wire import EXIT_NOT_RUN, Fault

EXIT_SIGNAL_BASE = 128
EXIT_NOT_FOUND = 127
# prctl(2)
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
# WINCH goes to the foreground group by itself; STOP and KILL cannot be caught.
FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)
# Python ignores them for itself; a program expects them as they are by default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# More than a login's usual limit of open files; closing what is not open costs nothing.
_DESCRIPTORS_MAX = 65_536


def init(words: "list[str]") -> int:
    """Be init for `[--control-fd N] [--] COMMAND [ARG…]`; the agent's exit status.

    Raises: Fault.
    """
    control, argv = _parse(words)
    if argv is None:
        from .main import say

        return say(CAPSULE)
    harden()
    if control is not None:
        hold(control)
    terminal = find_terminal()
    wakeup = catch_signals()
    agent = start_agent(argv, terminal)
    status = serve(agent, terminal, wakeup)
    give_terminal(terminal, os.getpgrp())
    return status


def _parse(words: "list[str]") -> "tuple[int | None, list[str] | None]":
    """The control descriptor and the command; no command when help is asked for."""
    control = None
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word in ("-h", "--help"):
            return None, None
        name, is_joined, value = word.partition("=")
        if name != "--control-fd":
            raise Fault(f"unknown option {word}", "see `jackin-capsule --help`")
        if not is_joined:
            value = rest.pop(0) if rest else ""
        if not value.isdigit():
            raise Fault("--control-fd needs the number of a descriptor", "leave it to launch")
        control = int(value)
    if not rest:
        raise Fault("no command to start", "put it after the options: init -- COMMAND [ARG…]")
    return control, rest


def harden() -> None:
    """Nobody of our uid reads our memory; orphans come to us also where we are not process 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = [(_PR_SET_DUMPABLE, 0)]
    if os.getpid() != 1:
        options.append((_PR_SET_CHILD_SUBREAPER, 1))
    for option, value in options:
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise Fault(
                f"prctl {option} failed: {os.strerror(ctypes.get_errno())}",
                "the capsule's kernel must be Linux 3.4 or later",
            )


def hold(control: int) -> None:
    """Keep the runner's channel open, for this process alone.

    Raises: Fault when the descriptor is not a socket.
    """
    try:
        is_socket = stat.S_ISSOCK(os.fstat(control).st_mode)
    except OSError:
        is_socket = False
    if not is_socket:
        raise Fault(f"descriptor {control} is not a socket", "leave --control-fd to launch")
    os.set_inheritable(control, False)


def find_terminal() -> "int | None":
    """A descriptor of our controlling terminal, taking stdin as one where we have none."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        pass  # none, or no such device in this capsule
    if not os.isatty(0):
        return None
    try:
        os.tcgetpgrp(0)
    except OSError:
        try:
            if os.getsid(0) != os.getpid():
                os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        except OSError:  # somebody else's: the agent goes without job control
            return None
    return 0


def catch_signals() -> int:
    """Handlers for what is forwarded and for SIGCHLD; the pipe that their numbers arrive in."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, _noted)
    # Giving the terminal away from the background stops whoever does not ignore this.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    return reader


def _noted(_number: int, _frame: object) -> None:
    """The wake-up pipe has it already."""


def start_agent(argv: "list[str]", terminal: "int | None") -> int:
    """Start the agent as a process group of its own, in the foreground; its pid."""
    caught = (*FORWARDED, signal.SIGCHLD)
    signal.pthread_sigmask(signal.SIG_BLOCK, caught)
    agent = os.fork()
    if agent == 0:
        _be_agent(argv, terminal, caught)
    _make_group(agent)  # both sides do: neither may run ahead of the other
    signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
    return agent


def _be_agent(
    argv: "list[str]", terminal: "int | None", caught: "tuple[signal.Signals, ...]"
) -> None:
    """In the new process: become the agent, or say why not."""
    status = EXIT_NOT_RUN
    try:
        signal.set_wakeup_fd(-1)
        _make_group(0)
        give_terminal(terminal, os.getpid())
        for number in (*caught, signal.SIGTTOU, *_IGNORED_BY_PYTHON):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
        os.closerange(3, _DESCRIPTORS_MAX)
        os.execvp(argv[0], argv)  # noqa: S606 - an argv without a shell is the point
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            status = EXIT_NOT_FOUND
        report(
            f"cannot start {argv[0]}: {error.strerror}",
            "check that the command is in the capsule and executable",
            "jackin-capsule",
        )
    finally:
        os._exit(status)


def _make_group(pid: int) -> None:
    try:
        os.setpgid(pid, pid)
    except OSError:
        return  # it is one already, or has become the agent and did it itself


def give_terminal(terminal: "int | None", group: int) -> None:
    """Put a process group into the terminal's foreground, where there is one."""
    if terminal is None or group <= 0:  # 0: a group from outside this PID namespace
        return
    try:
        os.tcsetpgrp(terminal, group)
    except OSError:
        return  # hung up, or the group is gone


def serve(agent: int, terminal: "int | None", wakeup: int) -> int:
    """Forward and collect until the agent has ended; its exit status."""
    poller = select.poll()
    poller.register(wakeup, select.POLLIN)
    while True:
        poller.poll()
        for number in os.read(wakeup, 4096):
            if number in FORWARDED:
                _signal_group(agent, number)
        status = _collect(agent, terminal)
        if status is not None:
            return status


def _collect(agent: int, terminal: "int | None") -> "int | None":
    """Reap whoever has ended; the agent's exit status if it was among them."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if pid != agent:
            continue
        if os.WIFSTOPPED(status):
            _resume(agent, os.WSTOPSIG(status), terminal)
        elif os.WIFSIGNALED(status):
            ended = EXIT_SIGNAL_BASE + os.WTERMSIG(status)
        else:
            ended = os.WEXITSTATUS(status)


def _resume(agent: int, number: int, terminal: "int | None") -> None:
    """Ctrl-Z in an agent that is no shell: there is nothing to come back to, so go on.

    A STOP that somebody sent on purpose stays.
    """
    if number == signal.SIGTSTP:
        give_terminal(terminal, agent)
        _signal_group(agent, signal.SIGCONT)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        return  # gone already
