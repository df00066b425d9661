"""How fast the attached picker is, in a real terminal: `python tests/bench/picker.py [--quick]`.

Three times, against a broker's side in this process that speaks the real frames:
- request received → painted: from the moment when the broker's side sends the request until a
  terminal emulator has drawn the prompt;
- Enter → decision: from the key until the decision is off the socket;
- key → repaint with 1,000 requests waiting, on the prompt and in the list of them, at rest and
  while 1,000 more arrive and end.
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
from threading import Thread
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jackin_broker.operator_protocol import RequestState
from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook
from support.real import short_directory
from support.terminal import KEYS, Terminal, terminal

PICKER: Final = str(Path(sys.executable).with_name("jackin-picker"))
ROUNDS: Final = 100
ROUNDS_QUICK: Final = 20
PAINTED_P50_MS: Final = 40.0
PAINTED_P95_MS: Final = 70.0
CROWD: Final = 1000
KEY_P95_MS: Final = 50.0


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
    crowded(rounds)


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
    drawn(screen, f"0  {command}")
    painted_ms.append((time.perf_counter() - started) * 1000)
    screen.wait_for("● ready")
    screen.press("space")
    screen.wait_for(r"\[x\] GH_TOKEN")
    screen.rest()
    started = time.perf_counter()
    screen.type(KEYS["enter"])
    broker.wait_decision()
    decided_ms.append((time.perf_counter() - started) * 1000)
    screen.wait_for("Nothing waits")


def crowded(rounds: int) -> None:
    """The keys of somebody whose agents all ask at once."""
    views = [a_request(f"r{number}", command=f"tool{number}") for number in range(CROWD)]
    print(f"picker with {CROWD:,} requests waiting")
    with attached() as (broker, screen):
        broker.ask(a_request("alone"))
        screen.wait_for("● ready")
        alone, _ = report("key -> repaint, one waiting", moved(screen, rounds))
        asking = Thread(target=broker.ask, args=views)
        asking.start()  # while the terminal is read: a picker that cannot draw takes no news
        screen.wait_for("1,001 waiting")
        asking.join()
        screen.wait_for("● ready")
        keys = moved(screen, rounds)
        crowd, worst = report("key -> repaint, prompt", keys)
        screen.press(":")
        screen.wait_for("Commands")
        screen.type("what waits for")
        screen.wait_for("what waits for[^ ]")
        screen.press("enter")
        screen.wait_for(r"oldest first[\s\S]*^› waiting[\s\S]*Enter answer it")
        worst = max(worst, report("key -> repaint, list", moved(screen, rounds))[1])
        busy = Thread(target=come_and_go, args=(broker,))
        busy.start()
        worst = max(worst, report("key -> repaint, list, changing", moved(screen, rounds))[1])
        busy.join()
    print(f"  crowd / one: p50 {crowd / alone:.2f};  key / goal: p95 {worst / KEY_P95_MS:.2f}")


def come_and_go(broker: OperatorPlaybook) -> None:
    """A thousand arrive behind the others, and end again, as fast as the picker takes it."""
    for number in range(CROWD):
        broker.ask(a_request(f"new{number}"))
        broker.end(f"new{number}", RequestState.CANCELLED)


def drawn(screen: Terminal, words: str) -> None:
    """Until these words are on the screen, and no longer: `wait_for` lets it settle."""
    screen.wait_until(lambda: words in screen.text, f"{words!r} is drawn")


def moved(screen: Terminal, rounds: int) -> list[float]:
    """From a key that moves the cursor until it is drawn elsewhere."""
    times_ms: list[float] = []
    for number in range(rounds):
        screen.rest()
        before = cursor_of(screen)
        started = time.perf_counter()
        screen.type(KEYS["up" if number % 2 else "down"])
        screen.wait_until(lambda was=before: _has_moved(cursor_of(screen), was), "it moves")
        times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms


def _has_moved(now: list[int], before: list[int]) -> bool:
    """Whether it is drawn at one place, and at another one."""
    return len(now) == 1 and now != before


def cursor_of(screen: Terminal) -> list[int]:
    """The lines that show the cursor's sign."""
    return [y for y, line in enumerate(screen.text.split("\n")) if line.lstrip().startswith("›")]


def echoed(rounds: int) -> list[float]:
    """The way there and back of one line through the same terminal and emulator."""
    times_ms: list[float] = []
    with terminal(["/bin/cat"], env=dict(os.environ)) as screen:
        for number in range(rounds):
            started = time.perf_counter()
            screen.type(f"line {number}.\r")
            drawn(screen, f"line {number}.")
            times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms


def report(what: str, times_ms: list[float]) -> tuple[float, float]:
    """Print and give back the median and the 95th percentile."""
    cuts = quantiles(times_ms, n=20)
    print(f"  {what:32} p50 {cuts[9]:7.1f} ms   p95 {cuts[18]:7.1f} ms")
    return cuts[9], cuts[18]


if __name__ == "__main__":
    main(sys.argv[1:])
