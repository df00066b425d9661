"""The shim's stdin: never waited for, never lost, never ahead of the broker's credit (DESIGN §5).

CASES 3b: the silent pipe that hung an agent for ten hours, `echo foo | md5sum` that hashed nothing.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker import protocol
from jackin_broker.frames import Stream
from jackin_broker.protocol import ExecCommand, Signal, StdinCredit, StdinEof, StdinKind
from jackin_capsule import stdin as shim_stdin
from support.real import end_process, wait_until
from support.scripted_broker import (
    WAIT_S,
    Peer,
    ScriptedBroker,
    ShimPrograms,
    finish,
    interpreters,
    scripted,
)

Scene = tuple[ScriptedBroker, ShimPrograms]


@pytest.fixture(params=interpreters(), ids=os.path.basename)
def scene(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scripted(short_tmp, request.param) as both:
        yield both


def asked(broker: ScriptedBroker) -> tuple[Peer, StdinKind]:
    peer = broker.accept()
    return peer, peer.expect(ExecCommand).stdin


def test_the_limits_are_the_protocols() -> None:
    """The room rules keep the shim from importing them."""
    assert shim_stdin.WAIT_S * 1000 == protocol.CLOSED_STDIN_WAIT_MS
    assert shim_stdin.CLOSED_MAX_BYTES == protocol.CLOSED_STDIN_MAX_BYTES


def test_a_silent_open_pipe_holds_nothing_up(scene: Scene) -> None:
    """pi#5571, lean-ctx#723: `true` returns although the writer never closes."""
    broker, shims = scene
    process = shims.start("true", stdin=subprocess.PIPE)
    peer, kind = asked(broker)
    assert kind is StdinKind.LIVE
    peer.start()
    peer.end(0)
    assert process.wait(WAIT_S) == 0
    assert process.stdin is not None
    assert not process.stdin.closed


def test_a_silent_pipe_costs_no_more_than_its_wait(scene: Scene) -> None:
    """50 ms in all, also when bytes keep dribbling in."""
    broker, shims = scene
    reader, writer = os.pipe()
    with open(reader, "rb") as source, open(writer, "wb", buffering=0) as sink:
        began = time.monotonic()
        shims.start("cat", stdin=source)
        sink.write(b"a")
        peer, kind = asked(broker)
        took_s = time.monotonic() - began
    assert kind is StdinKind.LIVE
    assert took_s < 5, "an interpreter on a loaded machine and 50 ms"
    peer.start()
    assert peer.expect_data(1) == b"a"


def test_what_ends_at_once_is_sent_with_the_request(scene: Scene) -> None:
    """datalad-container#142: `echo foo | jackin-exec md5sum`."""
    broker, shims = scene
    process = shims.start("md5sum", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"foo\n")
    process.stdin.close()
    peer, kind = asked(broker)
    assert kind is StdinKind.CLOSED
    assert peer.expect_data(4) == b"foo\n"
    peer.expect(StdinEof)
    peer.start()
    peer.end(0)
    assert peer.rest() == []


def test_an_empty_pipe_is_closed_and_empty(scene: Scene) -> None:
    broker, shims = scene
    process = shims.start("cat", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()
    peer, kind = asked(broker)
    assert kind is StdinKind.CLOSED
    peer.expect(StdinEof)


@pytest.mark.parametrize("redirection", ["</dev/null", "<&-", "0>/dev/null"])
def test_no_stdin_is_none(scene: Scene, redirection: str) -> None:
    """DESIGN §5: /dev/null or a closed descriptor."""
    broker, shims = scene
    shims.start("cat", through=["sh", "-c", f'exec "$@" {redirection}', "sh"])
    _, kind = asked(broker)
    assert kind is StdinKind.NONE


def test_a_descriptor_for_writing_is_an_empty_stdin(scene: Scene) -> None:
    """Reading fails for the command as well; it is no reason not to ask."""
    broker, shims = scene
    shims.start("cat", through=["sh", "-c", 'exec "$@" 0>out', "sh"])
    peer, kind = asked(broker)
    assert kind is StdinKind.CLOSED
    peer.expect(StdinEof)


@pytest.mark.parametrize("size", [0, 1, 300_000, shim_stdin.CLOSED_MAX_BYTES])
def test_a_file_is_sent_whole_with_the_request(scene: Scene, size: int) -> None:
    """Up to and with the limit; in frames that the broker takes."""
    broker, shims = scene
    content = os.urandom(size)
    path = Path(shims.env["HOME"]) / "in"
    path.write_bytes(content)
    with path.open("rb") as source:
        shims.start("cat", stdin=source)
    peer, kind = asked(broker)
    assert kind is StdinKind.CLOSED
    assert peer.expect_data(size) == content
    peer.expect(StdinEof)


def test_a_larger_file_is_live_and_arrives_whole(scene: Scene) -> None:
    """One byte over the limit; nothing before the start, then as the credit allows."""
    broker, shims = scene
    content = os.urandom(shim_stdin.CLOSED_MAX_BYTES + 1)
    path = Path(shims.env["HOME"]) / "in"
    path.write_bytes(content)
    with path.open("rb") as source:
        process = shims.start("cat", stdin=source)
    peer, kind = asked(broker)
    assert kind is StdinKind.LIVE
    got = b""
    peer.start(window=400_000)
    while len(got) < len(content):
        got += peer.expect_data(min(400_000, len(content) - len(got)))
        peer.send(StdinCredit(400_000))
    peer.expect(StdinEof)
    assert got == content
    peer.end(0)
    assert finish(process)[0] == 0


def test_stdin_stays_within_the_credit_and_signals_do_not_queue_behind_it(scene: Scene) -> None:
    """The next thing after the window is the signal, though megabytes wait to be sent."""
    broker, shims = scene
    source = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
    try:
        process = shims.start("cat", stdin=source.stdout or subprocess.DEVNULL)
        peer, kind = asked(broker)
        assert kind is StdinKind.LIVE
        peer.start(window=100_001)
        assert peer.expect_data(100_001) == b"y\n" * 50_000 + b"y"
        process.send_signal(signal.SIGUSR1)
        assert peer.expect(Signal).number == signal.SIGUSR1
        peer.send(StdinCredit(3))
        assert peer.expect_data(3) == b"\ny\n"
        peer.end(0)
        assert process.wait(WAIT_S) == 0
    finally:
        end_process(source)


def test_live_stdin_streams_and_ends(scene: Scene) -> None:
    """Each line as it is written; EOF is EOF."""
    broker, shims = scene
    process = shims.start("cat", stdin=subprocess.PIPE)
    peer, kind = asked(broker)
    assert kind is StdinKind.LIVE
    assert process.stdin is not None
    peer.start()
    for line in (b"one\n", b"two\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert peer.expect_data(len(line)) == line
        peer.send_data(Stream.STDOUT, line)
        assert process.stdout is not None
        assert process.stdout.readline() == line
    process.stdin.close()
    peer.expect(StdinEof)
    peer.end(0)
    assert process.wait(WAIT_S) == 0


def test_what_was_read_before_the_start_is_not_lost(scene: Scene) -> None:
    """A first line that came within the 50 ms of a pipe that stays open."""
    broker, shims = scene
    reader, writer = os.pipe()
    os.write(writer, b"early\n")
    shims.start("cat", stdin=reader)
    os.close(reader)
    peer, kind = asked(broker)
    assert kind is StdinKind.LIVE
    peer.start()
    assert peer.expect_data(6) == b"early\n"
    os.write(writer, b"late\n")
    assert peer.expect_data(5) == b"late\n"
    os.close(writer)
    peer.expect(StdinEof)


def test_a_terminal_is_not_waited_for(scene: Scene) -> None:
    """What is typed goes out by the line, ^D ends it."""
    broker, shims = scene
    leader, follower = pty.openpty()
    process = shims.start("cat", stdin=follower)
    os.close(follower)
    peer, kind = asked(broker)
    assert kind is StdinKind.LIVE
    peer.start()
    os.write(leader, b"typed\n")
    assert peer.expect_data(6) == b"typed\n"
    os.write(leader, b"\x04")
    peer.expect(StdinEof)
    peer.end(0)
    assert finish(process)[0] == 0
    os.close(leader)


def test_in_a_terminals_background_it_leaves_stdin_alone(scene: Scene) -> None:
    """Reading would stop it with SIGTTIN; what is typed is for the foreground."""
    broker, shims = scene
    leader, follower = pty.openpty()
    script = (  # job control: the shim becomes a background group of this terminal
        'set -m; "$@" & read line; echo "read:$line"; wait $!; echo "status:$?"'
    )
    with subprocess.Popen(
        ["setsid", "-c", "sh", "-c", script, "sh", shims.program("jackin-exec"), "task"],
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=shims.env,
    ) as shell:
        os.close(follower)
        peer, kind = asked(broker)
        assert kind is StdinKind.LIVE
        peer.start()
        peer.send_data(Stream.STDOUT, b"running\n")
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"running\n"
        os.write(leader, b"for the shell\n")
        assert shell.stdout.readline() == b"read:for the shell\n"
        peer.end(7)
        assert peer.rest() == []
        assert shell.stdout.readline() == b"status:7\n"
    os.close(leader)


def test_the_flags_of_a_shared_stdin_stay(scene: Scene) -> None:
    """A descriptor left non-blocking breaks whoever reads it next."""
    broker, shims = scene
    reader, writer = os.pipe()
    before = fcntl.fcntl(reader, fcntl.F_GETFL)
    process = shims.start("cat", stdin=reader)
    peer, _ = asked(broker)
    peer.start()
    os.write(writer, b"x")
    peer.expect_data(1)
    assert fcntl.fcntl(reader, fcntl.F_GETFL) == before
    peer.end(0)
    assert process.wait(WAIT_S) == 0
    os.close(reader)
    os.close(writer)


def test_a_command_that_does_not_read_leaves_the_rest_unsent(scene: Scene) -> None:
    """Without credit the pipe stays full and the result still comes through."""
    broker, shims = scene
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.write(writer, b"x" * 65_536)
    process = shims.start("true", stdin=reader)
    peer, kind = asked(broker)
    assert kind is StdinKind.LIVE
    peer.start(window=10)
    peer.expect_data(10)
    peer.end(4)
    assert peer.rest() == []
    assert process.wait(WAIT_S) == 4

    def waiting() -> int:
        return int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), "little")

    wait_until(lambda: waiting() == 0, "what was read ahead came from the pipe")
    os.close(reader)
    os.close(writer)
