"""Sockets of one command's own, inside the capsule; who answers on them is the broker.

They are made where the command's files are, in a tmpfs that its mount namespace alone has, and the
listening end goes to the broker before the command is started. It refuses to know what is said
over them. Invariants: nobody beside the command can reach one; no process here can answer on it.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
else:
    try:
        import _socket as socket
    except ImportError:  # an interpreter with another socket module
        import socket

# A ssh, a git and what they start at once, until the broker's next turn.
_BACKLOG = 16
_MODE = 0o600


def listen_at(paths: "Sequence[bytes]") -> "list[int]":
    """A listening socket at each path, for the command's own uid alone.

    Raises: OSError.
    """
    found: list[int] = []
    for path in paths:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(path)
        os.chmod(path, _MODE)
        sock.listen(_BACKLOG)
        found.append(sock.detach())
    return found


def give_away(control: int, listeners: "Sequence[int]") -> None:
    """Send them to the broker, in order, and close them here.

    Raises: OSError.
    """
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, control)
    for fd in listeners:
        rights = fd.to_bytes(4, sys.byteorder)
        channel.sendmsg([b"socket"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(fd)
    channel.detach()
