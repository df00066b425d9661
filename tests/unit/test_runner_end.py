"""DESIGN §9: statuses are exact, signals arrive once, and the whole tree ends, whoever ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jackin_broker.protocol import EndedBy
from jackin_broker.runner.confine import UNCONFINED, Confinement
from support import real
from support.commands import Sink, confined, finish, run, shell, start, within, workdir_at
from support.machine import is_running

OWN_ENDS = frozenset({EndedBy.EXIT, EndedBy.SIGNAL})
# Leaves the process group and the session, ignores what asks politely, tells its own pid.
ESCAPER = (
    "import os, signal, sys, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "os.write(1, b'%d escaped\\n' % os.getpid())\n"
    "os.closerange(0, 3)\n"
    "time.sleep(600)\n"
)


@pytest.fixture(params=["unconfined", "confined"])
def how(request: pytest.FixtureRequest, tmp_path: Path) -> Confinement:
    """Both ways to run; the second needs bubblewrap."""
    if request.param == "unconfined":
        return UNCONFINED
    real.require_bwrap()
    with workdir_at(Path("/")) as cwd:
        return confined(cwd)


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 2", 2, None),
        ("exit 255", 255, None),
        ("kill -TERM $$", 143, signal.SIGTERM),
        ("kill -KILL $$", 137, signal.SIGKILL),
        ("kill -PIPE $$", 141, signal.SIGPIPE),
    ],
)
def test_statuses_are_exact(how: Confinement, script: str, code: int, number: int | None) -> None:
    """aws-vault 453, varlock 812: a failed child gave 0, a death by signal was lost."""
    ended = within(run(shell(script), how=how))
    by = EndedBy.EXIT if number is None else EndedBy.SIGNAL
    assert (ended.exit_code, ended.signal, ended.ended_by) == (code, number, by)


def test_a_signal_reaches_the_command_once_and_its_trap_runs(how: Confinement) -> None:
    """aws-vault 453: Ctrl-C was not passed on. Twice would be as wrong."""
    code = (
        "import os, signal, sys, time\n"  # `print` in a handler fails while another one flushes
        "signal.signal(signal.SIGINT, lambda n, f: os.write(1, b'int\\n'))\n"
        "signal.signal(signal.SIGTERM, lambda n, f: (os.write(1, b'term\\n'), sys.exit(5)))\n"
        "os.write(1, b'ready\\n')\n"
        "while True: time.sleep(0.05)\n"  # `pause` would miss one that comes just before it
    )

    async def press() -> tuple[bytes, int]:
        sink = Sink()
        running = await start([real.SYSTEM_PYTHON, "-I", "-c", code], sink, how=how)
        await sink.until_out(b"ready\n")
        running.send_signal(signal.SIGINT)
        await sink.until_out(b"ready\nint\n")  # an interpreter may run a second handler first
        running.send_signal(signal.SIGTERM)
        ended = await finish(running)
        running.send_signal(signal.SIGTERM)  # to nobody
        return sink.out, ended.exit_code

    assert within(press()) == (b"ready\nint\nterm\n", 5)


def test_an_interrupt_gives_130(how: Confinement) -> None:
    """infisical 2356: Ctrl-C yielded 1."""

    async def press() -> int:
        running = await start(["/bin/sleep", "600"], Sink(), how=how)
        running.send_signal(signal.SIGINT)
        return (await finish(running)).exit_code

    assert within(press()) == 130


def test_a_stop_is_told_and_a_continue_goes_on(how: Confinement) -> None:
    """A command in a session of its own ignores Ctrl-Z unless its leader shares that session."""

    async def stop() -> tuple[int, int]:
        running = await start(["/bin/sleep", "600"], Sink(), how=how)
        stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        running.on_stopped = stopped.set_result
        running.send_signal(signal.SIGTSTP)
        number = await asyncio.wait_for(stopped, 10)
        running.send_signal(signal.SIGCONT)
        running.send_signal(signal.SIGTERM)
        return number, (await finish(running)).exit_code

    assert within(stop()) == (signal.SIGTSTP, 143)


def test_a_command_that_ignores_term_gets_kill_after_the_grace(how: Confinement) -> None:
    """TERM, grace, KILL."""

    async def insist() -> tuple[int, float]:
        sink = Sink()
        running = await start(
            shell("trap '' TERM; echo ready; while :; do sleep 1; done"),
            sink,
            how=how,
            grace_s=0.3,
        )
        await sink.until_out(b"ready")
        began = time.monotonic()
        running.end(EndedBy.OPERATOR)
        ended = await finish(running)
        assert ended.ended_by is EndedBy.OPERATOR
        return ended.exit_code, time.monotonic() - began

    code, took_s = within(insist())
    assert code == 124
    assert 0.3 <= took_s < real.START_LIMIT_S


def test_a_stopped_command_takes_term(how: Confinement) -> None:
    """A stopped process does not see TERM until it goes on."""

    async def end_stopped() -> int:
        running = await start(["/bin/sleep", "600"], Sink(), how=how, grace_s=20)
        running.send_signal(signal.SIGSTOP)
        running.end(EndedBy.CANCELLED)
        return (await finish(running)).exit_code

    assert within(end_stopped()) == 124


def test_the_time_limit_gives_124(how: Confinement) -> None:
    """GNU timeout's status, and the reason is told."""
    ended = within(run(["/bin/sleep", "600"], how=how, run_s=0.2))
    assert (ended.exit_code, ended.ended_by) == (124, EndedBy.TIME_LIMIT)
    assert 0.2 <= ended.duration_s < real.START_LIMIT_S


@pytest.mark.parametrize("by", [one for one in EndedBy if one not in OWN_ENDS])
def test_whoever_ends_it_from_outside_gives_124(how: Confinement, by: EndedBy) -> None:
    """docs/agents.md: also the operator, also a broker that stops; 143 is the command's own."""

    async def ended_from_outside() -> tuple[int, EndedBy]:
        running = await start(["/bin/sleep", "600"], Sink(), how=how)
        running.end(by)
        ended = await finish(running)
        return ended.exit_code, ended.ended_by

    assert within(ended_from_outside()) == (124, by)


def test_the_first_reason_to_end_is_the_one_that_is_told(how: Confinement) -> None:
    """Two things may end a command at once; the record names one, and always the same."""

    async def both() -> EndedBy:
        running = await start(["/bin/sleep", "600"], Sink(), how=how)
        running.end(EndedBy.GUESSING)
        running.end(EndedBy.CALLER_GONE)
        return (await finish(running)).ended_by

    assert within(both()) is EndedBy.GUESSING


def test_a_command_that_takes_its_end_well_is_no_success(how: Confinement) -> None:
    """Exit 0 in answer to TERM must not look like work that was done."""

    async def polite() -> int:
        sink = Sink()
        running = await start(
            shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"), sink, how=how
        )
        await sink.until_out(b"ready")
        running.end(EndedBy.OPERATOR)
        return (await finish(running)).exit_code

    assert within(polite()) == 124


def test_what_left_the_session_ends_with_the_command(how: Confinement) -> None:
    """setsid twice forked escaped killpg when it was tried; TERM was ignored too."""
    marker = f"escaper-{os.getpid()}-{time.monotonic_ns()}"

    async def escape() -> None:
        sink = Sink()
        argv = [real.SYSTEM_PYTHON, "-I", "-c", ESCAPER, marker]
        ended = await run([*argv], sink, how=how)
        assert ended.exit_code == 0
        assert not is_running(marker)

    within(escape())


def test_what_left_the_session_ends_when_the_command_is_ended(how: Confinement) -> None:
    """The same while the command itself still runs."""
    marker = f"escaper-{os.getpid()}-{time.monotonic_ns()}"
    script = f'{real.SYSTEM_PYTHON} -I -c "$0" {marker}; sleep 600'

    async def escape() -> None:
        sink = Sink()
        running = await start([*shell(script), ESCAPER], sink, how=how, grace_s=0.2)
        await sink.until_out(b"escaped")
        assert is_running(marker)
        running.end(EndedBy.CALLER_GONE)
        ended = await finish(running)
        assert ended.exit_code == 124
        assert not is_running(marker)

    within(escape())


def test_a_leader_that_is_killed_takes_its_tree_along(tmp_path: Path) -> None:
    """An unconfined command can kill the process above it; nothing goes on unsupervised."""
    marker = f"orphan-{os.getpid()}-{time.monotonic_ns()}"

    async def kill_leader() -> tuple[int, EndedBy]:
        sink = Sink()
        script = (
            f"(sh -c 'echo up; exec sleep 600' {marker}) & sleep 0.2; kill -KILL $PPID; sleep 600"
        )
        running = await start([*shell(script), marker], sink)
        ended = await finish(running)
        # While the warden lives: its own end would end them as well.
        await asyncio.to_thread(real.wait_until, lambda: not is_running(marker), "orphans end")
        return ended.exit_code, ended.ended_by

    assert within(kill_leader()) == (137, EndedBy.SIGNAL)


BROKER = """
import asyncio, os, sys
from pathlib import Path
from support.machine import is_running
from support.commands import Sink, start, confined, workdir_at, UNCONFINED
async def main():
    sink = Sink()
    with workdir_at(Path("/")) as cwd:
        how = UNCONFINED if sys.argv[1] == "unconfined" else confined(cwd)
    await start([sys.argv[2], "-I", "-c", sys.argv[3], sys.argv[4]], sink, how=how)
    await sink.until_out(b"escaped")
    print("up", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_killing_the_broker_ends_the_tree_within_two_seconds(how: Confinement) -> None:
    """SIGKILL leaves no time for anything: leaders and warden see the end of their sockets."""
    marker = f"survivor-{os.getpid()}-{time.monotonic_ns()}"
    code = ESCAPER.replace("if os.fork(): os._exit(0)", "if os.fork(): time.sleep(600)", 1)
    kind = "confined" if how.is_confined else "unconfined"
    argv = [sys.executable, "-c", BROKER, kind, real.SYSTEM_PYTHON, code, marker + "x"]
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}
    ) as broker:
        assert real.first_line(broker) == "up"
        assert is_running(marker + "x")
        broker.kill()
        broker.wait(10)
    real.wait_until(lambda: not is_running(marker + "x"), "the tree ends", limit_s=2)
