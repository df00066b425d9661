"""A line of the record for people, and as a row of a table.

It refuses to know where lines come from. Invariants: every text goes through `display.py`, so no
argument of an agent acts on a terminal; no cell of a table begins as a formula does.
Pure.
"""

from __future__ import annotations

from typing import Final, cast

from ..audit_files import Field, Line
from ..display import show

_ARGUMENT_MAX_CHARS: Final = 60
# What a line says besides when, where and which command.
_FACTS: Final = (
    *("by", "bindings", "grant", "code", "exit_code", "ended_by", "redacted", "repeated"),
    *("left_out", "through"),
)
# The columns of a table; what else a line may say is in the JSON lines.
COLUMNS: Final = (
    *("n", "at", "event", "capsule", "id", "argv", "cwd", "by", "outcome", "code", "reason"),
    *("bindings", "want", "grant", "exit_code", "signal", "ended_by", "duration_s", "redacted"),
    *("binary", "pid", "pid_of_caller", "repeated", "left_out", "argv_sha256"),
)
# A spreadsheet takes what begins so for a formula, and a formula can send the sheet's content
# away. A tab and a return are shown as escapes before they could.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def describe(line: Line, *, is_brief: bool = False) -> str:
    """One line of the record for people; a brief one leaves out what a trial has one of."""
    fields = line.fields
    if not fields:
        return f"line {line.number} of {show(line.file).line}: damaged"
    at = show(str(fields.get("at", ""))[:19].replace("T", " ")).line
    words = [at[11:] if is_brief else at, f"{_value(fields.get('event', '?')):<8}"]
    if not is_brief:
        words.append(show(str(fields.get("capsule", "-"))).line)
    if fields.get("id") and not is_brief:
        words.append(show(str(fields["id"])[:8]).line)
    argv = fields.get("argv")
    if isinstance(argv, list):
        words.append(_command(argv))
    words += [
        f"{key}={_value(fields[key])}"
        for key in _FACTS
        if fields.get(key) not in (None, "", []) and not (is_brief and key == "ended_by")
    ]
    return "  ".join(words)


def row_of(line: Line) -> list[str]:
    """The line's cells, one a column; a damaged line says so and nothing else."""
    if not line.fields:
        damaged = [""] * len(COLUMNS)
        damaged[COLUMNS.index("event")] = "damaged"
        return damaged
    return [_cell(key, line.fields.get(key)) for key in COLUMNS]


def _cell(key: str, value: Field) -> str:
    if value is None or value == "" or value == []:
        return ""
    if isinstance(value, bool | int | float):
        return str(value)
    if key == "argv" and isinstance(value, list):
        text = " ".join(_quoted(item, limit=None) for item in value)
    else:
        text = _value(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _command(argv: list[str]) -> str:
    return " ".join(_quoted(item) for item in argv)


def _quoted(item: object, limit: int | None = _ARGUMENT_MAX_CHARS) -> str:
    """An argument that shows where it begins and ends."""
    text = show(str(item), limit=limit).line
    return f"'{text}'" if " " in text else text


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(show(str(item)).line for item in cast("list[object]", value))
    return show(str(value)).line
