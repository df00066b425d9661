"""From the broker's `Spawn` to a leader that runs: who is forked, where, with which descriptors.

It refuses to know the connection. Invariants: init itself never reads a job; a leader holds the
descriptors of its own command and no other's; a job that cannot be read is reported on its own
control socket.
"""

import errno
import os

from . import kernel
from .agent import become
from .apart import fork_apart
from .command import STAGE_CWD, STAGE_EXEC, Leader
from .command_sockets import listen_at
from .jobs import Job, look_for, read_job
from .wire import Fault

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

# job, control, life; then stdin, stdout, stderr unless the command has a terminal.
DESCRIPTORS = (3, 6)
# Where deliveries put files, in memory: the broker's `COMMAND_DIR`.
COMMAND_DIR = b"/run/jackin"
_FILES_OPTIONS = b"mode=0700,size=16m"
# A file system that the agent made may never answer; the kernel ends who looks there.
_LOOK_S = 10
FOUND = b"found"
_FILES_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


class Spawner:
    """Starts leaders. `uid` is whom commands become, where that is not the agent."""

    def __init__(self, isolation: str, uid: "int | None", base: "dict[bytes, bytes]") -> None:
        self._isolation = isolation
        self._uid = uid
        self._base = base
        self._leaders: dict[str, int] = {}

    def spawn(self, request_id: str, descriptors: "Sequence[int]") -> None:
        """Start the leader of a command; the descriptors are closed here."""
        start = _Start(self._base, self._uid, descriptors)
        try:
            if self._isolation == "namespaces":
                pid = fork_apart(start.lead, before=[start.prepare])
            else:
                pid = os.fork()
                if pid == 0:
                    start.lead_here()
            self._leaders[request_id] = pid
        except OSError as error:
            start.fail(error.errno or errno.EIO)
        finally:
            for fd in descriptors:
                os.close(fd)

    def look(self, request_id: str, descriptors: "Sequence[int]") -> None:
        """Say on its control socket whether a job's program is there; nothing is run.

        In a process of its own, as the command's own uid. The descriptors are closed here.
        """
        start = _Start(self._base, self._uid, descriptors)
        try:
            pid = os.fork()
            if pid == 0:
                start.look_here()
            self._leaders[request_id] = pid
        except OSError as error:
            start.fail(error.errno or errno.EIO)
        finally:
            for fd in descriptors:
                os.close(fd)

    def kill(self, request_id: str, number: int) -> None:
        """Signal a leader; as process 1 its end is the end of all that it led."""
        pid = self._leaders.get(request_id)
        if pid is not None:
            try:
                os.kill(pid, number)
            except OSError:
                return  # it ended just now

    def collected(self, pid: int) -> None:
        """A child was reaped; its number may be another's from now on."""
        for request_id, leader in list(self._leaders.items()):
            if leader == pid:
                del self._leaders[request_id]


class _Start:
    """One leader, in its own process from `prepare` on."""

    def __init__(
        self, base: "dict[bytes, bytes]", uid: "int | None", descriptors: "Sequence[int]"
    ) -> None:
        self._base = base
        self._uid = uid
        self._fds = tuple(descriptors)
        self._job: Job | None = None
        self._listeners: list[int] = []

    def prepare(self) -> None:
        """Read the job and put its files in place.

        Raises: OSError.
        """
        try:
            self._job = read_job(self._fds[0], self._base)
        except Fault:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO)) from None
        if self._job.files or self._job.sockets:
            _mount_files(self._job.files, self._job.sockets)
            self._listeners = listen_at(self._job.sockets)

    def lead(self) -> "NoReturn":
        """Let go of everything of init's, and be the leader."""
        try:
            self._keep_own()
            assert self._job is not None
            Leader(self._job, self._fds[1], self._fds[3:], self._uid, self._listeners).lead()
        finally:
            os._exit(1)

    def lead_here(self) -> "NoReturn":
        """The same in init's own namespaces."""
        try:
            self.prepare()
            self.lead()
        except OSError as error:
            self.fail(error.errno or errno.EIO)
        finally:
            os._exit(1)

    def look_here(self) -> "NoReturn":
        """Look, say what was found, and leave."""
        stage = STAGE_EXEC
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_LOOK_S)
            self._keep_own()
            job = read_job(self._fds[0], self._base)
            become(self._uid)
            stage = STAGE_CWD
            os.chdir(job.cwd)
            stage = STAGE_EXEC
            look_for(job)
            os.write(self._fds[1], FOUND)
        except OSError as error:
            self.fail(error.errno or errno.EIO, stage)
        finally:
            os._exit(0)

    def fail(self, code: int, stage: bytes = STAGE_EXEC) -> None:
        """Say on the command's control socket that it never ran."""
        try:
            os.write(self._fds[1], b"failed %s %d" % (stage, code))
        except OSError:
            return  # the broker has gone

    def _keep_own(self) -> None:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in range(3):
            os.dup2(null, number)
        kept = {0, 1, 2, *self._fds, *self._listeners}
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in kept:
                try:
                    os.close(int(name))
                except OSError:
                    continue  # the one that listed the directory


def _mount_files(files: "Sequence[tuple[bytes, bytes]]", sockets: "Sequence[bytes]") -> None:
    """The command's own files, in memory, where its namespace alone sees them; no socket yet.

    Raises: OSError.
    """
    if not os.path.isdir(COMMAND_DIR):
        os.mkdir(COMMAND_DIR, 0o700)
    kernel.mount(b"tmpfs", COMMAND_DIR, b"tmpfs", _FILES_FLAGS, _FILES_OPTIONS)
    for path in (*[path for path, _ in files], *sockets):
        if os.path.dirname(path) != COMMAND_DIR:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    for path, content in files:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        with open(fd, "wb") as file:
            file.write(content)
