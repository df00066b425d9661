"""`audit`: read the record, follow it, check it, hand it on.

It reads the files itself, so it works without a broker. `audit_filter.py` chooses the lines,
`audit_lines.py` takes every text of a capsule through `display.py`; the JSON lines are as they
are, for machines.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, TypedDict, Unpack

import click

from .. import audit_files as record
from .. import paths
from ..errors import JackinError
from .audit_filter import Filter, filtered
from .audit_lines import COLUMNS, describe, row_of

# How often `follow` looks for new lines; a person does not notice less.
FOLLOW_INTERVAL_S: Final = 0.2
# The record names commands, arguments and directories: for its owner alone.
_EXPORT_MODE: Final = 0o600


class Wishes(TypedDict):
    """What the options of a filter say."""

    capsule: str | None
    binding: str | None
    command: str | None
    outcome: str | None
    since: datetime | None


@click.group()
def audit() -> None:
    """Read and check the record of what was asked and run."""


@audit.command("show")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="So many lines; 0 for all.",
)
@filtered
@click.option("--json", "as_json", is_flag=True, help="The lines as they are.")
def show_(last: int, as_json: bool, **wishes: Unpack[Wishes]) -> None:
    """Print the newest lines, oldest first."""
    for line in deque(_wanted(wishes), maxlen=last or None):
        _print(line, as_json)


@audit.command()
@filtered
@click.option("--json", "as_json", is_flag=True, help="The lines as they are.")
def follow(as_json: bool, **wishes: Unpack[Wishes]) -> None:
    """Print every new line as it is written, until interrupted."""
    path, wanted = _path(), Filter(**wishes)
    for line in record.read(path):  # for what was decided before and ends later
        wanted.admits(line)
    with closing(record.Follower(path)) as follower:
        click.echo(f"following {path}, interrupt to end", err=True)
        while True:
            for line in follower.new():
                if wanted.admits(line):
                    _print(line, as_json)
            time.sleep(FOLLOW_INTERVAL_S)


@audit.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(as_json: bool) -> None:
    """Check that every line continues the one before it."""
    path = _path()
    try:
        count = record.verify(path)
    except record.Damage as damage:
        if as_json:
            facts = {"ok": False, "file": damage.file, "line": damage.number}
            click.echo(json.dumps({**facts, "reason": str(damage)}))
        raise JackinError(
            f"the record is damaged at {damage}",
            hint=f"keep {path.parent / path.stem}* for a look, then move them away: "
            "a new chain starts by itself",
        ) from damage
    click.echo(json.dumps({"ok": True, "lines": count}) if as_json else f"{count} lines, unbroken")


@audit.command()
@click.option(
    "--format",
    "style",
    type=click.Choice(("jsonl", "csv")),
    default="jsonl",
    show_default=True,
    help="JSON lines as they are, or a table that a spreadsheet opens.",
)
@click.option("--output", type=click.Path(path_type=Path), help="A new file instead of stdout.")
@filtered
def export(style: str, output: Path | None, **wishes: Unpack[Wishes]) -> None:
    """Write the record as JSON lines or a table."""
    lines = _wanted(wishes)
    with _new_file(output) if output else nullcontext(sys.stdout.buffer) as sink:
        if style == "csv":
            _write_table(sink, lines)
        else:
            sink.writelines(line.raw for line in lines)
        sink.flush()


def _write_table(sink: BinaryIO, lines: Iterator[record.Line]) -> None:
    table = io.TextIOWrapper(sink, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(table)
        writer.writerow(COLUMNS)
        writer.writerows(row_of(line) for line in lines)
    finally:
        table.detach()  # the sink is somebody else's to close


def _wanted(wishes: Wishes) -> Iterator[record.Line]:
    wanted = Filter(**wishes)
    return (line for line in record.read(_path()) if wanted.admits(line))


def _new_file(path: Path) -> BinaryIO:
    """A file that was not there before and that nobody else reads.

    Raises: JackinError.
    """
    try:
        return open(path, "xb", opener=lambda name, flags: os.open(name, flags, _EXPORT_MODE))
    except FileExistsError as error:
        raise JackinError(f"{path} exists already", hint="name a file that does not") from error
    except OSError as error:
        reason = (error.strerror or "it cannot be written").lower()
        raise JackinError(f"{path}: {reason}", hint="name a file of your own") from error


def _path() -> Path:
    path = paths.resolve(os.environ).audit_file
    if not path.exists() and not record.closed_files(path):
        raise JackinError(
            f"there is no record yet at {path}", hint="it begins with the first broker's start"
        )
    return path


def _print(line: record.Line, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(line.raw)
        sys.stdout.buffer.flush()
    else:
        click.echo(describe(line))
