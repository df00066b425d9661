"""`jackin-broker audit`: what of the record is shown, how it is handed on, what a line may do."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jackin_broker import paths
from jackin_broker.audit import Audit, argv_fields
from jackin_broker.audit_files import Line, closed_files, fields_of
from jackin_broker.audit_writer import RecordWriter
from jackin_broker.cli import EXIT_ERROR, EXIT_USAGE, run
from jackin_broker.cli.audit_filter import point_in_time
from jackin_broker.cli.audit_lines import COLUMNS, describe, row_of

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def record(private_home: Path) -> Path:
    path = paths.resolve(os.environ).audit_file
    path.parent.mkdir(mode=0o700, parents=True)
    asyncio.run(a_day(Audit(path)))
    return path


async def a_day(audit: Audit) -> None:
    """A request that was lent a token and failed, one that was denied, one of another capsule."""
    gh: dict[str, Any] = {"capsule": "web", "id": "aa", **argv_fields((b"/usr/bin/gh", b"pr"))}
    npm: dict[str, Any] = {"capsule": "web", "id": "bb", **argv_fields((b"npm", b"publish"))}
    ls: dict[str, Any] = {"capsule": "api", "id": "cc", **argv_fields((b"ls",))}
    with closing(audit):
        await audit.record("asked", **gh, want=[])
        await audit.record("decided", **gh, by="operator", outcome="approved", bindings=["GH"])
        await audit.record("started", **gh, pid=1)
        await audit.record("ended", **gh, exit_code=1, ended_by="exit")
        await audit.record("asked", **npm, want=["NPM"])
        await audit.record("refused", **npm, code="operator_denied", reason="the operator said no")
        await audit.record("decided", **ls, by="rule", outcome="approved", bindings=[])
        await audit.record("ended", **ls, exit_code=0, ended_by="exit")


def shown(capsys: pytest.CaptureFixture[str], *options: str) -> Iterator[tuple[str, str]]:
    """Event and request of every line that `show` prints."""
    assert run(["audit", "show", *options, "--json"]) == 0
    for text in capsys.readouterr().out.splitlines():
        line = json.loads(text)
        yield line["event"], line["id"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--capsule", "api"), "decided cc, ended cc"),
        (("--binding", "GH"), "decided aa, started aa, ended aa"),
        (("--binding", "NPM"), "asked bb"),
        (("--command", "gh"), "asked aa, decided aa, started aa, ended aa"),
        (("--command", "n*"), "asked bb, refused bb"),
        (("--outcome", "approved"), "decided aa, decided cc"),
        (("--outcome", "refused"), "refused bb"),
        (("--outcome", "operator_denied"), "refused bb"),
        (("--outcome", "failed"), "ended aa"),
        (("--outcome", "succeeded"), "ended cc"),
        (("--outcome", "exit"), "ended aa, ended cc"),
        (("--capsule", "web", "--outcome", "approved"), "decided aa"),
        (("--since", "1h", "--last", "1"), "ended cc"),
        (("--since", "2000-01-01", "--capsule", "api"), "decided cc, ended cc"),
        (("--since", "2999-01-01"), ""),
    ],
)
def test_each_filter_shows_what_it_says(
    record: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], wanted: str
) -> None:
    assert ", ".join(" ".join(pair) for pair in shown(capsys, *options)) == wanted


@pytest.mark.parametrize(
    "text", ["yesterday", "2x", "-1h", "", "32nd", "0001-01-01", "999999999999d"]
)
def test_a_time_that_is_none_is_refused_with_an_example(
    record: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert run(["audit", "show", "--since", text]) == EXIT_USAGE
    assert "2026-11-30T14:00" in capsys.readouterr().err


def test_an_age_and_a_date_are_points_in_time() -> None:
    assert point_in_time("90m", NOW) == NOW - timedelta(minutes=90)
    assert point_in_time("2026-11-29T10:00+00:00", NOW) == datetime(2026, 11, 29, 10, tzinfo=UTC)
    local = point_in_time("2026-11-29", NOW)
    assert local is not None
    assert local.tzinfo is not None


def test_it_is_shown_for_people_a_line_each(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[1].split()[2:] == [
        "decided",
        "web",
        "aa",
        "/usr/bin/gh",
        "pr",
        *lines[1].split()[7:],
    ]
    assert "by=operator  bindings=GH" in lines[1]
    assert "code=operator_denied" in lines[5]


HOSTILE = ("\x1b[2J", "\u202e", "a\nb", "\x9b1m", "\U000e0041", "x\ry", "[/]")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_escapes_in_every_field_that_is_shown(text: str) -> None:
    fields: dict[str, Any] = {
        **dict.fromkeys(COLUMNS, text),
        **{"argv": [text], "bindings": [text], "want": [text], "through": text, "grant": text},
    }
    line = Line(1, b"", fields, text)
    for said in (describe(line), *row_of(line), describe(Line(1, b"", {}, text))):
        assert said.isprintable()
        assert "\u202e" not in said


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_table_is_a_formula(start: str) -> None:
    evil = f"{start}cmd|' /C calc'!A0"
    fields: dict[str, Any] = {**dict.fromkeys(COLUMNS, evil), "argv": [evil], "bindings": [evil]}
    cells = row_of(Line(1, b"", fields, ""))
    assert all(cell[0] not in "=+-@\t\r" for cell in cells)


def test_a_table_has_every_line_and_is_read_back(
    record: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["audit", "export", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsysbinary.readouterr().out.decode())))
    assert [row["event"] for row in rows][-2:] == ["decided", "ended"]
    assert [int(row["n"]) for row in rows] == list(range(1, 9))
    assert rows[0]["argv"] == "/usr/bin/gh pr"
    assert rows[1]["bindings"] == "GH"


def test_json_lines_are_the_record_itself_and_can_be_chosen(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "all.jsonl"
    assert run(["audit", "export", "--output", str(target)]) == 0
    assert target.read_bytes() == record.read_bytes()
    some = tmp_path / "some.csv"
    argv = ["audit", "export", "--format", "csv", "--capsule", "api", "--output", str(some)]
    assert run(argv) == 0
    assert len(some.read_text().splitlines()) == 3
    assert some.stat().st_mode & 0o777 == 0o600


def test_verify_counts_over_every_file_and_names_the_first_bad_line(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(RecordWriter(record, file_max_bytes=1000)) as writer:
        for _ in range(20):
            writer.append("asked", {"capsule": "web"})
    assert run(["audit", "verify"]) == 0
    assert capsys.readouterr().out == "28 lines, unbroken\n"
    assert len(list(shown_all(capsys))) == 28
    first = closed_files(record)[0]
    first.write_bytes(first.read_bytes().replace(b'"api"', b'"apx"'))
    assert run(["audit", "verify", "--json"]) == EXIT_ERROR
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["file"], report["line"]) == (False, first.name, 8)


def shown_all(capsys: pytest.CaptureFixture[str]) -> Iterator[dict[str, Any]]:
    assert run(["audit", "show", "--last", "0", "--json"]) == 0
    yield from (json.loads(text) for text in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("raw", [b"\n", b"[]\n", b"{\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_record_is_a_damaged_line_and_no_crash(raw: bytes) -> None:
    line = Line(7, raw, fields_of(raw), "audit.jsonl")
    assert describe(line) == "line 7 of audit.jsonl: damaged"
    assert "damaged" in row_of(line)
