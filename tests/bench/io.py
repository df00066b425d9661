"""Ratios of the runner's I/O, measured side by side in one run (DESIGN §15).

    python tests/bench/io.py [--quick]

Throughput: what a command writes, up to the sink, beside `cat | cat` and socat at both ends.
Start: spawn to reaped of `true`, unconfined and confined, beside a bare spawn and bubblewrap
alone. Memory: the growth of this process over 2 GiB of output. Rounds are interleaved, ratios
are medians of the rounds' ratios against the first row.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "broker"), str(ROOT / "tests")]

from jackin_broker.runner import host  # noqa: E402 - found by the line above
from jackin_broker.runner.probe import (  # noqa: E402 - found by the line above
    BASE_OPTIONS,
    NAMESPACE_OPTIONS,
    abilities,
)
from support import real  # noqa: E402 - found by the line above
from support.commands import UNCONFINED, Sink, confined, run, workdir_at  # noqa: E402 - found by the line above

MIB: Final = 1024 * 1024
# Until the other one listens; a socket is there a moment before.
RETRY: Final = "retry=9999,interval=0.001"
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TRUE: Final = "/bin/true"

Way = Callable[[], Awaitable[float]]


class Counter(Sink):
    """Counts, and does nothing else."""

    def output(self, stream: object, data: bytes) -> None:
        self.total = getattr(self, "total", 0) + len(data)


async def through_the_runner(size: int) -> float:
    sink = Counter()
    began = time.perf_counter()
    await run(["/usr/bin/head", "-c", str(size), "/dev/zero"], sink)
    took_s = time.perf_counter() - began
    assert getattr(sink, "total", 0) == size
    return took_s


async def through_a_shell(script: str) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", script)
    assert await process.wait() == 0
    return time.perf_counter() - began


def socat_script(size: int, place: str) -> str:
    """The bytes through a Unix socket, socat at either end, as a wire would be."""
    return (
        f"socat -u -b65536 UNIX-LISTEN:{place},unlink-early - > /dev/null & server=$!; "
        f"head -c {size} /dev/zero | socat -u -b65536 - UNIX-CONNECT:{place},{RETRY}; wait $server"
    )


async def bare(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, env={})  # noqa: ASYNC221 - nothing else runs meanwhile
    return time.perf_counter() - began


async def ours(*, is_confined: bool) -> float:
    began = time.perf_counter()
    with workdir_at(Path("/")) as cwd:
        how = confined(cwd) if is_confined else UNCONFINED
        await run([TRUE], Counter(), workdir=cwd, how=how)
    return time.perf_counter() - began


async def compare(title: str, ways: dict[str, Way], rounds: int) -> None:
    """Print median and ratio for each way; the first is 1.00."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            took_s = await way()
            if number:  # the first round warms up
                taken[name].append(took_s)
    first = next(iter(taken.values()))
    print(f"\n{title} (median of {rounds})")
    for name, times in taken.items():
        ratio = statistics.median(mine / base for mine, base in zip(times, first, strict=True))
        p95 = sorted(times)[max(0, round(0.95 * len(times)) - 1)]
        median_ms = 1000 * statistics.median(times)
        print(f"  {name:34} {median_ms:9.1f} ms  p95 {1000 * p95:9.1f} ms  x{ratio:.2f}")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


async def measure(*, quick: bool) -> None:
    size = (64 if quick else 1024) * MIB
    with tempfile.TemporaryDirectory(prefix="jx", dir="/tmp") as folder:
        place = os.path.join(folder, "s")
        ways: dict[str, Way] = {
            "head | cat | cat": lambda: through_a_shell(
                f"head -c {size} /dev/zero | cat | cat > /dev/null"
            ),
            "command -> sink": lambda: through_the_runner(size),
        }
        if real.find_program("socat"):
            ways["socat at both ends"] = lambda: through_a_shell(socat_script(size, place))
        await compare(f"throughput, {size // MIB} MiB", ways, 3 if quick else 7)
    starts: dict[str, Way] = {
        "spawn and wait": lambda: bare([TRUE]),
        "unconfined, nothing left": lambda: ours(is_confined=False),
    }
    if bwrap := abilities().bwrap:
        starts["bubblewrap alone"] = lambda: bare(
            [bwrap, *NAMESPACE_OPTIONS, *BASE_OPTIONS, "--", TRUE]
        )
        starts["confined, nothing left"] = lambda: ours(is_confined=True)
    await compare("start to end of `true`", starts, 10 if quick else 60)
    volume = (128 if quick else 2048) * MIB
    before = resident_bytes()
    await through_the_runner(volume)
    grown = (resident_bytes() - before) / MIB
    print(f"\nmemory: grew by {grown:.1f} MiB over {volume // MIB} MiB of output (goal: < 16)")


async def main() -> None:
    host.warm_up()
    try:
        await measure(quick="--quick" in sys.argv[1:])
    finally:
        await host.shut_down()


if __name__ == "__main__":
    asyncio.run(main())
