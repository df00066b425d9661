"""A terminal for the leader's command: made where the command runs, its master sent to the broker.

Its code travels with the job and is loaded for terminals alone. Made inside the namespaces, the
terminal has a name there (`tty`: /dev/pts/0), and what is pushed into it (TIOCSTI) reaches the
command's own input. It refuses to know the leader. Invariants: the leader leads the session, the
command a group of its own below it, so stops work; that group is the foreground before the command
is executed, so its first read works; the size is there by then.
"""

from __future__ import annotations

import fcntl
import os
import sys
import termios

TYPE_CHECKING = False  # as in the leader
if TYPE_CHECKING:
    from .leader import Job

# The C halves, for what `signal` and `socket` cost to import.
_signal = __import__("_signal")
_socket = __import__("_socket")

# c_iflag's IUTF8 (termios(3)), which Python has no name for: Backspace takes a whole character.
_IUTF8 = 0o40000
_ERRNO_MAX_BYTES = 16


def make(control: int, rows: int, cols: int, is_plain: bool) -> int:
    """The command's end of a new terminal, this session's; the master went through `control`.

    `is_plain`: a newline stays a newline, for a caller that is no terminal.
    Raises: OSError.
    """
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (rows, cols))
    modes = termios.tcgetattr(slave)
    modes[0] |= _IUTF8
    if is_plain:
        modes[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, control)
    rights = master.to_bytes(4, sys.byteorder)
    channel.sendmsg([b"terminal"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    channel.detach()
    os.close(master)
    return slave


def start(job: Job, slave: int, reset: tuple[int, ...]) -> int:
    """The pid of the started command, in the foreground of the terminal.

    Raises: OSError; the kernel's own answer to execve(2) among them.
    """
    reads, writes = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            _become(job, slave, reset)
        except OSError as error:
            os.write(writes, b"%d" % (error.errno or 0))
        finally:
            os._exit(127)
    os.close(writes)
    code = os.read(reads, _ERRNO_MAX_BYTES)
    os.close(reads)
    if code:
        os.waitpid(pid, 0)
        raise OSError(int(code), os.strerror(int(code)))
    return pid


def _become(job: Job, slave: int, reset: tuple[int, ...]) -> None:
    """The forked child: SIGTTOU is still ignored, so it may take the foreground."""
    os.setpgid(0, 0)
    os.tcsetpgrp(slave, os.getpgrp())
    for number in range(3):
        os.dup2(slave, number)
    for number in reset:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    os.execve(job["path"], job["argv"], job["env"])  # noqa: S606 - no shell, as everywhere
