"""A flood through the shim: to the bit however it is cut, in fewer waits, and no pipe shrinks.

The broker is scripted; the shim is a real process on each interpreter of this machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker.frames import Stream, data_frames, message_frame
from jackin_broker.protocol import (
    DATA_FRAME_MAX_BYTES,
    MESSAGE_TO_CAPSULE_MAX_BYTES,
    ExecCommand,
    StdinCredit,
    encode,
)
from jackin_capsule.flood import PIPE_BYTES
from support.scripted_broker import (
    WAIT_S,
    Peer,
    ScriptedBroker,
    ShimPrograms,
    finish,
    interpreters,
    scripted,
)

ORDINARY_BYTES = 64 * 1024
# More than call.py's BUSY_BYTES, and no more than a socket holds by default.
FLOOD_BYTES = 150_000

Scene = tuple[ScriptedBroker, ShimPrograms]


@pytest.fixture(params=interpreters(), ids=os.path.basename)
def scene(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scripted(short_tmp, request.param) as both:
        yield both


def begin(scene: Scene, stdout: int, stderr: int) -> tuple[subprocess.Popen[bytes], Peer]:
    """A shim whose command has started; its ends of the two are the test's no more."""
    broker, shims = scene
    process = shims.start("tool", stdout=stdout, stderr=stderr)
    for fd in {stdout, stderr}:
        os.close(fd)
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    return process, peer


class Reading(threading.Thread):
    """Reads a pipe to its end, as fast as it comes."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.digest = hashlib.sha256()
        self.capacity_bytes = 0
        self._fd = fd
        self.start()

    def run(self) -> None:
        while piece := os.read(self._fd, 1 << 20):
            self.digest.update(piece)
            self.capacity_bytes = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
        os.close(self._fd)


def test_a_flood_on_both_streams_arrives_to_the_bit_however_it_is_cut(scene: Scene) -> None:
    """Messages in between, whole frames, frames in parts, and cuts within a frame's beginning."""
    chance = random.Random(8)
    credit = message_frame(encode(StdinCredit(1)), max_bytes=MESSAGE_TO_CAPSULE_MAX_BYTES)
    sizes = [DATA_FRAME_MAX_BYTES - 1] * 6 + [1, 2, 4096, 65536, 200_000, 258_048] * 2
    wire, said = (
        bytearray(),
        {stream: hashlib.sha256() for stream in (Stream.STDOUT, Stream.STDERR)},
    )
    for size in sizes:
        stream, data = chance.choice([Stream.STDOUT, Stream.STDERR]), chance.randbytes(size)
        said[stream].update(data)
        wire += b"".join(data_frames(stream, data)) + (credit if size % 3 else b"")
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    _, peer = begin(scene, out_end, err_end)
    readings = Reading(out), Reading(err)
    while wire:
        size = chance.choice([1, 4, 5, 6, 997, 65536, 262_144, 400_000])
        peer.send_raw(bytes(wire[:size]))
        del wire[:size]
    peer.end(0)
    assert peer.rest() == []
    for reading, stream in zip(readings, said, strict=True):
        reading.join(WAIT_S)
        assert reading.digest.hexdigest() == said[stream].hexdigest()


@pytest.mark.parametrize(
    ("had_bytes", "size", "has_bytes"),
    [
        (ORDINARY_BYTES, FLOOD_BYTES, PIPE_BYTES),
        (1 << 20, FLOOD_BYTES, 1 << 20),
        (ORDINARY_BYTES, ORDINARY_BYTES, ORDINARY_BYTES),
    ],
    ids=["an ordinary one grows", "a larger one stays", "no flood, no change"],
)
def test_a_flood_widens_its_readers_pipe_and_nothing_else_does(
    scene: Scene, had_bytes: int, size: int, has_bytes: int
) -> None:
    reads, writes = os.pipe()
    fcntl.fcntl(reads, fcntl.F_SETPIPE_SZ, had_bytes)
    null = os.open(os.devnull, os.O_WRONLY)
    process, peer = begin(scene, writes, null)
    reading = Reading(reads)
    process.send_signal(signal.SIGSTOP)  # so that all of it lies there at its next look
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    peer.send_data(Stream.STDOUT, bytes(size))
    process.send_signal(signal.SIGCONT)
    peer.send_data(Stream.STDOUT, b"a line\n")
    peer.end(0)
    peer.rest()
    reading.join(WAIT_S)
    assert reading.capacity_bytes == has_bytes


def test_a_flood_into_a_file_arrives_as_it_is(scene: Scene, tmp_path: Path) -> None:
    """What is no pipe has no room to be given."""
    broker, shims = scene
    data = random.Random(9).randbytes(3 * DATA_FRAME_MAX_BYTES)
    with (tmp_path / "out").open("wb") as file:
        process = shims.start("tool", stdout=file)
        peer = broker.accept()
        peer.expect(ExecCommand)
        peer.start()
        peer.send_data(Stream.STDOUT, data)
        peer.end(3)
        assert finish(process) == (3, b"", b"")
    arrived = (tmp_path / "out").read_bytes()
    assert hashlib.sha256(arrived).digest() == hashlib.sha256(data).digest()
