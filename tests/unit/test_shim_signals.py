"""Signals: withdrawn before the start, passed on exactly once after it (CASES 3b, DESIGN §5).

aws-vault#453, varlock#812, infisical#2356.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker.frames import Stream
from jackin_broker.protocol import Cancel, ExecCommand, Signal
from jackin_capsule.flood import PIPE_BYTES
from support.real import wait_until
from support.scripted_broker import (
    WAIT_S,
    Peer,
    ScriptedBroker,
    ShimPrograms,
    error_and_hint,
    finish,
    interpreters,
    scripted,
)

Scene = tuple[ScriptedBroker, ShimPrograms]
ENDING = [
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
]


@pytest.fixture(params=interpreters(), ids=os.path.basename)
def scene(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scripted(short_tmp, request.param) as both:
        yield both


@pytest.fixture
def system(short_tmp: Path) -> Iterator[Scene]:
    """On one interpreter: for what takes seconds."""
    with scripted(short_tmp, interpreters()[0]) as both:
        yield both


def start(
    scene: Scene, *, process_group: int | None = None
) -> tuple[subprocess.Popen[bytes], Peer]:
    """A shim whose command runs, and which is known to have learned so."""
    broker, shims = scene
    process = shims.start("sleep", "600", process_group=process_group)
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    peer.send_data(Stream.STDOUT, b"!")
    assert process.stdout is not None
    assert process.stdout.read(1) == b"!"
    return process, peer


def state_of(process: subprocess.Popen[bytes]) -> str:
    """The letter of proc(5): S sleeps, T is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("number", ENDING, ids=lambda n: n.name)
def test_before_the_start_it_withdraws_the_request(scene: Scene, number: int) -> None:
    """At once, with 128+n and without a banner."""
    broker, shims = scene
    process = shims.start("gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    process.send_signal(number)
    assert finish(process) == (128 + number, b"", b"")
    assert peer.rest() == [Cancel()]


def test_before_the_broker_accepts_it_leaves_at_once(scene: Scene) -> None:
    """Ctrl-C while nobody answers at all."""
    _, shims = scene
    process = shims.start("gh")
    status = Path(f"/proc/{process.pid}/status")
    caught = 1 << (signal.SIGTERM - 1)

    def stands() -> bool:
        line = next(x for x in status.read_text().splitlines() if x.startswith("SigCgt"))
        return bool(int(line.split()[1], 16) & caught)

    wait_until(stands, "the shim's handlers stand")
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (143, b"", b"")


@pytest.mark.parametrize("number", ENDING, ids=lambda n: n.name)
def test_after_the_start_it_is_passed_on_exactly_once(scene: Scene, number: int) -> None:
    """And the status is the command's, whatever it makes of the signal."""
    process, peer = start(scene)
    process.send_signal(number)
    assert peer.expect(Signal).number == number
    peer.send_data(Stream.STDOUT, b"trapped\n")
    peer.end(42)
    assert finish(process) == (42, b"trapped\n", b"")
    assert peer.rest() == []


def test_many_signals_are_all_passed_on(scene: Scene) -> None:
    """One after the other; none is lost between two polls."""
    process, peer = start(scene)
    for number in ENDING * 5:
        process.send_signal(number)
        assert peer.expect(Signal).number == number
        peer.send_data(Stream.STDOUT, b".")  # the broker is alive
    peer.end(0)
    assert finish(process)[:2] == (0, b"." * 30)


def test_a_signal_gets_through_while_output_is_blocked(scene: Scene) -> None:
    """`jackin-exec yes | less`, then Ctrl-C in it: the write blocks, the signal does not."""
    process, peer = start(scene)
    out = process.stdout
    assert out is not None
    # As large as a flood makes it, so that it does not grow under our eyes.
    size = fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    peer.send_data(Stream.STDOUT, b"x" * 300_000)

    def is_stuck() -> bool:
        waiting = fcntl.ioctl(out, termios.FIONREAD, bytes(4))
        # Not to the byte: pages at the ends of writes may stay half empty.
        return int.from_bytes(waiting, "little") > size // 2 and state_of(process) == "S"

    wait_until(is_stuck, "the pipe is full and the shim sleeps in its write")
    process.send_signal(signal.SIGTERM)
    assert peer.expect(Signal).number == signal.SIGTERM
    peer.end(143)
    assert finish(process) == (143, b"x" * 300_000, b"")
    assert peer.rest() == []


def test_a_signal_that_the_caller_ignores_stays_ignored(scene: Scene) -> None:
    """nohup: the hang-up is not for the command either."""
    broker, shims = scene
    through = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    process = shims.start("task", through=through)
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    peer.send_data(Stream.STDOUT, b"!")
    assert process.stdout is not None
    assert process.stdout.read(1) == b"!"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert peer.expect(Signal).number == signal.SIGTERM
    peer.end(0)
    assert peer.rest() == []


def test_ctrl_z_stops_the_command_and_the_shim_and_both_go_on(scene: Scene) -> None:
    """TSTP goes out before the shim stops; CONT when somebody continues it."""
    process, peer = start(scene, process_group=0)
    for _ in range(2):
        process.send_signal(signal.SIGTSTP)
        assert peer.expect(Signal).number == signal.SIGTSTP
        wait_until(lambda: state_of(process) == "T", "the shim is stopped")
        process.send_signal(signal.SIGCONT)
        assert peer.expect(Signal).number == signal.SIGCONT
    peer.end(0)
    assert finish(process)[0] == 0
    assert peer.rest() == []


@pytest.mark.parametrize("number", [signal.SIGWINCH, signal.SIGCONT], ids=lambda n: n.name)
def test_what_ends_nothing_is_passed_on_too(scene: Scene, number: int) -> None:
    process, peer = start(scene)
    for _ in range(2):
        process.send_signal(number)
        assert peer.expect(Signal).number == number
    peer.end(0)
    assert finish(process)[0] == 0
    assert peer.rest() == []


@pytest.mark.parametrize("number", [signal.SIGWINCH, signal.SIGCONT], ids=lambda n: n.name)
def test_what_ends_nothing_withdraws_no_request(scene: Scene, number: int) -> None:
    broker, shims = scene
    process = shims.start("gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    process.send_signal(number)
    peer.start()
    peer.end(0)
    assert finish(process) == (0, b"", b"")
    assert peer.rest() == []


def test_two_interrupts_without_an_answer_let_the_caller_out(system: Scene) -> None:
    """A broker that hangs does not keep the caller; it is told, and what it said is passed on."""
    process, peer = start(system)
    process.send_signal(signal.SIGINT)
    assert peer.expect(Signal).number == signal.SIGINT
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert peer.expect(Signal).number == signal.SIGINT
    status, _, err = finish(process)
    assert status == 130
    assert time.monotonic() - began >= 2.9
    assert "no answer" in error_and_hint(err)[0]
    assert peer.rest() == [Cancel()]


def test_interrupts_that_are_answered_are_the_commands_own_affair(system: Scene) -> None:
    """A command that prints at each Ctrl-C keeps its caller."""
    process, peer = start(system)
    for _ in range(4):
        process.send_signal(signal.SIGINT)
        assert peer.expect(Signal).number == signal.SIGINT
        peer.send_data(Stream.STDOUT, b"^C\n")
        assert process.stdout is not None
        assert process.stdout.read(3) == b"^C\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3.2)  # longer than the silence that would let it out
    peer.end(0)
    assert process.wait(WAIT_S) == 0


def test_a_killed_shim_is_gone_for_the_broker(scene: Scene) -> None:
    """sops#880: SIGKILL says nothing, the closed connection does."""
    process, peer = start(scene)
    process.kill()
    assert peer.rest() == []
