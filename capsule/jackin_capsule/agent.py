"""Whoever stands over the agent: starts it, passes signals on, collects orphans, says how it ended.

It refuses to know the broker and namespaces: it is process 1 of the agent's own ones, or the
capsule's first process where there are none. Invariants: the agent inherits no descriptor but the
standard ones, no signal handling of ours and no capability; it stays in the session that it was
started in, because a controlling terminal belongs to a session: as a process group of its own in
the foreground, so that Ctrl-C reaches it once and nobody above it, and a shell has job control.
"""

import errno
import posix
import select

from . import EXIT_NOT_RUN, end_process, kernel
from .apart import fork_apart

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping
    from typing import NoReturn
else:
    try:
        import _signal as signal
    except ImportError:  # an interpreter with another signal module
        import signal

EXIT_SIGNAL_BASE = 128
EXIT_NOT_FOUND = 127
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
CAUGHT = (*FORWARDED, signal.SIGCHLD)
# Python ignores them for itself; a program expects them as they are by default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# More than a login's usual limit of open files; closing what is not open costs nothing.
DESCRIPTORS_MAX = 65_536
# Where our own programs are, and a link for each program of the host's.
PROGRAMS_DIR = b"/jackin/bin"
# What execvp(3) searches where there is no PATH.
_DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"


class Supervisor:
    """One agent. `react` to whatever `wakeup` says, until there is a status."""

    def __init__(self, argv: "list[str]", uid: "int | None" = None) -> None:
        """`uid`: whom the agent becomes, where we are root."""
        self._argv = argv
        self._uid = uid
        self._terminal: int | None = None
        self._agent = 0
        self._is_apart = False
        self._collected: Callable[[int], None] = _nobody
        self.wakeup = -1

    def start_apart(self) -> None:
        """Start the agent under a supervisor of its own, which is process 1 of its namespaces.

        Raises: OSError where the kernel allows no namespaces; nothing runs then.
        """
        self.wakeup = catch_signals()
        self._is_apart = True
        self._agent = fork_apart(Supervisor(self._argv, self._uid).supervise)

    def supervise(self) -> "NoReturn":
        """Start the agent here, and leave with its status."""
        self.start()
        poller = select.poll()
        poller.register(self.wakeup, select.POLLIN)
        status = None
        while status is None:
            poller.poll()
            status = self.react()
        end_process(status)

    def start(self) -> None:
        """Start the agent as a process group of its own, in the foreground."""
        self._is_apart = False
        self._terminal = find_terminal()
        self.wakeup = catch_signals()
        if self._terminal is None and self._uid is None:
            self._agent = self._spawned()
            if self._agent:
                return
        signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
        self._agent = posix.fork()
        if self._agent == 0:
            self._be_agent()
        _make_group(self._agent)  # both sides do: neither may run ahead of the other
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)

    def _spawned(self) -> int:
        """The agent's pid, started without a copy of our memory; 0 where that cannot be."""
        keep_to_ourselves()
        for path in found_on_path(self._argv[0], posix.environ):
            if not posix.access(path, posix.X_OK):
                continue
            try:
                return posix.posix_spawn(
                    path,
                    self._argv,
                    posix.environ,
                    setpgroup=0,
                    setsigmask=(),
                    setsigdef=(*CAUGHT, signal.SIGTTOU, *_IGNORED_BY_PYTHON),
                )
            except OSError:
                continue  # the way by fork finds the same, and says it
        return 0

    def react(self) -> "int | None":
        """Forward what arrived and collect who ended; the agent's exit status once it has one."""
        for number in posix.read(self.wakeup, 4096):
            if number in FORWARDED:
                self._signal(number)
        status = self._collect()
        if status is not None:
            give_terminal(self._terminal, posix.getpgrp())
        return status

    def end(self) -> None:
        """Ask the agent to end."""
        self._signal(signal.SIGTERM)

    def tell_collected(self, tell: "Callable[[int], None]") -> None:
        """Call this with the pid of every other child that was reaped, from now on."""
        self._collected = tell

    def _collect(self) -> "int | None":
        ended = None
        while True:
            try:
                pid, status = posix.waitpid(-1, posix.WNOHANG | posix.WUNTRACED)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid != self._agent:
                if not posix.WIFSTOPPED(status):
                    self._collected(pid)
            elif posix.WIFSTOPPED(status):
                self._resume(posix.WSTOPSIG(status))
            else:
                ended = exit_status(status)

    def _resume(self, number: int) -> None:
        """Ctrl-Z in an agent that is no shell: there is nothing to come back to, so go on.

        A STOP that somebody sent on purpose stays.
        """
        if number == signal.SIGTSTP:
            give_terminal(self._terminal, self._agent)
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        send = posix.kill if self._is_apart else posix.killpg
        try:
            send(self._agent, number)
        except OSError:
            return  # gone already

    def _be_agent(self) -> "NoReturn":
        """In the new process: become the agent, or say why not."""
        status = EXIT_NOT_RUN
        try:
            _make_group(0)
            give_terminal(self._terminal, posix.getpid())
            become(self._uid)
            restore_signals()
            posix.closerange(3, DESCRIPTORS_MAX)
            execute(self._argv, {**posix.environ, **home_of(self._uid)})
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                status = EXIT_NOT_FOUND
            from .problems import report

            report(
                f"cannot start {self._argv[0]}: {error.strerror}",
                "check that the command is in the capsule and executable",
                "jackin-capsule",
            )
        finally:
            end_process(status)


def exit_status(status: int) -> int:
    """What a shell would exit with for a wait status."""
    if posix.WIFSIGNALED(status):
        return EXIT_SIGNAL_BASE + posix.WTERMSIG(status)
    return posix.WEXITSTATUS(status)


def become(uid: "int | None") -> None:
    """Have another uid, no group but its own, and no way back; nothing for None.

    Raises: OSError.
    """
    if uid is not None:
        kernel.no_new_privileges()  # a set-uid program would be root, who reads everybody
        posix.setgroups([])
        posix.setresgid(uid, uid, uid)
        posix.setresuid(uid, uid, uid)


def execute(argv: "list[str]", env: "Mapping[bytes, bytes]") -> "NoReturn":
    """Be this program, found on the PATH of `env`: execvp(3), without what `os` costs to import.

    Raises: OSError.
    """
    refused = errno.ENOENT
    for path in found_on_path(argv[0], env):
        try:
            posix.execve(path, argv, env)
        except OSError as error:
            if error.errno == errno.EACCES:
                refused = errno.EACCES
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
    raise OSError(refused, posix.strerror(refused))


def found_on_path(name: str, env: "Mapping[bytes, bytes]") -> "list[bytes]":
    """Where an agent's program of this name may be, in order.

    The capsule's own comes first: a link of the same name would have the host run the agent.
    """
    raw = name.encode("utf-8", "surrogateescape")
    if b"/" in raw:
        return [raw]
    places = env.get(b"PATH", _DEFAULT_PATH).split(b":")
    places.sort(key=PROGRAMS_DIR.__eq__)
    return [place + b"/" + raw for place in places]


def keep_to_ourselves() -> None:
    """What we inherited besides the standard descriptors goes no further."""
    for name in posix.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                posix.set_inheritable(int(name), False)
            except OSError:
                continue  # the one that listed the directory


def home_of(uid: "int | None") -> "dict[bytes, bytes]":
    """The HOME of whoever we have become: what its system says, or none of anybody's."""
    if uid is None:
        return {}
    import pwd

    try:
        return {b"HOME": pwd.getpwuid(uid).pw_dir.encode("utf-8", "surrogateescape")}
    except KeyError:
        return {b"HOME": b"/"}


def find_terminal() -> "int | None":
    """A descriptor of our controlling terminal, taking stdin as one where we have none."""
    try:
        return posix.open("/dev/tty", posix.O_RDWR | posix.O_CLOEXEC)
    except OSError:
        pass  # none, or no such device in this capsule
    if not posix.isatty(0):
        return None
    try:
        posix.tcgetpgrp(0)
    except OSError:
        import fcntl
        import termios

        try:
            if posix.getsid(0) != posix.getpid():
                posix.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        except OSError:  # somebody else's: the agent goes without job control
            return None
    return 0


def give_terminal(terminal: "int | None", group: int) -> None:
    """Put a process group into the terminal's foreground, where there is one."""
    if terminal is None or group <= 0:  # 0: a group from outside this PID namespace
        return
    try:
        posix.tcsetpgrp(terminal, group)
    except OSError:
        return  # hung up, or the group is gone


def catch_signals() -> int:
    """Handlers for what is forwarded and for SIGCHLD; the pipe that their numbers arrive in."""
    reader, writer = posix.pipe()
    posix.set_blocking(writer, False)
    posix.set_blocking(reader, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in CAUGHT:
        signal.signal(number, _noted)
    # Giving the terminal away from the background stops whoever does not ignore this.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    return reader


def restore_signals() -> None:
    """Before a program is executed: every signal as it is by default, none held back."""
    signal.set_wakeup_fd(-1)
    for number in (*CAUGHT, signal.SIGTTOU, *_IGNORED_BY_PYTHON):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)


def _nobody(_pid: int) -> None:
    """Nobody wants to know."""


def _noted(_number: int, _frame: object) -> None:
    """The wake-up pipe has it already."""


def _make_group(pid: int) -> None:
    try:
        posix.setpgid(pid, pid)
    except OSError:
        return  # it is one already, or has become the agent and did it itself
