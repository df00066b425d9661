"""`audit`: read the record, follow it, check it, hand it on.

It reads the file itself, so it works without a broker. Texts from capsules go through
`display.py`; `export` gives the lines as they are, for machines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, Final, cast

import click

from .. import audit as record
from .. import paths
from ..display import show
from ..errors import JackinError

# How often `follow` looks for new lines; a person does not notice less.
FOLLOW_INTERVAL_S: Final = 0.2
_ARGUMENT_MAX_CHARS: Final = 60
# What a line says besides when, where and which command.
_FACTS: Final = ("by", "bindings", "code", "exit_code", "ended_by", "redacted", "repeated")
# The record names commands, arguments and directories: for its owner alone.
_EXPORT_MODE: Final = 0o600


@click.group()
def audit() -> None:
    """Read and check the record of what was asked and run."""


@audit.command("show")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=50,
    show_default="50",
    help="So many lines; 0 for all.",
)
@click.option("--json", "as_json", is_flag=True, help="The lines as they are.")
def show_(last: int, as_json: bool) -> None:
    """Print the newest lines, oldest first."""
    lines = list(record.read(_path()))
    for line in lines[-last:] if last else lines:
        _print(line, as_json)


@audit.command()
@click.option("--json", "as_json", is_flag=True, help="The lines as they are.")
def follow(as_json: bool) -> None:
    """Print every new line as it is written, until interrupted."""
    path = _path()
    seen = sum(1 for _ in record.read(path))
    click.echo(f"following {path}, interrupt to end", err=True)
    while True:
        for line in record.read(path):
            if line.number > seen:
                _print(line, as_json)
                seen = line.number
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
            click.echo(json.dumps({"ok": False, "line": damage.number, "reason": str(damage)}))
        raise JackinError(
            f"the record is damaged at {damage}",
            hint=f"keep {path} for a look, then move it away: a new chain starts by itself",
        ) from damage
    click.echo(json.dumps({"ok": True, "lines": count}) if as_json else f"{count} lines, unbroken")


@audit.command()
@click.option("--output", type=click.Path(path_type=Path), help="A new file instead of stdout.")
def export(output: Path | None) -> None:
    """Write the whole record as JSON lines."""
    path = _path()
    with _new_file(output) if output else nullcontext(sys.stdout.buffer) as sink:
        for line in record.read(path):
            sink.write(line.raw)
        sink.flush()


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
    if not path.exists():
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


def describe(line: record.Line, *, is_brief: bool = False) -> str:
    """One line of the record for people; a brief one leaves out what a trial has one of."""
    fields = line.fields
    if not fields:
        return f"{line.number}: damaged line"
    at = str(fields.get("at", ""))[:19].replace("T", " ")
    words = [at[11:] if is_brief else at, f"{fields.get('event', '?')!s:<8}"]
    if not is_brief:
        words.append(show(str(fields.get("capsule", "-"))).line)
    if fields.get("id") and not is_brief:
        words.append(str(fields["id"])[:8])
    argv = fields.get("argv")
    if isinstance(argv, list):
        words.append(" ".join(_quoted(item) for item in argv))
    words += [
        f"{key}={_value(fields[key])}"
        for key in _FACTS
        if fields.get(key) not in (None, "", []) and not (is_brief and key == "ended_by")
    ]
    return "  ".join(words)


def _quoted(item: object) -> str:
    """An argument that shows where it begins and ends."""
    text = show(str(item), limit=_ARGUMENT_MAX_CHARS).line
    return f"'{text}'" if " " in text else text


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(show(str(item)).line for item in cast("list[object]", value))
    return show(str(value)).line
