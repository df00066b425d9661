"""One command, asked and run: the shim beside a bash + curl + jq client, and Enter → running.

`python tests/bench/roundtrip.py [--quick]`. Every figure of a table comes from one run, round by
round in turn, so the ratios hold on a noisy machine. Goals: DESIGN §15.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jackin_broker import operator_protocol as op
from jackin_broker.links import build_programs
from jackin_broker.operator_client import BlockingClient
from jackin_broker.runner.probe import BASE_OPTIONS, NAMESPACE_OPTIONS, abilities
from support.broker import Broker, broker
from support.real import SYSTEM_PYTHON, short_directory

CONFIG = """schema = 1
[capsules.web]
kind = "none"
host_binaries = ["true", "sleep", "uname"]
[capsules.web.binaries.true]
confine = false
[capsules.web.binaries.sleep]
confine = false
[[rules]]
action = "allow"
argv = ["true"]
[[rules]]
action = "allow"
argv = ["uname"]
[limits]
ask_burst = 100000
ask_per_s = 100000
"""

# The seed's protocol, as its text describes it: one POST, a stream of JSON lines, the exit chunk.
CLIENT = """#!/bin/bash
body=$(jq -cn --arg a true --arg cwd "$PWD" '{argv: [$a], stdin: "", cwd: $cwd}')
status=126
while IFS= read -r line; do
  case $(jq -r .type <<<"$line") in
    stdout) jq -r .data <<<"$line" | base64 -d ;;
    stderr) jq -r .data <<<"$line" | base64 -d >&2 ;;
    exit) status=$(jq -r .code <<<"$line") ;;
  esac
done < <(curl -sN -H "X-Construct-Exec-Token: $TOKEN" --data "$body" "$URL/exec")
exit "$status"
"""


class Bridge(BaseHTTPRequestHandler):
    """The least server that the client can talk to; it runs the command for real."""

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        argv = json.loads(self.rfile.read(size))["argv"]
        done = subprocess.run(argv, capture_output=True)
        self.send_response(200)
        self.end_headers()
        for name, data in (("stdout", done.stdout), ("stderr", done.stderr)):
            if data:
                self._line({"type": name, "data": base64.b64encode(data).decode()})
        self._line({"type": "exit", "code": done.returncode})

    def _line(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(chunk).encode() + b"\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: stderr is the table's."""


def timed(argv: list[str], env: dict[str, str]) -> Callable[[], float]:
    def once() -> float:
        began = time.perf_counter()
        subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
        )
        return time.perf_counter() - began

    return once


def compare(title: str, candidates: dict[str, Callable[[], float]], rounds: int) -> None:
    """Run every candidate once a round; medians, and medians of the ratios to the first."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 2):
        for name, once in candidates.items():
            took = once()
            if number >= 2:  # the first two rounds warm the caches
                samples[name].append(took)
    base = next(iter(samples.values()))
    print(f"\n{title} ({rounds} rounds)")
    for name, taken in samples.items():
        ratio = statistics.median(a / b for a, b in zip(taken, base, strict=True))
        print(f"  {name:<44} {statistics.median(taken) * 1e3:8.2f} ms   x {ratio:.2f}")


def round_trips(made: Broker, folder: Path, rounds: int) -> None:
    programs = folder / "programs"
    build_programs(programs, ["true"], SYSTEM_PYTHON)
    client = folder / "client"
    client.write_text(CLIENT)
    client.chmod(0o755)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bridge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    plain = {"PATH": "/usr/bin:/bin"}
    shim = {**plain, "JACKIN_BROKER_SOCKET": made.socket_of("web")}
    bridge = {**plain, "TOKEN": "none", "URL": f"http://127.0.0.1:{server.server_port}"}
    compare(
        "an allowed `true`, start to exit",
        {
            "bash + curl + jq, the seed's protocol": timed([str(client)], bridge),
            "jackin-exec true (unconfined)": timed([str(programs / "jackin-exec"), "true"], shim),
            "jackin-exec uname (confined)": timed([str(programs / "jackin-exec"), "uname"], shim),
            "python3 -I -S -c pass": timed([SYSTEM_PYTHON, "-I", "-S", "-c", "pass"], plain),
            "true": timed(["/bin/true"], plain),
        },
        rounds,
    )
    server.shutdown()
    server.server_close()


def until_running(made: Broker, path: str, name: str, operator: BlockingClient) -> float:
    """Seconds from the decision to `ExecStarted`, as the caller sees it."""
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(path)
        body = json.dumps(
            {"type": "ExecCommand", "protocol": 1, "command": name, "args": ["0"], "cwd": "/"}
        ).encode()
        wire.sendall(struct.pack(">I", len(body)) + body)
        view = None
        while view is None:
            push = operator.next_push(10)
            if isinstance(push, op.RequestChanged) and push.request.state.value == "waiting":
                view = push.request
        decide = op.Decide(0, view.id, op.view_digest(view), approve=True)
        began = time.perf_counter()
        operator.call(decide)
        seen = b""
        while b'"ExecStarted"' not in seen:
            seen += wire.recv(65536)
        took = time.perf_counter() - began
        while wire.recv(65536):
            pass
    return took


def decisions(made: Broker, rounds: int) -> None:
    path = made.socket_of("web")
    print(f"\ndecision → child running, no source ({rounds} rounds)")
    with BlockingClient(made.runtime_dir / "operator.sock") as operator:
        operator.call(op.Attach(0, op.OPERATOR_PROTOCOL_VERSION, client="follow"))
        rows: dict[str, Callable[[], float]] = {
            "unconfined": lambda: until_running(made, path, "sleep", operator),
            "confined": lambda: until_running(made, path, "uname", operator),
        }
        if bwrap := abilities().bwrap:  # what no confined command can do without
            leader = [SYSTEM_PYTHON, "-I", "-S", "-c", "pass"]
            argv = [bwrap, *NAMESPACE_OPTIONS, *BASE_OPTIONS, "--", *leader]
            rows["bubblewrap and python3 alone, to their end"] = timed(argv, {})
        taken: dict[str, list[float]] = {title: [] for title in rows}
        for _ in range(rounds):
            for title, once in rows.items():
                taken[title].append(once())
        for title, times in taken.items():
            p50, p95 = sorted(times)[rounds // 2], sorted(times)[int(rounds * 0.95)]
            print(f"  {title:<44} p50 {p50 * 1e3:6.2f} ms   p95 {p95 * 1e3:6.2f} ms")


def main() -> None:
    rounds = 10 if "--quick" in sys.argv else 40
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    with short_directory() as folder, broker(CONFIG, env=env) as made:
        round_trips(made, folder, rounds)
        decisions(made, rounds)


if __name__ == "__main__":
    main()
