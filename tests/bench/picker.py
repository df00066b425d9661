"""How fast the attached picker is, in a real terminal: `python tests/bench/picker.py [--quick]`.

Two times, against a broker's side in this process that speaks the real frames:
- request received → painted: from the moment when the broker's side sends the request until a
  terminal emulator has drawn the prompt;
- Enter → decision: from the key until the decision is off the socket.
Goals: DESIGN §15, at 80×24. A baseline stands beside them, the same terminal with a program that
does nothing but write: what of the time is the terminal's own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook
from support.real import short_directory
from support.terminal import Terminal, terminal

PICKER: Final = str(Path(sys.executable).with_name("jackin-picker"))
ROUNDS: Final = 100
ROUNDS_QUICK: Final = 20
PAINTED_P50_MS: Final = 40.0
PAINTED_P95_MS: Final = 70.0


@contextmanager
def attached(rows: int = 24, cols: int = 80) -> Generator[tuple[OperatorPlaybook, Terminal]]:
    """A broker's side and a picker that is attached to it."""
    with short_directory() as folder, operator_playbook(folder) as broker:
        argv = [PICKER, "--socket", str(broker.path)]
        with terminal(argv, env=dict(os.environ), rows=rows, cols=cols) as screen:
            screen.wait_for("Nothing waits")
            yield broker, screen


def main(arguments: Sequence[str]) -> None:
    rounds = ROUNDS_QUICK if "--quick" in arguments else ROUNDS
    painted_ms: list[float] = []
    decided_ms: list[float] = []
    with attached() as (broker, screen):
        for number in range(rounds):
            one_round(broker, screen, number, painted_ms, decided_ms)
    print(f"picker at 80x24, {rounds} requests")
    report("terminal alone", echoed(rounds))
    p50, p95 = report("request received -> painted", painted_ms)
    report("Enter -> decision on the socket", decided_ms)
    print(f"  painted / goal: p50 {p50 / PAINTED_P50_MS:.2f}, p95 {p95 / PAINTED_P95_MS:.2f}")


def one_round(
    broker: OperatorPlaybook,
    screen: Terminal,
    number: int,
    painted_ms: list[float],
    decided_ms: list[float],
) -> None:
    command = f"command-{number}."
    started = time.perf_counter()
    broker.ask(a_request(f"r{number}", command=command))
    screen.wait_for(rf"0  {command}")
    painted_ms.append((time.perf_counter() - started) * 1000)
    screen.wait_for("● ready")
    screen.press("space")
    screen.wait_for(r"\[x\] GH_TOKEN")
    started = time.perf_counter()
    screen.press("enter")
    broker.wait_decision()
    decided_ms.append((time.perf_counter() - started) * 1000)
    screen.wait_for("Nothing waits")


def echoed(rounds: int) -> list[float]:
    """The way there and back of one line through the same terminal and emulator."""
    times_ms: list[float] = []
    with terminal(["/bin/cat"], env=dict(os.environ)) as screen:
        for number in range(rounds):
            started = time.perf_counter()
            screen.type(f"line {number}.\r")
            screen.wait_for(rf"line {number}\.")
            times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms


def report(what: str, times_ms: list[float]) -> tuple[float, float]:
    """Print and give back the median and the 95th percentile."""
    cuts = quantiles(times_ms, n=20)
    print(f"  {what:32} p50 {cuts[9]:7.1f} ms   p95 {cuts[18]:7.1f} ms")
    return cuts[9], cuts[18]


if __name__ == "__main__":
    main(sys.argv[1:])
