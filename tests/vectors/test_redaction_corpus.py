"""Every case of `fixtures/redaction/`, at every cut. Whose rule: the source named in the file."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from jackin_broker.redact.needles import NeedleSet, build
from jackin_broker.redact.stream import Redactor, redact_all
from support.redaction_corpus import Case, load_cases
from support.redaction_reference import Reference

CASES = load_cases()
WITHOUT_IDLE = [case for case in CASES if not case.has_idle]


def by_name(case: Case) -> str:
    return case.name


def fed(needles: NeedleSet, writes: Iterable[bytes]) -> bytes:
    redactor = Redactor(needles)
    return b"".join([*map(redactor.feed, writes), redactor.finish()])


# Rows of REDACTION §4 with a file. Row 12 is about a message: tests/e2e/test_debug_switches.py;
# row 33, every cut in two, is a test of all files, below.
ROWS = {*range(1, 11), *range(13, 18), 19, 20, 21, 24, 25, 26, 27, 29, 30, 32}


def test_the_corpus_is_there() -> None:
    """All sixteen probes of REDACTION §3 and all rows of §4 that one stream can show."""
    numbers = {
        kind: {int(case.name[len(kind) :][:2]) for case in CASES if case.name.startswith(kind)}
        for kind in ("probe-", "row-")
    }
    assert numbers == {"probe-": set(range(1, 17)), "row-": ROWS}


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_as_written(case: Case) -> None:
    needles = build(case.secrets)
    assert sorted(needles.refused) == sorted(case.refused)
    redactor = Redactor(needles)
    shown = [redactor.idle() if w is None else redactor.feed(w) for w in case.writes]
    assert b"".join(shown) + redactor.finish() == case.expect
    if case.shown is not None:
        assert shown == case.shown


@pytest.mark.parametrize("case", WITHOUT_IDLE, ids=by_name)
def test_cut_in_two_everywhere_and_byte_by_byte(case: Case) -> None:
    needles, data = build(case.secrets), case.data
    assert redact_all(needles, data) == case.expect
    assert fed(needles, (data[at : at + 1] for at in range(len(data)))) == case.expect
    for cut in range(len(data) + 1):
        assert fed(needles, (data[:cut], data[cut:])) == case.expect, cut


@pytest.mark.parametrize("case", WITHOUT_IDLE, ids=by_name)
def test_the_reference_agrees(case: Case) -> None:
    assert Reference(build(case.secrets)).redact(case.data) == case.expect


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_masking_twice_changes_nothing(case: Case) -> None:
    assert redact_all(build(case.secrets), case.expect) == case.expect
