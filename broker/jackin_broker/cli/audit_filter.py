"""Which lines of the record are wanted: by capsule, binding, command, outcome and time.

It refuses to know files. A filter is asked about the lines in order, because a binding is named
where its request was decided and counts for the lines of that request that follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

import click

from ..audit_files import Line
from ..errors import DenialCode
from ..protocol import EndedBy

F = TypeVar("F", bound=Callable[..., Any])

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"([0-9]{1,6})([smhdw])")
# Fields that name bindings.
_NAMING: Final = ("bindings", "want", "argv_holds")
APPROVED: Final = "approved"
REFUSED: Final = "refused"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
# What became of a request, in one word: ours, and those that the record uses.
OUTCOMES: Final = tuple(
    dict.fromkeys(
        (
            *(APPROVED, REFUSED, SUCCEEDED, FAILED),
            *(code.value for code in DenialCode),
            *(how.value for how in EndedBy),
        )
    )
)


class Filter:
    """What to show of the record; an empty wish is no wish."""

    def __init__(
        self,
        capsule: str | None = None,
        binding: str | None = None,
        command: str | None = None,
        outcome: str | None = None,
        since: datetime | None = None,
    ) -> None:
        self._capsule, self._binding = capsule, binding
        self._command, self._outcome, self._since = command, outcome, since
        self._lent: set[str] = set()  # requests that were decided with the binding

    def admits(self, line: Line) -> bool:
        """Whether the line is wanted; a damaged one always is."""
        if not line.fields:
            return True
        return (
            self._is_of_binding(line)
            and (self._capsule is None or line.fields.get("capsule") == self._capsule)
            and (self._command is None or _is_of_command(line, self._command))
            and (self._outcome is None or self._outcome in outcomes_of(line))
            and (self._since is None or _is_since(line, self._since))
        )

    def _is_of_binding(self, line: Line) -> bool:
        if self._binding is None:
            return True
        request_id = str(line.fields.get("id", ""))
        for key in _NAMING:
            names = line.fields.get(key)
            if isinstance(names, list) and self._binding in names:
                if key == "bindings" and request_id:
                    self._lent.add(request_id)
                return True
        return request_id in self._lent


def outcomes_of(line: Line) -> set[str]:
    """Every word that says what became of the request in this line."""
    fields = line.fields
    said = {str(fields[key]) for key in ("outcome", "code", "ended_by") if fields.get(key)}
    event, status = fields.get("event"), fields.get("exit_code")
    if event == "refused":
        said.add(REFUSED)
    if event == "ended":
        said.add(SUCCEEDED if status == 0 else FAILED)
    return said


def _is_of_command(line: Line, wish: str) -> bool:
    """The program's name, or the path of it, as a pattern with `*` and `?`."""
    argv = line.fields.get("argv")
    if not isinstance(argv, list) or not argv:
        return False
    name = str(argv[0])
    return fnmatchcase(name, wish) or fnmatchcase(name.rpartition("/")[2], wish)


def _is_since(line: Line, since: datetime) -> bool:
    try:
        at = datetime.fromisoformat(str(line.fields.get("at")))
    except ValueError:
        return True  # it does not say: rather shown than hidden
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) >= since


def point_in_time(text: str, now: datetime) -> datetime | None:
    """`2h`, `7d` ago, or a date or time of the local calendar; None for anything else."""
    try:
        if found := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[found[2]]: int(found[1])})
        return datetime.fromisoformat(text).astimezone()  # without an offset: the operator's own
    except (ValueError, OverflowError):  # also what leads out of the calendar
        return None


def _since(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    at = point_in_time(value, datetime.now().astimezone())
    if at is None:
        words = "expected 30m, 2h, 7d, or a date as in 2026-11-30 or 2026-11-30T14:00"
        raise click.BadParameter(words, ctx=ctx, param=param)
    return at


def filtered(command: F) -> F:
    """A command with the options of a filter."""
    options = (
        click.option("--capsule", metavar="NAME", help="Only of this capsule."),
        click.option("--binding", metavar="NAME", help="Only what was lent, or wanted, this one."),
        click.option("--command", metavar="NAME", help="Only this program; * and ? match."),
        click.option(
            "--outcome",
            type=click.Choice(OUTCOMES),
            metavar="OUTCOME",
            help="approved, refused, succeeded, failed, or a code such as operator_denied.",
        ),
        click.option(
            "--since", callback=_since, metavar="2h", help="Only since then: 2h, 7d, or a date."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
