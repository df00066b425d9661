"""CI runs every measurement and looks whether each has what it is compared with.

They run there alone, one after the other: side by side with the tests they would measure those.
"""

from __future__ import annotations

import runpy

from support.source_tree import REPOSITORY

BENCH = REPOSITORY / "tests" / "bench"


def test_ci_runs_every_measurement_and_looks_for_its_comparison() -> None:
    ci = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert '"$bin/python" tests/bench/every.py --quick' in ci
    rows: dict[str, tuple[str, ...]] = runpy.run_path(str(BENCH / "every.py"))["ROWS"]
    assert set(rows) == {path.stem for path in BENCH.glob("*.py")} - {"every"}
    assert all(rows.values())


def test_every_measurement_says_how_it_is_run() -> None:
    for path in BENCH.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert f"tests/bench/{path.name} [--quick]" in text, path.name
