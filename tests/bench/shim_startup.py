"""The shim's start-up beside its interpreter's and a shell client's: one run, side by side.

    python tests/bench/shim_startup.py [--quick]

Each round runs every command once, so that a busy moment of the machine hits all of them; ratios
are medians of the rounds' own ratios (DESIGN §15). The shell client is what people write for the
Host Exec Bridge's protocol: bash, curl and jq, against a loopback HTTP server that runs `true` and
answers in the seed's frames. The broker is the real one, with a rule that allows `true` unconfined.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "broker"), str(ROOT / "capsule"), str(ROOT / "tests")]

from jackin_broker.links import build_programs  # noqa: E402 - found by the line above
from support.broker import broker  # noqa: E402 - as above
from support.real import SYSTEM_PYTHON, short_directory  # noqa: E402 - as above

ROUNDS: Final = 60
ROUNDS_QUICK: Final = 12
WARM_UP_ROUNDS: Final = 2
SHIM_GOAL: Final = 1.5  # x `python3 -I -S -c pass`
ROUND_TRIP_GOAL: Final = 1 / 3  # x the shell client
BASE: Final = "python3 -I -S -c pass"
SHELL: Final = "bash + curl + jq, `true` by HTTP"
LEAN: Final = "the same with one jq less"
ALLOWED: Final = "jackin-exec true, real broker"
SHIM_ALONE: Final = ("jackin-exec --version", "jackin-exec, denied", "jackin-exec, exit status 0")

CONFIG: Final = """schema = 1
[broker]
no_operator = "wait"
[capsules.web]
kind = "none"
host_binaries = ["true"]
[capsules.web.binaries.true]
confine = false
[[rules]]
action = "allow"
argv = ["true"]
"""

CLIENT: Final = r"""#!/bin/bash
# A shim in bash for the bridge's protocol: its own name is the command.
body=$(jq -nc --arg cwd "$PWD" '{argv: $ARGS.positional, stdin: "", cwd: $cwd}' \
  --args -- "${0##*/}" "$@")
while IFS= read -r frame; do
  case $frame in
    '{"type":"stdout"'*) jq -rj .data <<<"$frame" | base64 -d ;;
    '{"type":"stderr"'*) jq -rj .data <<<"$frame" | base64 -d >&2 ;;
    '{"type":"exit"'*) exit "@EXIT@" ;;
  esac
done < <(curl -sN -H "X-Construct-Exec-Token: $CONSTRUCT_HOST_EXEC_TOKEN" \
  --data-binary "$body" "$CONSTRUCT_HOST_EXEC_URL/exec")
exit 126
"""
BY_JQ: Final = '$(jq .code <<<"$frame")'
BY_BASH: Final = '$(frame=${frame##*:}; echo "${frame%%\\}*}")'

DENIED: Final = b'{"type":"ExecDenied","code":"rule_denied","reason":"because"}'
STARTED: Final = b'{"type":"ExecStarted","request_id":"r","target":"host","stdin_window":65536}'
RESULT: Final = (
    b'{"type":"ExecResult","exit_code":0,"redacted_count":0,"duration_s":0,"ended_by":"exit"}'
)


class Bridge(BaseHTTPRequestHandler):
    """Runs `true` and says so in the seed's frames."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        code = subprocess.run(["true"]).returncode
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"type":"exit","code":%d}\n' % code)

    def log_message(self, format: str, *args: object) -> None:
        """Silence: the terminal is for the numbers."""


@contextmanager
def bridge() -> Generator[str]:
    """The URL of a loopback HTTP server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bridge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def answering(path: Path, *bodies: bytes) -> Generator[str]:
    """The path of a socket whose every request gets these messages at once."""
    reply = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:  # closed below
                return
            with sock:
                sock.recv(65536)
                sock.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield str(path)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def run_ms(argv: list[str], env: dict[str, str], expected: int) -> float:
    """How long a command takes, from spawn to reaped, with nothing on its streams."""
    null = os.open("/dev/null", os.O_RDWR)
    redirect = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in range(3)]
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=redirect)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - began
    os.close(null)
    code = os.waitstatus_to_exitcode(status)
    if code != expected:
        raise SystemExit(f"{argv}: exit status {code}, expected {expected}")
    return took * 1000


def measure(
    commands: dict[str, tuple[list[str], dict[str, str], int]], rounds: int
) -> dict[str, list[float]]:
    """Each command's times, one a round."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(WARM_UP_ROUNDS + rounds):
        for name, (argv, env, expected) in commands.items():
            took = run_ms(argv, env, expected)
            if number >= WARM_UP_ROUNDS:
                times[name].append(took)
    return times


def ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    pairs = zip(times[name], times[base], strict=True)
    return statistics.median([one / other for one, other in pairs])


def report(times: dict[str, list[float]]) -> bool:
    """Print the table; whether every goal that could be measured is met."""
    bases = [base for base in (BASE, SHELL) if base in times]
    print(f"{'command':<36}{'median ms':>10}" + "".join(f"{'x ' + base:>40}" for base in bases))
    for name, took in times.items():
        ratios = "".join(f"{ratio(times, name, base):>40.2f}" for base in bases)
        print(f"{name:<36}{statistics.median(took):>10.2f}{ratios}")
    goals = [(name, BASE, SHIM_GOAL) for name in SHIM_ALONE]
    if SHELL in times:
        goals.append((ALLOWED, SHELL, ROUND_TRIP_GOAL))
    is_met = True
    for name, base, goal in goals:
        found = ratio(times, name, base)
        is_met &= found <= goal
        verdict = "met" if found <= goal else "MISSED"
        print(f"goal {verdict}: {name} is {found:.2f} x {base} (at most {goal:.2f})")
    return is_met


def clients(folder: Path) -> list[tuple[str, list[str]]]:
    """The shell clients under the name `true`, where their programs are there."""
    missing = [name for name in ("bash", "curl", "jq") if shutil.which(name) is None]
    if missing:
        print(f"without the shell client: apt-get install {' '.join(missing)}")
        return []
    found: list[tuple[str, list[str]]] = []
    for name, code in ((SHELL, BY_JQ), (LEAN, BY_BASH)):
        program = folder / ("jq" if code is BY_JQ else "lean") / "true"
        program.parent.mkdir()
        program.write_text(CLIENT.replace("@EXIT@", code))
        program.chmod(0o755)
        found.append((name, [str(program)]))
    return found


def main(arguments: Sequence[str]) -> int:
    rounds = ROUNDS_QUICK if "--quick" in arguments else ROUNDS
    interpreter = SYSTEM_PYTHON if os.path.exists(SYSTEM_PYTHON) else sys.executable
    with (
        short_directory() as folder,
        answering(folder / "denied", DENIED) as denied,
        answering(folder / "done", STARTED, RESULT) as done,
        bridge() as url,
        broker(CONFIG) as real,
    ):
        build_programs(folder / "bin", ["true"], interpreter)
        shim = str(folder / "bin" / "jackin-exec")
        plain = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}

        def at(path: str) -> dict[str, str]:
            return {**plain, "JACKIN_BROKER_SOCKET": path}

        version, refused, ended = SHIM_ALONE
        commands = {
            "/bin/true": (["/bin/true"], plain, 0),
            BASE: ([interpreter, "-I", "-S", "-c", "pass"], plain, 0),
            version: ([shim, "--version"], plain, 0),
            refused: ([shim, "true"], at(denied), 126),
            ended: ([shim, "true"], at(done), 0),
            ALLOWED: ([str(folder / "bin" / "true")], at(real.socket_of("web")), 0),
        }
        bridged = {"CONSTRUCT_HOST_EXEC_URL": url, "CONSTRUCT_HOST_EXEC_TOKEN": "t"}
        for name, argv in clients(folder):
            commands[name] = (argv, {**plain, **bridged}, 0)
        times = measure(commands, rounds)
    return 0 if report(times) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
