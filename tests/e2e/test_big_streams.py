"""Gigabytes through the installed programs: byte-equal, and nobody holds them.

CASES 3b (leviath#287, zero#469, zero#353): without a cap one broker took 42.7 GB; a cap that stops
reading blocks the command. DESIGN §15: 2 GiB of output, and the broker grows by less than 16 MiB.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO

import pytest

from support.allowed import Allowed, allowed

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Alone each takes some ten seconds; only a hang takes longer than this.
BIG_LIMIT_S = 120.0
BROKER_MAY_GROW_BYTES = 16 * MIB
SHIM_MAX_BYTES = 32 * MIB
OUTPUT_LIMIT_BYTES = 256 * MIB
# "A caller that stops reading for 10 s."
PAUSE_S = 10.0
# What pipes and sockets between command and caller hold, with a margin.
IN_FLIGHT_MAX_BYTES = 16 * MIB
# One line of what the commands here write; not a power of two, so that frames cut it anywhere.
LINE = b"the quick brown fox jumps over the lazy dog, and again\n"
MARKER = b"[redacted:TOKEN]\n"


@pytest.fixture(scope="module")
def made() -> Generator[Allowed]:
    with allowed("sh", "sha256sum", "seq", "true") as running:
        yield running


def lines_of(size: int) -> str:
    """A script that writes so many bytes."""
    return f"yes '{LINE.decode().strip()}' | head -c {size}"


def digest_of_lines(size: int, *, around: bytes = b"") -> str:
    """The SHA-256 of what that script writes, in pieces, as nothing here holds it whole."""
    block = LINE * 20_000
    digest = hashlib.sha256(around)
    for _ in range(size // len(block)):
        digest.update(block)
    digest.update(block[: size % len(block)] + around)
    return digest.hexdigest()


def peak_of(pid: int) -> int:
    """The most that a process ever had in memory, in bytes."""
    return memory_of(pid, "VmHWM:")


def memory_of(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * KIB
    raise AssertionError(f"the kernel tells no {key}")


def pieces(stream: IO[bytes] | None) -> Iterator[bytes]:
    assert stream is not None
    while piece := os.read(stream.fileno(), MIB):
        yield piece


def test_two_gibibytes_arrive_to_the_byte_and_nobody_holds_them(made: Allowed) -> None:
    size = 2 * GIB
    made.agent.run("sh", "-c", lines_of(4 * MIB))  # what the first command costs is another matter
    before = peak_of(made.broker.pid)
    digest, arrived, shim_peak = hashlib.sha256(), 0, 0
    script = f'echo "$TOKEN"; {lines_of(size)}; echo "$TOKEN"'
    with made.agent.running("sh", "-c", script, options=["-v"]) as child:
        for piece in pieces(child.stdout):
            digest.update(piece)
            arrived += len(piece)
            if arrived + 8 * MIB > size and not shim_peak:
                shim_peak = peak_of(child.pid)
        assert b"2 redacted" in b"".join(pieces(child.stderr))
        assert child.wait(BIG_LIMIT_S) == 0
    assert arrived == size + 2 * len(MARKER)
    assert digest.hexdigest() == digest_of_lines(size, around=MARKER)
    assert peak_of(made.broker.pid) - before < BROKER_MAY_GROW_BYTES
    assert shim_peak < SHIM_MAX_BYTES


def test_beyond_a_limit_output_is_counted_and_the_command_does_not_notice() -> None:
    """CASES: `yes | head -c 2G` under a 256 MiB limit: exit 0, flag and true byte count."""
    more = f"[limits]\noutput_bytes = {OUTPUT_LIMIT_BYTES}\n"
    with allowed("sh", more=more) as made:
        script = f"yes | head -c {2 * GIB}; echo last words >&2"
        arrived = 0
        with made.agent.running("sh", "-c", script) as child:
            arrived = sum(len(piece) for piece in pieces(child.stdout))
            said = b"".join(pieces(child.stderr)).decode()
            assert child.wait(BIG_LIMIT_S) == 0
        assert arrived == OUTPUT_LIMIT_BYTES
        assert said.startswith("jackin-exec: the operator's limit kept a part of the output back")
        assert f"{2 * GIB} bytes on stdout and 11 on stderr in all" in said
        assert made.line("ended")["truncated"] is True


def test_a_gibibyte_of_stdin_is_read_to_the_byte(made: Allowed) -> None:
    before = peak_of(made.broker.pid)
    with made.agent.running("sha256sum", stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        block = LINE * 20_000
        for _ in range(GIB // len(block)):
            child.stdin.write(block)
        child.stdin.write(block[: GIB % len(block)])
        child.stdin.close()
        assert child.stdout is not None
        assert child.stdout.read().split()[0].decode() == digest_of_lines(GIB)
        assert child.wait(BIG_LIMIT_S) == 0
    assert peak_of(made.broker.pid) - before < BROKER_MAY_GROW_BYTES


def written_by(pid: int) -> int:
    """How many bytes a process and its children ever passed to write(2)."""
    family = [pid]
    for line in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        family.append(int(line))
    counts = [Path(f"/proc/{one}/io").read_text() for one in family]
    return max(int(text.split("wchar:")[1].split()[0]) for text in counts)


def test_a_caller_that_stops_reading_stops_its_command_and_nobody_else(made: Allowed) -> None:
    """For ten seconds; then it reads on, and nothing is lost."""
    size = 128 * MIB
    with made.agent.running("sh", "-c", f"{lines_of(size)}; true") as stuck:
        assert stuck.stdout is not None
        digest = hashlib.sha256(os.read(stuck.stdout.fileno(), len(LINE)))
        pid = made.line("started")["pid"]
        before, ends_at, calls = peak_of(made.broker.pid), time.monotonic() + PAUSE_S, 0
        while time.monotonic() < ends_at or calls < 2:
            assert made.agent.run("seq", "3").stdout == b"1\n2\n3\n"
            calls += 1
        # It came to a standstill, far from the end of its output.
        assert written_by(pid) < IN_FLIGHT_MAX_BYTES
        assert peak_of(made.broker.pid) - before < BROKER_MAY_GROW_BYTES
        for piece in pieces(stuck.stdout):
            digest.update(piece)
        assert stuck.wait(BIG_LIMIT_S) == 0
    assert digest.hexdigest() == digest_of_lines(size)
