"""Every measurement, one after the other, and whether each said what it is to say.

    python tests/bench/every.py [--quick]

How fast something was is for whoever reads it to judge (DESIGN §15: ratios, in one run, beside
what a thing is compared with); a measurement that fails or has no row to compare with ends this
with status 1. CI runs it, and so no test does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

# On a loaded machine; alone each takes some ten seconds with `--quick`.
LIMIT_S: Final = 900
QUICK_LIMIT_S: Final = 180
_FAILED: Final = "Traceback (most recent call last)"
# What each must print, by the name of its file.
ROWS: Final = {
    "bridge": ("bash + curl + jq", "frames over TCP", "MiB of output", "x 0."),
    "io": ("head | cat | cat", "socat at both ends", "confined, nothing left", "memory: grew by"),
    "launch": ("plain bwrap", "goal"),
    "mcp_call": ("jackin_exec, warm", "the server's start", "goal"),
    "output": ("socat at both ends", "jackin-exec, 10 credentials", "docker exec", "podman exec"),
    "picker": ("request received -> painted", "Enter -> decision", "/ goal"),
    "redaction": ("bytes.replace loop", "goal"),
    "roundtrip": ("bash + curl + jq", "jackin-exec true", "decision → child running", "x 0."),
    "shim_startup": ("python3 -I -S -c pass", "bash + curl + jq", "goal"),
}


def faults_of(name: str, arguments: list[str]) -> list[str]:
    """Run one and print what it prints; what is wrong with it."""
    script = Path(__file__).with_name(f"{name}.py")
    print(f"\n===== {script.name} {' '.join(arguments)}", flush=True)
    limit_s = QUICK_LIMIT_S if arguments else LIMIT_S
    try:
        done = subprocess.run(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return [f"{name}: not done within {limit_s} s"]
    printed = done.stdout.decode(errors="replace")
    print(printed, end="", flush=True)
    faults = [f"{name}: no row with {row!r}" for row in ROWS[name] if row not in printed]
    # Some end with 1 where a goal is missed, which a loaded machine does.
    return [f"{name}: it failed", *faults] if _FAILED in printed else faults


def main() -> int:
    faults = [fault for name in ROWS for fault in faults_of(name, sys.argv[1:])]
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
