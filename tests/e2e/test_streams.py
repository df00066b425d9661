"""Input and output through the installed programs, as if the agent had run the command itself.

The cases are public reports about tools that do a part of this job (CASES 3b); the runner's own
tests have most of them once more, without the wire.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.agent import CALL_LIMIT_S
from support.allowed import Allowed, allowed
from support.real import is_running, wait_until

MIB = 1024 * 1024
# CASES 3b: a silent pipe costs less than a second in all; the rest is a loaded machine's, and
# what is excluded is a wait without end.
AT_ONCE_S = 5.0
# After the command's end its output is drained for so long (DESIGN §9); the rest is the machine's.
DRAIN_S = 2.0
SLACK_S = 4.0


@pytest.fixture(scope="module")
def made() -> Generator[Allowed]:
    with allowed("true", "cat", "sha256sum", "sh", "seq") as running:
        yield running


@pytest.fixture
def silent() -> Generator[tuple[int, int]]:
    """A pipe whose writer stays and says nothing until a test does."""
    reader, writer = os.pipe()
    yield reader, writer
    for end in (reader, writer):
        os.close(end)


def test_an_open_silent_pipe_does_not_keep_a_command_that_reads_nothing(
    made: Allowed, silent: tuple[int, int]
) -> None:
    """pi#5571, lean-ctx#723: one agent's shell was dead for ten hours."""
    began = time.monotonic()
    with made.agent.running("true", stdin=silent[0]) as child:
        assert child.wait(CALL_LIMIT_S) == 0
        assert time.monotonic() - began < AT_ONCE_S


def test_stdin_arrives_piece_by_piece_while_the_pipe_stays_open(
    made: Allowed, silent: tuple[int, int]
) -> None:
    reader, writer = silent
    with made.agent.running("cat", stdin=reader) as child:
        assert child.stdout is not None
        for piece in (b"one\n", b"two\n"):
            os.write(writer, piece)
            assert child.stdout.readline() == piece
        assert child.poll() is None


def test_a_pipe_is_hashed_and_not_dropped(made: Allowed) -> None:
    """datalad-container#142: without a terminal stdin was dropped, and nothing was hashed."""
    done = made.agent.run("sha256sum", stdin=b"foo\n")
    assert done.stdout.split()[0].decode() == hashlib.sha256(b"foo\n").hexdigest()


def test_what_is_written_before_an_exit_arrives_five_hundred_times(made: Allowed) -> None:
    """pexpect#120, #577: the last output was dropped when the child exited."""
    lines = [chr(ord("a") + number) * 1000 for number in range(26)]
    text = "".join(line + "\n" for line in lines).encode()

    def is_whole(_: int) -> bool:
        done = made.agent.run("sh", "-c", 'for line; do echo "$line"; done', "sh", *lines)
        return (done.returncode, done.stdout, done.stderr) == (0, text, b"")

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(is_whole, range(500)))


def test_a_grandchild_on_stdout_delays_the_result_by_two_seconds_at_most(made: Allowed) -> None:
    """lean-ctx#723, kubeclipper#998: it kept the pipe, and the reader blocked for ever."""
    began = time.monotonic()
    done = made.agent.run("sh", "-c", "sleep 600 & echo $!")
    assert done.returncode == 0
    assert time.monotonic() - began < DRAIN_S + SLACK_S
    wait_until(lambda: not is_running(int(done.stdout)), "the grandchild is gone")


def test_ten_mebibytes_on_stderr_and_then_on_stdout_arrive(made: Allowed) -> None:
    """tower-agent#38, r10k#265: more than 64 KiB dead-locked."""
    size = 10 * MIB
    done = made.agent.run("sh", "-c", f"yes e | head -c {size} >&2; yes o | head -c {size}")
    assert done.returncode == 0
    assert done.stderr == b"e\n" * (size // 2)
    assert done.stdout == b"o\n" * (size // 2)
