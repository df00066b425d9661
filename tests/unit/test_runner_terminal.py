"""DESIGN §9: a command's own terminal, for real: who leads it, what its keys do, how it ends.

Each case runs unconfined and confined; the leader is the same, its namespaces are not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from jackin_broker.frames import Stream
from jackin_broker.protocol import EndedBy, StdinKind, TerminalSize
from jackin_broker.runner.confine import UNCONFINED, Confinement
from jackin_broker.runner.running import Running
from jackin_broker.runner.spec import NoSuchCommand
from support import real
from support.commands import LIMIT_S, PATH, Sink, confined, finish, shell, start, within, workdir_at

SIZE = TerminalSize(rows=50, cols=132)
ENV = {**PATH, b"TERM": b"dumb", b"PS1": b"> "}
# DESIGN §9: from the caller's end to the end of everything that it started.
GONE_WITHIN_S = 2.0


@pytest.fixture(params=["unconfined", "confined"])
def how(request: pytest.FixtureRequest) -> Confinement:
    """Both ways to run; the second needs bubblewrap."""
    if request.param == "unconfined":
        return UNCONFINED
    real.require_bwrap()
    with workdir_at(Path("/")) as cwd:
        return confined(cwd)


async def on_terminal(
    argv: list[str | bytes],
    sink: Sink,
    how: Confinement,
    *,
    stdin: StdinKind = StdinKind.LIVE,
    grace_s: float = 3.0,
) -> Running:
    return await start(argv, sink, how=how, stdin=stdin, terminal=SIZE, env=ENV, grace_s=grace_s)


async def output_of(argv: list[str | bytes], how: Confinement, keys: bytes = b"") -> str:
    """What a command prints that is typed `keys` at once, and then the end of input."""
    sink = Sink()
    running = await on_terminal(argv, sink, how)
    running.write_stdin(keys)
    running.close_stdin()
    ended = await finish(running)
    assert ended.exit_code == 0, sink.out
    assert (sink.err, sink.ended, sink.consumed) == (b"", [Stream.STDOUT], len(keys))
    return sink.out.decode().replace("\r\n", "\n")


def test_it_has_a_name_and_a_size_and_is_all_three_streams(how: Confinement) -> None:
    """distrobox#321: no usable terminal; pexpect#134: the wrong size at first."""
    script = "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; echo e >&2"
    name, size, every, error = within(output_of(shell(script), how)).split("\n")[:4]
    assert name.startswith("/dev/pts/")
    assert (size, every, error) == ("50 132", "all", "e")


def test_it_is_the_controlling_terminal_and_nobody_elses(how: Confinement) -> None:
    script = "echo by name >/dev/tty; ps -o pid=,pgid=,tpgid= -p $$"
    named, numbers = within(output_of(shell(script), how)).splitlines()
    assert named == "by name"
    pid, group, foreground = numbers.split()
    assert pid == group == foreground


def test_the_first_read_works(how: Confinement) -> None:
    """A command that is not in the foreground yet would be stopped by it (SIGTTIN)."""
    assert within(output_of(shell('read x; echo "got $x"'), how, b"key\n")) == "key\ngot key\n"


@pytest.mark.parametrize("keys", [b"", b"whole line\n", b"no end of line"])
def test_the_end_of_input_is_typed(how: Confinement, keys: bytes) -> None:
    """The terminal stays open; a line that has no end is ended first."""
    text = within(output_of(shell("cat >/dev/null; echo done"), how, keys))
    assert text.splitlines()[-1].endswith("done")


@pytest.mark.parametrize(
    ("key", "number"), [(b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)], ids=["^C", "^\\"]
)
def test_a_key_signals_once_and_only_the_foreground(
    how: Confinement, key: bytes, number: signal.Signals
) -> None:
    code = (
        "import os, signal, sys\n"
        f"signal.signal({int(number)}, lambda n, f: os.write(1, b'[caught]'))\n"
        "os.write(1, b'ready')\n"
        "while sys.stdin.readline() != 'end\\n': pass\n"
    )

    async def press() -> bytes:
        sink = Sink()
        running = await on_terminal([real.SYSTEM_PYTHON, "-I", "-c", code], sink, how)
        await sink.until_out(b"ready")
        running.write_stdin(key)
        await sink.until_out(b"[caught]")
        running.write_stdin(b"end\n")
        assert (await finish(running)).exit_code == 0
        return sink.out

    assert within(press()).count(b"[caught]") == 1


def test_a_key_that_ends_it_gives_its_status(how: Confinement) -> None:
    async def press() -> tuple[int, int | None, EndedBy]:
        running = await on_terminal(["/bin/sleep", "600"], Sink(), how)
        running.write_stdin(b"\x03")
        ended = await finish(running)
        return ended.exit_code, ended.signal, ended.ended_by

    assert within(press()) == (130, signal.SIGINT, EndedBy.SIGNAL)


def test_ctrl_z_stops_it_and_is_told_and_a_continue_goes_on(how: Confinement) -> None:
    """STACK: below a leader that shares the session; a direct child ignores it."""

    async def press() -> tuple[list[int], int]:
        sink = Sink()
        script = 'echo ready; while read x; do echo "got $x"; done; exit 7'
        running = await on_terminal(shell(script), sink, how)
        await sink.until_out(b"ready")
        stops: asyncio.Queue[int] = asyncio.Queue()
        running.on_stopped = stops.put_nowait
        numbers: list[int] = []
        for word in (b"once", b"twice"):
            running.write_stdin(b"\x1a")
            numbers.append(await asyncio.wait_for(stops.get(), LIMIT_S))
            running.send_signal(signal.SIGCONT)
            running.write_stdin(word + b"\n")
            await sink.until_out(b"got " + word)
        running.close_stdin()
        return numbers, (await finish(running)).exit_code

    assert within(press()) == ([signal.SIGTSTP, signal.SIGTSTP], 7)


def test_a_shell_has_job_control(how: Confinement) -> None:
    async def work() -> bytes:
        sink = Sink()
        running = await on_terminal(["/bin/bash", "--norc", "-i"], sink, how)
        for line, answer in (
            (b"", b"> "),
            (b"sed -u y/o/0/\r", b"sed"),
            (b"one\n", b"0ne\r\n"),  # so it is in the foreground now
            (b"\x1a", b"Stopped"),
            (b"fg\r", b"fg\r\n"),
            (b"two\n", b"tw0\r\n"),
            (b"\x03", b"^C\r\n> "),
            (b"echo st=$?\r", b"st=130"),
        ):
            running.write_stdin(line)
            await sink.until_out(answer)
        running.write_stdin(b"exit 3\r")
        assert (await finish(running)).exit_code == 3
        return sink.out

    assert b"no job control" not in within(work())


def test_a_new_size_is_told_once_and_the_same_one_never(how: Confinement) -> None:
    """pexpect#413: no SIGWINCH."""
    script = "trap 'echo new $(stty size)' WINCH; echo at $(stty size); while read x; do :; done"

    async def resize() -> str:
        sink = Sink()
        running = await on_terminal(shell(script), sink, how)
        await sink.until_out(b"at 50 132")
        running.resize(50, 132)
        running.resize(20, 90)
        running.write_stdin(b"\n")  # a shell runs its trap when `read` returns
        await sink.until_out(b"new 20 90")
        running.write_stdin(b"\n\n")
        running.close_stdin()
        await finish(running)
        return sink.out.decode()

    assert within(resize()).count("new") == 1


def test_what_is_written_before_the_end_arrives_whole_again_and_again(how: Confinement) -> None:
    """pexpect#120, #577: the last output was lost when the child ended."""
    code = "import os\nfor n in range(26): os.write(1, bytes((97 + n,)) * 1000 + b'\\n')"
    expected = b"".join(bytes((97 + n,)) * 1000 + b"\r\n" for n in range(26))

    async def repeat() -> None:
        for _ in range(50):
            sink = Sink()
            running = await on_terminal([real.SYSTEM_PYTHON, "-I", "-S", "-c", code], sink, how)
            ended = await finish(running)
            assert (sink.out, ended.exit_code) == (expected, 0)

    within(repeat())


def test_a_moment_without_a_reader_is_not_the_end(how: Confinement) -> None:
    """A program may close its streams and open /dev/tty later."""
    script = "exec <&- >&- 2>&-; sleep 0.2; echo late >/dev/tty"
    assert within(output_of(shell(script), how)) == "late\n"


def test_what_stays_in_the_background_delays_the_result_no_longer_than_elsewhere(
    how: Confinement,
) -> None:
    async def leave() -> float:
        sink = Sink()
        began = time.monotonic()
        running = await start(
            shell("trap '' HUP; sleep 600 & echo left"), sink, how=how, terminal=SIZE, drain_s=0.3
        )
        ended = await running.wait()
        assert (ended.exit_code, sink.out) == (0, b"left\r\n")
        took = time.monotonic() - began
        await finish(running)
        return took

    assert within(leave()) < GONE_WITHIN_S


def test_an_interactive_shell_ends_as_when_its_window_is_closed(how: Confinement) -> None:
    """It ignores TERM, and not HUP."""

    async def close() -> tuple[int | None, float]:
        sink = Sink()
        running = await on_terminal(["/bin/bash", "--norc", "-i"], sink, how, grace_s=LIMIT_S)
        await sink.until_out(b"> ")
        running.write_stdin(b"echo r$((1))y\r")
        await sink.until_out(b"r1y\r\n> ")
        began = time.monotonic()
        running.end(EndedBy.CANCELLED)
        ended = await finish(running)
        return ended.signal, time.monotonic() - began

    number, took_s = within(close())
    assert number == signal.SIGHUP
    assert took_s < GONE_WITHIN_S


def test_with_the_caller_goes_what_ignores_every_word(how: Confinement) -> None:
    """sops#880; KILL comes in time, whatever grace is configured."""
    script = "trap '' TERM HUP; (setsid sleep 600 &); echo ready; while :; do sleep 1; done"

    async def leave() -> float:
        sink = Sink()
        running = await on_terminal(shell(script), sink, how)
        await sink.until_out(b"ready")
        began = time.monotonic()
        running.end(EndedBy.CALLER_GONE)
        ended = await finish(running)
        assert (ended.exit_code, ended.ended_by) == (124, EndedBy.CALLER_GONE)
        return time.monotonic() - began

    assert within(leave()) < GONE_WITHIN_S


def test_a_command_that_never_ran_leaves_no_descriptor(how: Confinement) -> None:
    async def fail() -> None:
        running = await on_terminal(["/bin/true"], Sink(), how)
        await finish(running)
        before = len(os.listdir("/proc/self/fd"))

        def is_as_before() -> bool:
            return len(os.listdir("/proc/self/fd")) <= before

        with pytest.raises(NoSuchCommand):
            await on_terminal(["/bin/no-such-program"], Sink(), how)
        await asyncio.to_thread(real.wait_until, is_as_before, "no descriptor is left")

    within(fail())


def test_its_modes_and_its_foreground_can_be_seen_from_here(how: Confinement) -> None:
    """What tells a prompt for a password (echo off, canonical) from an editor (raw)."""

    async def look() -> None:
        sink = Sink()
        script = "echo a; read x; stty -echo; echo b; read x; stty raw; echo c; read x"
        running = await on_terminal(shell(script), sink, how)
        assert running.terminal is not None
        await sink.until_out(b"a\r\n")
        assert running.terminal.modes() == (True, True)
        running.write_stdin(b"\n")
        await sink.until_out(b"b\r\n")
        assert running.terminal.modes() == (True, False)
        if how is UNCONFINED:
            assert running.terminal.foreground_group() == running.pid
        assert running.terminal.foreground_group() > 0
        running.write_stdin(b"\n")
        await sink.until_out(b"c\n")
        assert running.terminal.modes() == (False, False)
        running.end(EndedBy.CANCELLED)
        await finish(running)
        assert running.terminal.modes() == (False, True)
        assert running.terminal.foreground_group() == 0

    within(look())


def test_keys_that_are_held_wait_behind_what_is_typed_for_them(how: Confinement) -> None:
    async def hold() -> str:
        sink = Sink()
        script = 'echo ready; read one; read two; echo "[$one][$two]"'
        running = await on_terminal(shell(script), sink, how)
        running.hold_stdin()
        running.write_stdin(b"the caller's\n")
        running.close_stdin()
        await sink.until_out(b"ready")
        assert sink.consumed == 0
        running.type_in(b"ours\n")
        await sink.until_out(b"ours")
        running.release_stdin()
        assert (await finish(running)).exit_code == 0
        assert sink.consumed == len(b"the caller's\n")
        return sink.out.decode()

    assert "[ours][the caller's]" in within(hold())


def test_a_paused_reader_stops_the_command_and_loses_nothing(how: Confinement) -> None:
    async def pause() -> None:
        sink = Sink()
        running = await on_terminal(shell("read x; seq 1 20000; echo end"), sink, how)
        running.pause_output()
        running.write_stdin(b"\n")
        await sink.until_consumed(1)
        assert not running.has_ended
        running.resume_output()
        await finish(running)
        lines = sink.out.split()
        assert lines == [*(b"%d" % n for n in range(1, 20001)), b"end"]

    within(pause())
