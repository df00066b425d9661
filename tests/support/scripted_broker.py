"""A broker that does what a test says, and a shim as a real process to speak with it.

The peer speaks through the broker's own `frames.py` and `protocol.py`, so that what the shim says
is judged by the code that will read it. It refuses to decide anything. Every wait is bounded.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TypeVar

import msgspec

from jackin_broker import protocol
from jackin_broker.frames import DataFrame, FrameDecoder, Stream, data_frames, message_frame
from support.real import SYSTEM_PYTHON

# A loaded two-core machine starts an interpreter in a second; only a hang takes longer.
WAIT_S: Final = 20.0
REQUEST_ID: Final = "r-1"
CAPSULE_ROOM: Final = Path(__file__).resolve().parents[2] / "capsule"

M = TypeVar("M", bound=msgspec.Struct)
Item = protocol.FromCapsule | DataFrame


def interpreters() -> list[str]:
    """The system's Python, and each other version that a capsule may have and this machine has."""
    found = [SYSTEM_PYTHON if os.path.exists(SYSTEM_PYTHON) else sys.executable]
    for minor in range(9, 16):
        path = shutil.which(f"python3.{minor}")
        if path is None or os.path.basename(os.path.realpath(found[0])) == f"python3.{minor}":
            continue
        probe = [path, "-I", "-S", "-c", "pass"]
        if subprocess.run(probe, capture_output=True, timeout=WAIT_S).returncode == 0:
            found.append(path)
    return found


class Peer:
    """One accepted shim."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._decoder = FrameDecoder(max_message_bytes=protocol.MESSAGE_FROM_CAPSULE_MAX_BYTES)
        self._items: deque[Item] = deque()

    def receive(self) -> Item | None:
        """The next message or data frame; None when the shim has gone."""
        while not self._items:
            try:
                arrived = self._sock.recv(1 << 20)
            except ConnectionResetError:  # it left with some of ours unread
                arrived = b""
            if not arrived:
                return None
            for frame in self._decoder.feed(arrived):
                is_data = isinstance(frame, DataFrame)
                self._items.append(frame if is_data else protocol.decode_from_capsule(frame.body))
        return self._items.popleft()

    def expect(self, kind: type[M]) -> M:
        """The next item, which is a message of this kind."""
        item = self.receive()
        assert isinstance(item, kind), f"expected {kind.__name__}, got {item!r:.300}"
        return item

    def expect_data(self, size: int) -> bytes:
        """So many bytes of stdin, in however many frames."""
        got = b""
        while len(got) < size:
            item = self.receive()
            assert isinstance(item, DataFrame), f"expected stdin, got {item!r:.300}"
            assert item.stream is Stream.STDIN
            got += item.data
        assert len(got) == size
        return got

    def rest(self) -> list[Item]:
        """All that still comes until the shim has gone."""
        return list(iter(self.receive, None))

    def send(self, *messages: msgspec.Struct) -> None:
        for message in messages:
            body = protocol.encode(message)
            self.send_raw(message_frame(body, max_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES))

    def send_data(self, stream: Stream, content: bytes) -> None:
        self.send_raw(b"".join(data_frames(stream, content)))

    def send_raw(self, content: bytes) -> None:
        self._sock.sendall(content)

    def start(self, *, window: int = protocol.STDIN_WINDOW_BYTES) -> None:
        """The command runs."""
        self.send(
            protocol.ExecStarted(REQUEST_ID, protocol.Target.HOST, ("TOK",), stdin_window=window)
        )

    def end(self, exit_code: int, ended_by: protocol.EndedBy = protocol.EndedBy.EXIT) -> None:
        """The command has ended."""
        self.send(protocol.ExecResult(exit_code, 0, 0.1, ended_by))

    def close(self) -> None:
        self._sock.close()


class ScriptedBroker:
    """Listens at `path`; the test accepts and answers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.settimeout(WAIT_S)
        self._listener.bind(str(path))
        self._listener.listen()
        self._peers: list[Peer] = []

    def accept(self) -> Peer:
        sock, _ = self._listener.accept()
        sock.settimeout(WAIT_S)
        peer = Peer(sock)
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self._listener.close()


class ShimPrograms:
    """The shim under the names that a test wants, started as an agent starts it."""

    def __init__(self, folder: Path, socket_path: Path, interpreter: str) -> None:
        self._folder = folder
        self._interpreter = interpreter
        self.env = {
            "PATH": f"{folder}:/usr/bin:/bin",
            "JACKIN_BROKER_SOCKET": str(socket_path),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "HOME": str(folder),
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def program(self, name: str) -> str:
        """The path of a launcher by this name; other names than our own are links to it."""
        if name not in ("jackin-exec", "jackin-capsule"):
            link = self._folder / name
            if not link.is_symlink():
                link.symlink_to(self.program("jackin-exec"))
            return str(link)
        path = self._folder / name
        if not path.exists():
            path.write_text(
                f"#!{self._interpreter} -IS\n"
                "import sys\n"
                f"sys.path.insert(0, {str(CAPSULE_ROOM)!r})\n"
                "from jackin_capsule.shim import main\n"
                "main(sys.argv)\n"
            )
            path.chmod(0o755)
        return str(path)

    def start(
        self,
        *args: str | bytes,
        name: str = "jackin-exec",
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        cwd: Path | str | None = None,
        through: Sequence[str] = (),
        process_group: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """A running shim; `through` is a command that is put before it, to set something up."""
        process = subprocess.Popen(
            [*through, self.program(name), *args],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd or self._folder,
            env=self.env,
            process_group=process_group,
        )
        self._running.append(process)
        return process

    def run(self, *args: str | bytes, name: str = "jackin-exec") -> tuple[int, str, str]:
        """Exit status, stdout and stderr of one that needs no broker's answer."""
        process = self.start(*args, name=name)
        out, err = process.communicate(timeout=WAIT_S)
        return process.returncode, out.decode(), err.decode()

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait(WAIT_S)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@contextmanager
def scripted(folder: Path, interpreter: str) -> Generator[tuple[ScriptedBroker, ShimPrograms]]:
    """A broker and shims that find it, both gone afterwards."""
    broker = ScriptedBroker(folder / "broker.sock")
    shims = ShimPrograms(folder, broker.path, interpreter)
    try:
        yield broker, shims
    finally:
        shims.close()
        broker.close()


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Exit status, stdout and stderr; empty for what was redirected."""
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out or b"", err or b""


def error_and_hint(stderr: bytes) -> tuple[str, str]:
    """The two lines, and nothing else, that a failure prints."""
    lines = stderr.decode().splitlines()
    assert len(lines) == 2, lines
    error, hint = lines
    assert error.startswith("jackin-exec: error: ")
    assert hint.startswith("jackin-exec: hint: ")
    return error.removeprefix("jackin-exec: error: "), hint.removeprefix("jackin-exec: hint: ")
