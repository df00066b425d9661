"""The bridge: one `true` and a large output, beside a client of bash + curl + jq, in one run.

    python tests/bench/bridge.py [--quick]

Every client talks to the same broker, each in its turn of every round. The seed's client is
`support/seed_client.sh`; beside it stands the fastest that its protocol allows with the same
programs: one jq and one base64 for the whole answer. Ratios are medians of the rounds' ratios to
the first row. `--quick` takes 32 MiB instead of 256.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.bridge import SEED_CLIENT, SHELL_SHIM, Bridged, bridged
from support.real import SYSTEM_PYTHON

MIB: Final = 1 << 20
# It starts two programs for each frame: 256 MiB take it several minutes.
SLOW_PART: Final = 16
# One pipe: without the command's exit status, stderr and stdin, and the faster for it.
PIPELINE: Final = """
body=$(jq -cn --arg cwd "$PWD" '{argv: $ARGS.positional, cwd: $cwd}' --args -- "$@")
curl -sN -H "X-Construct-Exec-Token: $JACKIN_EXEC_TOKEN" --data "$body" "$JACKIN_EXEC_URL/exec" |
    jq -rj 'select(.type == "stdout").data' | base64 -d
"""


def timed(bridge: Bridged, argv: Sequence[str], size: int) -> Callable[[], float]:
    """A call whose output is counted."""

    def once() -> float:
        began = time.perf_counter()
        with subprocess.Popen(
            argv,
            env=bridge.environ(),
            cwd=bridge.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            seen = 0
            while piece := os.read(child.stdout.fileno(), MIB):
                seen += len(piece)
        took = time.perf_counter() - began
        assert (child.returncode, seen) == (0, size), (argv, child.returncode, seen)
        return took

    return once


def compare(title: str, rows: dict[str, Callable[[], float]], rounds: int) -> None:
    """Run every row once a round; medians, and medians of the ratios to the first."""
    samples: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(rounds + 1):
        for name, once in rows.items():
            took = once()
            if number:  # the first round warms the caches
                samples[name].append(took)
    base = next(iter(samples.values()))
    print(f"\n{title} ({rounds} rounds)")
    for name, taken in samples.items():
        ratio = statistics.median(a / b for a, b in zip(taken, base, strict=True))
        print(f"  {name:<44} {statistics.median(taken) * 1e3:10.1f} ms   x {ratio:.3f}")


def throughput(bridge: Bridged, programs: str, size: int) -> None:
    """Seconds a MiB; the client that reads line by line gets a sixteenth, and says so."""
    print(f"\n{size // MIB} MiB of output (one round)")
    base = 0.0
    for name, argv in clients(bridge, programs, "head", "-c", str(size), "/dev/zero").items():
        part = size
        if argv == bridge.argv_of(SEED_CLIENT, ("head", "-c", str(size), "/dev/zero")):
            part = size // SLOW_PART
            argv = bridge.argv_of(SEED_CLIENT, ("head", "-c", str(part), "/dev/zero"))
        each = timed(bridge, argv, part)() / (part / MIB)
        base = base or each
        note = f"   of {part // MIB} MiB" if part != size else ""
        print(f"  {name:<44} {1 / each:10.1f} MiB/s   x {each / base:.3f} the time a MiB{note}")


def clients(bridge: Bridged, programs: str, *argv: str) -> dict[str, list[str]]:
    return {
        "bash + curl + jq, the seed's protocol": bridge.argv_of(SEED_CLIENT, argv),
        "the same programs, one pipe": ["bash", "-c", PIPELINE, "client", *argv],
        "jackin-exec, frames over TCP": [f"{programs}/jackin-exec", "--", *argv],
        "jackin-exec-sh, sh + curl": [str(SHELL_SHIM), "--", *argv],
    }


def main() -> None:
    is_quick = "--quick" in sys.argv
    size = (32 if is_quick else 256) * MIB
    with bridged("true", "head") as bridge:
        built = bridge.broker.ask("links", "sync", "--interpreter", SYSTEM_PYTHON)
        programs = built[0]["bin_dir"]
        rows = clients(bridge, programs, "true")
        compare(
            "one bridged `true`, start to exit",
            {name: timed(bridge, argv, 0) for name, argv in rows.items()},
            5 if is_quick else 20,
        )
        throughput(bridge, programs, size)


if __name__ == "__main__":
    main()
