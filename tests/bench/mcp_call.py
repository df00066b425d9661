"""A tool call beside the shim: both have the broker run an allowed, unconfined `true`.

`python tests/bench/mcp_call.py [--quick]`. In turn, round by round, in one run, so that the ratio
holds on a noisy machine. The server is warm: its start is paid once an agent's session, and shown.
Goal: a call costs less than 3 × the shim's own.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jackin_broker.links import build_programs
from support.broker import broker
from support.mcp_client import EXEC, RawClient, relay_environment
from support.real import SYSTEM_PYTHON, end_process, short_directory

CONFIG = """schema = 1
[capsules.web]
kind = "none"
host_binaries = ["true"]
[capsules.web.binaries.true]
confine = false
[[rules]]
action = "allow"
argv = ["true"]
"""
GOAL = 3.0


def by_shim(argv: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def by_tool(client: RawClient) -> float:
    began = time.perf_counter()
    result = client.call(EXEC, command="true")
    took = time.perf_counter() - began
    assert result["structuredContent"]["exit_code"] == 0, result
    return took


def main() -> None:
    rounds = 20 if "--quick" in sys.argv else 100
    with short_directory() as folder, broker(CONFIG) as made:
        build_programs(folder / "bin", [], SYSTEM_PYTHON)
        env = relay_environment(made, "web")
        began = time.perf_counter()
        relay = [str(folder / "bin" / "jackin-capsule"), "mcp"]
        client = RawClient(relay, env, folder)
        try:
            client.handshake()
            started = time.perf_counter() - began
            shim = [str(folder / "bin" / "jackin-exec"), "--", "true"]
            pairs = [(by_shim(shim, env), by_tool(client)) for _ in range(rounds)][2:]
        finally:
            end_process(client.process)
    shims, tools = zip(*pairs, strict=True)
    ratio = statistics.median(tool / shim for shim, tool in pairs)
    print(f"an allowed true, {len(pairs)} rounds    median ms    ratio")
    print(f"  jackin-exec                  {statistics.median(shims) * 1000:9.1f}     1.00")
    print(f"  jackin_exec, warm            {statistics.median(tools) * 1000:9.1f}  {ratio:7.2f}")
    print(f"  the server's start, once     {started * 1000:9.1f}")
    print(f"goal: a ratio below {GOAL:g}: {'held' if ratio < GOAL else 'MISSED'}")
    sys.exit(ratio >= GOAL)


if __name__ == "__main__":
    main()
