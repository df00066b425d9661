"""A command's terminal, made inside the capsule; its master goes to the broker.

Made here it has a name here (`tty`: /dev/pts/N), and Ctrl-C, sizes and job control work. It
refuses to know the command. Invariants: the leader leads the session, so that a stop comes back;
the size is there before the command is executed.
"""

import fcntl
import os
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    try:
        import _socket as socket
    except ImportError:  # an interpreter with another socket module
        import socket

# c_iflag's IUTF8 (termios(3)), which Python has no name for: Backspace takes a whole character.
_IUTF8 = 0o40000


def open_terminal(control: int, size: "tuple[int, int]", uid: "int | None") -> int:
    """The command's end of a new terminal, this session's; the master went through `control`.

    Shape: `size` is (rows, columns). Raises: OSError.
    """
    master, inner = os.openpty()
    cells = b"".join([number.to_bytes(2, sys.byteorder) for number in size])
    fcntl.ioctl(inner, termios.TIOCSWINSZ, cells + bytes(4))
    modes = termios.tcgetattr(inner)
    modes[0] |= _IUTF8
    termios.tcsetattr(inner, termios.TCSANOW, modes)
    if uid is not None:
        os.fchown(inner, uid, -1)
    fcntl.ioctl(inner, termios.TIOCSCTTY, 0)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, control)
    rights = master.to_bytes(4, sys.byteorder)
    channel.sendmsg([b"terminal"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    channel.detach()
    os.close(master)
    return inner


def take_terminal(inner: int) -> None:
    """Put our own group into its foreground; SIGTTOU is ignored until then."""
    os.tcsetpgrp(inner, os.getpgrp())
