"""DESIGN §9 and CASES 3b: what a command writes comes out whole, apart, and in bounded memory."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path

import pytest

from jackin_broker.frames import Stream
from jackin_broker.protocol import DATA_FRAME_MAX_BYTES, EndedBy, StdinKind
from jackin_broker.runner.pump import BUSY_READ_BYTES, READ_BYTES
from support.commands import Sink, finish, run, shell, start, within

MIB = 1024 * 1024


def test_output_before_an_exit_is_never_cut() -> None:
    """pexpect's issues 120 and 577: the last output was lost when the child ended."""
    script = "for l in a b c d e f g h i j k l m n o p q r s t u v w x y z; do " + (
        'printf "%01000d\\n" 0 | tr 0 $l; done'
    )
    expected = b"".join(bytes((97 + n,)) * 1000 + b"\n" for n in range(26))
    line_by_line = [
        "/usr/bin/python3",
        "-I",
        "-S",
        "-c",
        "import os\nfor n in range(26): os.write(1, bytes((97 + n,)) * 1000 + b'\\n')",
    ]

    async def repeat() -> None:
        sink = Sink()
        await run(shell(script), sink)
        assert sink.out == expected
        for _ in range(500):
            sink = Sink()
            ended = await run([*line_by_line], sink)
            assert (sink.out, ended.exit_code) == (expected, 0)

    within(repeat())


def test_streams_stay_apart() -> None:
    """oh-my-bash 413: tools misread errors that came on stdout."""
    sink = Sink()
    ended = within(run(shell("echo o; echo e >&2; exit 3"), sink))
    assert (sink.out, sink.err, ended.exit_code) == (b"o\n", b"e\n", 3)
    assert sorted(sink.ended) == [Stream.STDOUT, Stream.STDERR]


def test_ten_mebibytes_on_stderr_then_on_stdout_do_not_deadlock() -> None:
    """tower-agent 38: more than a pipe's capacity on the stream that nobody reads first."""
    size = 10 * MIB
    sink = Sink(keep=False)
    ended = within(run(shell(f"head -c {size} /dev/zero >&2; head -c {size} /dev/zero"), sink))
    zeros = hashlib.sha256(bytes(size)).digest()
    assert ended.exit_code == 0
    assert [sink.digests[stream].digest() for stream in sink.digests] == [zeros, zeros]


@pytest.mark.parametrize("kind", [StdinKind.NONE, StdinKind.LIVE])
def test_a_silent_open_stdin_delays_nothing(kind: StdinKind) -> None:
    """pi 5571 and others: an open pipe that nobody writes to hung the call."""
    began = time.monotonic()
    ended = within(run(["/bin/true"], stdin=kind))
    assert ended.exit_code == 0
    assert time.monotonic() - began < 5  # a loaded machine's; the alternative never ends


def test_no_stdin_is_an_end_of_input() -> None:
    """`none` means none: a command that reads gets EOF, not the broker's stdin."""
    sink = Sink()
    assert within(run(["/bin/cat"], sink)).exit_code == 0
    assert sink.out == b""


def test_stdin_arrives_whole_and_its_end_is_seen() -> None:
    """DESIGN §9: stdin streams lazily, EOF is EOF; consumption is what gives credit back."""
    data = os.urandom(8 * MIB)

    async def feed() -> Sink:
        sink = Sink(keep=False)
        running = await start(["/bin/cat"], sink, stdin=StdinKind.LIVE)
        running.write_stdin(data[:MIB])
        running.write_stdin(data[MIB:])
        running.close_stdin()
        ended = await finish(running)
        assert ended.exit_code == 0
        return sink

    sink = within(feed())
    assert sink.digests[Stream.STDOUT].digest() == hashlib.sha256(data).digest()
    assert sink.consumed == len(data)


def test_stdin_that_nobody_reads_is_the_commands_right() -> None:
    """A closed stdin is no error, and what was sent counts as consumed: credit must not dry up."""

    async def feed() -> int:
        sink = Sink()
        running = await start(shell("exec <&-; echo shut; sleep 60"), sink, stdin=StdinKind.LIVE)
        await sink.until_out(b"shut")
        running.write_stdin(bytes(MIB))
        running.write_stdin(bytes(MIB))
        await sink.until_consumed(2 * MIB)
        running.end(EndedBy.CANCELLED)
        await finish(running)
        return sink.consumed

    assert within(feed()) == 2 * MIB


class Slow(Sink):
    """Takes so long that a busy writer fills the pipe meanwhile; remembers the largest piece."""

    largest = 0

    def output(self, stream: Stream, data: bytes) -> None:
        super().output(stream, data)
        self.largest = max(self.largest, len(data))
        time.sleep(0.002)


def test_a_flood_comes_in_larger_pieces_of_one_frame_each() -> None:
    """A pipe is widened where its writer fills it: what a piece costs is paid less often."""
    sink = Slow(keep=False)
    within(run(["/usr/bin/head", "-c", str(16 << 20), "/dev/zero"], sink))
    assert sink.sizes[Stream.STDOUT] == 16 << 20
    assert READ_BYTES < sink.largest <= BUSY_READ_BYTES < DATA_FRAME_MAX_BYTES


def test_a_paused_reader_stops_the_command_and_loses_nothing() -> None:
    """Back-pressure stops the child, never the broker; all bytes arrive afterwards."""
    size = 4 * MIB

    async def pause() -> Sink:
        sink = Sink(keep=False)
        running = await start(shell(f"head -c {size} /dev/zero"), sink)
        running.pause_output()
        seen = sink.sizes[Stream.STDOUT]
        waiting = asyncio.ensure_future(running.wait())
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert not done
        assert sink.sizes[Stream.STDOUT] == seen
        running.resume_output()
        await waiting
        return sink

    sink = within(pause())
    assert sink.digests[Stream.STDOUT].digest() == hashlib.sha256(bytes(size)).digest()


def test_a_reader_that_pauses_longer_than_the_drain_loses_nothing() -> None:
    """The drain's clock stands still while nobody reads: the limit is for grandchildren."""

    async def pause() -> bytes:
        sink = Sink()
        running = await start(shell("sleep 0.1; printf kept"), sink, drain_s=0.05)
        running.pause_output()
        waiting = asyncio.ensure_future(running.wait())
        done, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert not done
        running.resume_output()
        await waiting
        return sink.out

    assert within(pause()) == b"kept"


def test_a_pause_during_the_drain_stops_its_clock() -> None:
    """A grandchild is given its time to finish, not the slow reader's."""

    async def pause() -> bytes:
        sink = Sink()
        script = "{ read x; sleep 0.3; echo late; } <&3 & echo early"
        running = await start(
            shell(f"exec 3<&0; {script}"), sink, stdin=StdinKind.LIVE, drain_s=0.5
        )
        await sink.until_out(b"early")
        while not running.has_ended:  # noqa: ASYNC110 - no event tells it; bounded by `within`
            await asyncio.sleep(0)
        running.pause_output()
        waiting = asyncio.ensure_future(running.wait())
        done, _ = await asyncio.wait({waiting}, timeout=0.8)
        assert not done
        running.write_stdin(b"go\n")
        done, _ = await asyncio.wait({waiting}, timeout=0.8)
        assert not done
        running.resume_output()
        await waiting
        return sink.out

    assert within(pause()) == b"early\nlate\n"


def test_a_caller_that_went_away_while_paused_is_not_waited_for() -> None:
    """Nobody will resume: the end comes without the rest of the output."""

    async def leave() -> EndedBy:
        running = await start(shell("yes"), Sink())
        running.pause_output()
        running.end(EndedBy.CALLER_GONE)
        return (await finish(running)).ended_by

    assert within(leave()) is EndedBy.CALLER_GONE


def test_a_grandchild_on_stdout_delays_the_result_by_the_drain_at_most() -> None:
    """lean-ctx 723: the reader blocked for ever on a pipe that a grandchild kept."""

    async def background() -> tuple[bytes, float]:
        sink = Sink()
        began = time.monotonic()
        running = await start(shell("sleep 600 & echo done"), sink)
        await running.wait()
        took_s = time.monotonic() - began
        await finish(running)
        return sink.out, took_s

    out, took_s = within(background())
    assert out == b"done\n"
    assert 1.5 < took_s < 2.6


def test_what_a_grandchild_writes_within_the_drain_arrives() -> None:
    """A filter behind the command (`> >(tee …)`) may finish its work."""
    sink = Sink()
    within(run(shell("{ sleep 0.2; echo late; } & echo early"), sink))
    assert sink.out == b"early\nlate\n"


def test_arguments_and_environment_arrive_to_the_byte() -> None:
    """DESIGN §9: an array from the shim to execve; no shell, no decoding."""
    words = [b"", b" ", b"'\"$X`", b"a\nb", b"-n", b"\xff\xfe", b"\xc3\xa9"]
    sink = Sink()
    code = (
        "import os,sys; print([os.fsencode(a) for a in sys.argv[1:]], sorted(os.environb.items()))"
    )
    argv: list[str | bytes] = ["/usr/bin/python3", "-I", "-S", "-c", code, *words]
    within(run(argv, sink, env={b"A": b"\xff\n", b"B": b""}))
    words_seen, _, environment = sink.out.decode().strip().partition("] [")
    assert words_seen + "]" == str(words)
    assert "(b'A', b'\\xff\\n'), (b'B', b'')" in environment


def test_argv0_is_the_name_that_was_asked_for(tmp_path: Path) -> None:
    """busybox-like programs look at their name; the file that runs is the one that was found."""

    async def named() -> bytes:
        from jackin_broker.runner import host
        from jackin_broker.runner.confine import UNCONFINED
        from jackin_broker.runner.spec import RunSpec
        from support.commands import workdir_at

        sink = Sink()
        with workdir_at(tmp_path) as cwd:
            argv = (b"wicket", b"-c", b"echo $0; pwd")
            spec = RunSpec("/bin/sh", argv, cwd, {}, UNCONFINED)
            running = await host.start(spec, sink)
        await finish(running)
        return sink.out

    assert within(named()) == f"wicket\n{os.path.realpath(tmp_path)}\n".encode()
