"""What a command writes, through broker and shim to its caller, beside other ways there.

    python tests/bench/output.py [--quick]

From the shim's start to the last byte read. Rounds are interleaved, ratios are medians of the
rounds' ratios against socat at both ends of a Unix socket (DESIGN §15: at least as fast without a
credential; with ten at least 0.8 of the redactor's own speed). `docker exec` and `podman exec`
where they start; otherwise the reason. On a machine that does other things as well a chain waits
at each link for its turn, and ratios are smaller: compare what was measured while it was idle.
"""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jackin_broker.bindings import Redact
from jackin_broker.links import build_programs
from jackin_broker.redact.needles import build
from jackin_broker.redact.stream import Redactor
from support.agent import Agent
from support.broker import broker
from support.engine import IMAGE, engine
from support.real import SYSTEM_PYTHON, find_program, short_directory

MIB: Final = 1024 * 1024
# Until the other one listens; a socket is there a moment before.
RETRY: Final = "retry=9999,interval=0.001"
CREDENTIALS: Final = 10
# What the redactor alone is fastest with.
CHUNK_BYTES: Final = 64 * 1024
SEARCH_PATH: Final = "/usr/bin:/bin"
# Text, as output is; zeros would flatter whoever searches in it.
LINE: Final = "2026-01-05T10:11:12Z info  served GET /index.html in 3 ms to 198.51.100.7"

# The rows that are compared with each other, too.
REDACTED: Final = "jackin-exec, 10 credentials"
REDACTOR: Final = "the redactor alone, 10 credentials"

Way = Callable[[], float]


def configuration(names: list[str], folder: Path) -> str:
    entries = "".join(
        f'{name} = {{ file = "{folder / name}", on_demand = true }}\n' for name in names
    )
    listed = ", ".join(f'"{name}"' for name in names)
    return f"""schema = 1
[env]
{entries}
[capsules.web]
kind = "none"
host_binaries = ["sh", "dash"]
[capsules.web.binaries.sh]
confine = false
[capsules.web.binaries.dash]
confine = false
[[rules]]
action = "allow"
argv = ["sh", "..."]
[[rules]]
action = "allow"
argv = ["dash", "..."]
bindings = [{listed}]
trust_cwd = true
"""


def script(size: int) -> str:
    return f"yes '{LINE}' | head -c {size}"


def reading(argv: list[str], size: int, env: dict[str, str] | None = None) -> Way:
    """Seconds until all of it was read from the program's stdout."""

    def once() -> float:
        began = time.perf_counter()
        seen = 0
        with subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            while piece := os.read(child.stdout.fileno(), MIB):
                seen += len(piece)
        took_s = time.perf_counter() - began
        assert (child.returncode, seen) == (0, size), (argv, child.returncode, seen)
        return took_s

    return once


def socat_script(size: int, place: str) -> str:
    return (
        f"socat -u -b65536 UNIX-LISTEN:{place},unlink-early - & server=$!; "
        f"{script(size)} | socat -u -b65536 - UNIX-CONNECT:{place},{RETRY}; wait $server"
    )


def compare(title: str, ways: dict[str, Way], size: int, rounds: int) -> None:
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            took_s = way()
            if number:  # the first round warms up
                taken[name].append(took_s)
    base = next(iter(taken.values()))
    print(f"\n{title}, {size // MIB} MiB ({rounds} rounds; higher is faster)")
    for name, times in taken.items():
        speed = size / MIB / statistics.median(times)
        print(f"  {name:<40} {speed:9.0f} MiB/s   x {ratio_of(base, times):.2f}")
    share = ratio_of(taken[REDACTOR], taken[REDACTED])
    print(f"  of the redactor's own speed, with 10 credentials:  x {share:.2f}")


def ratio_of(base: list[float], times: list[float]) -> float:
    """How many times as fast as the base, in the median of the rounds."""
    return statistics.median(first / own for own, first in zip(times, base, strict=True))


def redactor_alone(values: list[str], size: int) -> Way:
    """The same text through the redactor and nothing else."""
    needles = build([(f"T{n}", value.encode(), Redact.ON) for n, value in enumerate(values)])
    text = (LINE.encode() + b"\n") * (CHUNK_BYTES // len(LINE))

    def once() -> float:
        redactor = Redactor(needles)
        began = time.perf_counter()
        for _ in range(size // len(text)):
            redactor.feed(text)
        return time.perf_counter() - began

    return once


def engines(ways: dict[str, Way], size: int, parts: ExitStack) -> None:
    for name in ("docker", "podman"):
        try:
            made = parts.enter_context(engine(name))
        except (pytest.skip.Exception, pytest.xfail.Exception) as reason:
            print(f"{name} exec: not measured, {reason}")
            continue
        started = made.run(
            "run", "-d", "--network", "none", "--name", "bench", IMAGE, "sleep", "900"
        )
        if started.returncode:
            print(f"{name} exec: not measured, {started.stderr.strip().splitlines()[-1]}")
            continue
        # The image has no `yes`; zeros cost an engine, which searches nothing, the same.
        argv = [find_program(name) or name, "exec", "bench", "head", "-c", str(size), "/dev/zero"]
        ways[f"{name} exec"] = reading(argv, size, {**os.environ, **made.env})


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    size, rounds = (128 if quick else 512) * MIB, 3 if quick else 7
    names = [f"TOKEN_{number}" for number in range(CREDENTIALS)]
    values = ["tok-" + secrets.token_hex(16) for _ in names]
    with ExitStack() as parts:
        folder = parts.enter_context(short_directory())
        for name, value in zip(names, values, strict=True):
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(value)
        text = configuration(names, folder)
        made = parts.enter_context(broker(text, env={"PATH": SEARCH_PATH}))
        agent = Agent(made, "web", folder)
        build_programs(folder / "programs", [], SYSTEM_PYTHON)  # what a capsule is given
        shim = [str(folder / "programs" / "jackin-exec"), "--"]
        ways: dict[str, Way] = {}
        if find_program("socat"):
            there = ["sh", "-c", socat_script(size, str(folder / "s"))]
            ways["socat at both ends"] = reading(there, size)
        else:
            print("socat: not measured, it is not installed")
        ways["cat | cat"] = reading(["sh", "-c", f"{script(size)} | cat | cat"], size)
        ways["jackin-exec, no credential"] = reading(
            [*shim, "sh", "-c", script(size)], size, agent.env
        )
        ways[REDACTED] = reading([*shim, "dash", "-c", script(size)], size, agent.env)
        ways[REDACTOR] = redactor_alone(values, size)
        engines(ways, size, parts)
        compare("output, command to caller", ways, size, rounds)


if __name__ == "__main__":
    main()
