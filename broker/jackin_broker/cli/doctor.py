"""`doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

import json
import os
from typing import Final

import click
import msgspec

from ..display import show

_SIGNS: Final = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> int:
    """Say what is wrong and what to do about it; the exit status is 1 if anything is."""
    from ..doctor import Level, examine

    findings = examine(os.environ)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(findings), indent=2))
    else:
        for finding in findings:
            click.echo(f"{_SIGNS[finding.level]} {finding.check}: {show(finding.message).line}")
            if finding.todo:
                click.echo(f"      → {finding.todo}")
    return int(any(finding.level is Level.WRONG for finding in findings))
