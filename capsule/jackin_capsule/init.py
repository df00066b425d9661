"""Process 1 of a capsule: the agent on one side, commands with credentials on the other.

Where it may make namespaces (`apart.py`), the agent gets one set and each command another; where
it is root it can give them different uids; else they are neighbours, and the broker is told so. It
exits with the agent's status, and the kernel ends everything with it. It refuses to know policy.
Invariants: not dumpable, so that an agent of the same uid cannot read it; the agent inherits no
descriptor but the standard ones. The agent comes first: what commands need is loaded while it
starts, from places that no agent of another uid than init's can write.
"""

import posix
import select
import time

from . import Fault, kernel
from .agent import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .channel import Channel

_UID_MAX = 2**32 - 2
# Between asking an agent to end whose launcher has gone, and ending it; launch's own.
END_GRACE_S = 2.0
# The shortest agents end in this time, and need no channel.
_FIRST_LOOK_MS = 25
_EXIT_TERMINATED = 128 + 15


class Options:
    """`[--uid N] [--run-as N] [--gate F] [--] COMMAND [ARG…]`."""

    def __init__(self, words: "list[str]") -> None:
        """Raises: Fault."""
        self.uid: int | None = None  # the agent's
        self.run_as: int | None = None  # the commands'
        self.gate = ""  # the launcher's pipe: its path, or its number here
        self.argv: list[str] = []
        rest = list(words)
        while rest and rest[0].startswith("-"):
            word = rest.pop(0)
            if word == "--":
                break
            self._take(word, rest)
        if not rest:
            raise Fault("no command to start", "put it after the options: init -- COMMAND [ARG…]")
        if self.run_as is not None and self.run_as == self.uid:
            raise Fault("--run-as is the agent's own uid", "give commands a uid of their own")
        self.argv = rest

    def _take(self, word: str, rest: "list[str]") -> None:
        name, is_joined, value = word.partition("=")
        if name not in ("--uid", "--run-as", "--gate"):
            raise Fault(f"unknown option {word}", "see `jackin-capsule init --help`")
        if not is_joined:
            value = rest.pop(0) if rest else ""
        if name == "--gate":
            self.gate = value
            return
        if not value.isdigit() or int(value) > _UID_MAX:
            raise Fault(f"{name} needs a uid", "leave it to launch")
        if name == "--uid":
            self.uid = int(value)
        else:
            self.run_as = int(value)


def init(words: "list[str]") -> int:
    """Be init for `words`; the agent's exit status.

    Raises: Fault.
    """
    options = Options(words)
    harden()
    base = {**posix.environ}
    gate = pass_gate(options.gate) if options.gate else -1
    agent = Supervisor(options.argv, options.uid)
    isolation = start(agent, options)
    status = first_look(agent)
    if status is not None:
        return status
    return serve(agent, open_channel(agent, isolation, options.run_as, base), gate)


def harden() -> None:
    """Nobody of our uid reads our memory; orphans come to us also where we are not process 1.

    Raises: Fault.
    """
    try:
        kernel.forbid_dumps()
        if posix.getpid() != 1:
            kernel.become_subreaper()
    except OSError as error:
        raise Fault(
            f"prctl failed: {error.strerror}", "the capsule's kernel must be Linux 3.4 or later"
        ) from error


def start(agent: Supervisor, options: Options) -> str:
    """Start the agent, apart where that is possible; the broker's word (`Isolation`) for it."""
    if posix.getpid() == 1:
        try:
            agent.start_apart()
        except OSError:
            pass  # no capability here, as in most containers
        else:
            return "namespaces"
    agent.start()
    return "uid" if options.run_as is not None else "none"


def first_look(agent: Supervisor) -> "int | None":
    """The status of an agent that ends at once."""
    poller = select.poll()
    poller.register(agent.wakeup, select.POLLIN)
    return agent.react() if poller.poll(_FIRST_LOOK_MS) else None


def open_channel(
    agent: Supervisor, isolation: str, run_as: "int | None", base: "dict[bytes, bytes]"
) -> "Channel":
    """The channel to the broker, and who starts commands."""
    from .channel import Channel
    from .spawning import Spawner

    spawner = Spawner(isolation, run_as, base)
    agent.tell_collected(spawner.collected)
    return Channel(spawner, isolation)


def pass_gate(path: str) -> int:
    """Wait until the launcher has put us on record; a pipe that ends when the launcher does.

    Raises: Fault.
    """
    try:
        if path.isdigit():
            gate = int(path)
            posix.set_blocking(gate, False)
            posix.set_inheritable(gate, False)
        else:
            # Not blocking: one that waits would wait for ever where the launcher is gone already.
            gate = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
        has_come = _read_gate(gate)
    except OSError as error:
        raise Fault(f"{path}: {error.strerror}", "leave --gate to launch") from error
    if not has_come:
        raise Fault("the launcher has gone", "launch the capsule again")
    return gate


def _read_gate(gate: int) -> bytes:
    """The launcher's byte; nothing when it holds the other end no more."""
    poller = select.poll()
    poller.register(gate, select.POLLIN)
    while True:
        try:
            return posix.read(gate, 1)
        except BlockingIOError:
            poller.poll()


def serve(agent: Supervisor, channel: "Channel", gate: int = -1) -> int:
    """Forward, collect and spawn until the agent has ended; its exit status."""
    kill_at: float | None = None
    while True:
        poller = select.poll()
        poller.register(agent.wakeup, select.POLLIN)
        if channel.fd >= 0:
            poller.register(channel.fd, select.POLLIN)
        if gate >= 0 and kill_at is None:
            poller.register(gate, 0)  # its end is always told
        for fd, _ in poller.poll(_sooner(channel.timeout_ms(), kill_at)):
            if fd == agent.wakeup:
                status = agent.react()
                if status is not None:
                    return status
            elif fd == gate:
                agent.end()
                kill_at = time.monotonic() + END_GRACE_S
            else:
                channel.read()
        if kill_at is not None and time.monotonic() >= kill_at:
            return _EXIT_TERMINATED
        channel.tick()


def _sooner(timeout_ms: "int | None", at: "float | None") -> "int | None":
    if at is None:
        return timeout_ms
    left_ms = max(0, int((at - time.monotonic()) * 1000) + 1)
    return left_ms if timeout_ms is None else min(timeout_ms, left_ms)
