"""Start-up of a bwrap capsule, launcher already loaded, beside plain bwrap with the same Python.

    python tests/bench/launch.py [--quick]

Each runs to the end of `true` in turn, round after round; a ratio is the median of the rounds'. In
plain bwrap the interpreter becomes `true`; the capsule has its init on record, namespaces of the
agent's own, and `true` as the agent.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jackin_broker.config import Mount
from jackin_broker.launch.base import Plan
from jackin_broker.launch.bwrap import BubblewrapLauncher
from jackin_broker.launch.run import Watch, run
from jackin_broker.links import build_programs

ROUNDS: Final = 40
QUICK_ROUNDS: Final = 12
WARM_UP_ROUNDS: Final = 3
GOAL: Final = 1.5
SHORTEST: Final = "plain bwrap, shortest command line"
BARE: Final = "plain bwrap, the capsule's mounts"
CAPSULE: Final = "capsule"
_BECOME: Final = "import posix; posix.execv('/bin/true', ['true'])"


def plain(interpreter: str) -> Callable[[], None]:
    """The shortest bubblewrap command line with the same namespaces."""
    namespaces = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    files = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    argv = ["bwrap", *namespaces, "--die-with-parent", *files]
    argv += ["--", interpreter, "-I", "-S", "-c", _BECOME]

    def start() -> None:
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)

    return start


def bare(plan: Plan) -> Callable[[], None]:
    """The capsule's own mounts and namespaces, in which the interpreter becomes `true`."""
    launcher = BubblewrapLauncher()

    def start() -> None:
        prepared = launcher.prepare(plan)
        before = prepared.argv[: prepared.argv.index("-IS")]
        child = subprocess.Popen(
            [*before, "-I", "-S", "-c", _BECOME],
            env=prepared.env,
            pass_fds=prepared.child_fds,
            stdin=subprocess.DEVNULL,
        )
        prepared.close_child_fds()
        assert child.wait() == 0
        prepared.close()

    return start


def planned(root: Path) -> Plan:
    """A capsule with one mount."""
    interpreter = BubblewrapLauncher().interpreter()
    for name in ("run", "project"):
        (root / name).mkdir()
    build_programs(root / "bin", ["gh"], interpreter)
    return Plan(
        name="bench",
        command=("/bin/true",),
        env={"PATH": "/jackin/bin:/usr/bin:/bin"},
        run_dir=str(root / "run"),
        bin_dir=str(root / "bin"),
        interpreter=interpreter,
        uid=os.geteuid(),
        mounts=(Mount("/workspace", str(root / "project")),),
        cwd="/workspace",
    )


def capsule(plan: Plan) -> Callable[[], None]:
    """The capsule as `launch` starts it."""
    launcher = BubblewrapLauncher()

    def start() -> None:
        status = run(launcher, plan, lambda _pid, _container: None, Watch())
        assert status == 0, f"the capsule ended with {status}"

    return start


def measured(start: Callable[[], None]) -> float:
    begun = time.perf_counter()
    start()
    return time.perf_counter() - begun


def main() -> int:
    """Print both, and the ratio against the goal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    rounds = QUICK_ROUNDS if parser.parse_args().quick else ROUNDS
    with tempfile.TemporaryDirectory(prefix="jx") as folder:
        plan = planned(Path(folder))
        starts = {
            SHORTEST: plain(plan.interpreter),
            BARE: bare(plan),
            CAPSULE: capsule(plan),
        }
        ways: dict[str, list[float]] = {name: [] for name in starts}
        for number in range(rounds + WARM_UP_ROUNDS):
            for name, start in starts.items():
                took = measured(start)
                if number >= WARM_UP_ROUNDS:
                    ways[name].append(took)
    for name, times in ways.items():
        print(f"{name:38} {statistics.median(times) * 1000:7.2f} ms")
    for name in (SHORTEST, BARE):
        pairs = zip(ways[CAPSULE], ways[name], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        print(f"capsule / {name}: {ratio:.2f}")
    print(f"goal, beside {BARE}: {GOAL:g} or less: {'met' if ratio <= GOAL else 'missed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
