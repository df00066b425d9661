"""Init's connection to the broker: the runner's channel (DESIGN §4, §9).

The kernel tells the broker which process connected, and the broker takes the recorded init for
one: nobody else, and nobody by asking first. So a broker that was restarted gets its channel by
our connecting again, without a moment in which another could have it. It refuses to know what is
spawned. Invariants: no value crosses here, jobs come as descriptors; the descriptors of a message
that is not understood are closed.
"""

import errno
import os
import sys
import time

from .wire import MESSAGE, PROTOCOL, Fault, Frames, message, socket_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    from .spawning import Spawner
    from .wire import Message
else:
    try:
        import _socket as socket
    except ImportError:  # an interpreter with another socket module
        import socket

# After the channel was lost: the launcher opens the capsule again once a second, and init is
# unknown until then. A capsule without a broker pays one failed connect a second.
RETRY_S = 1.0
# What this init can do beside running commands: a broker may be newer than a capsule that runs.
SKILLS = ("look", "sockets")
_FIRST_RETRY_S = 1.25  # after the launcher's own first try
_RECEIVE_BYTES = 64 * 1024
_FDS_MAX = 16
_FD_BYTES = 4


class Channel:
    """A connection that is made again when it is lost. `fd` is -1 while there is none."""

    def __init__(self, spawner: "Spawner", isolation: str) -> None:
        self._spawner = spawner
        self._hello = message("InitReady", protocol=PROTOCOL, isolation=isolation, skills=SKILLS)
        self._sock: socket.socket | None = None
        self._frames = Frames()
        self._descriptors: list[int] = []
        self._retry_at = 0.0
        self._connect()

    @property
    def fd(self) -> int:
        """What to wait for."""
        return -1 if self._sock is None else self._sock.fileno()

    def timeout_ms(self) -> "int | None":
        """How long to wait at most before `tick`."""
        if self._sock is not None:
            return None
        return max(0, int((self._retry_at - time.monotonic()) * 1000) + 1)

    def tick(self) -> None:
        """Do what is due."""
        if self._sock is None and time.monotonic() >= self._retry_at:
            self._connect()

    def read(self) -> None:
        """Obey what arrived."""
        assert self._sock is not None
        try:
            arrived = self._receive(self._sock)
            for kind, found in self._frames.feed(memoryview(arrived)):
                if kind == MESSAGE and isinstance(found, dict):
                    self._obey(found)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return
            arrived = b""
        except Fault:
            arrived = b""
        if not arrived:
            self._lose()

    def _connect(self) -> None:
        self._retry_at = time.monotonic() + RETRY_S
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(socket_path())
            sock.send(self._hello)
        except OSError:
            sock.close()
            return
        self._sock, self._frames = sock, Frames()

    def _lose(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._close_descriptors()
        self._retry_at = time.monotonic() + _FIRST_RETRY_S

    def _receive(self, sock: "socket.socket") -> bytes:
        room = socket.CMSG_SPACE(_FDS_MAX * _FD_BYTES)
        arrived, ancillary, _, _ = sock.recvmsg(_RECEIVE_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in ancillary:
            if (level, kind) != (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                continue
            for start in range(0, len(content) - _FD_BYTES + 1, _FD_BYTES):
                number = int.from_bytes(content[start : start + _FD_BYTES], sys.byteorder)
                self._descriptors.append(number)
        return arrived

    def _obey(self, found: "Message") -> None:
        request_id, number = found.get("request_id"), found.get("number")
        if found["type"] in ("Spawn", "Look") and isinstance(request_id, str):
            descriptors, self._descriptors = self._descriptors, []
            start = self._spawner.spawn if found["type"] == "Spawn" else self._spawner.look
            start(request_id, descriptors)
        elif found["type"] == "Kill" and isinstance(request_id, str) and isinstance(number, int):
            self._spawner.kill(request_id, number)
        elif found["type"] in ("ExecDenied", "Error"):
            raise Fault("not taken for init", "the launcher has to record it first")

    def _close_descriptors(self) -> None:
        for fd in self._descriptors:
            os.close(fd)
        self._descriptors.clear()
