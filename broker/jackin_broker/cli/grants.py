"""`grants`: what may be used again, with its last use and its end; revoke one, or all of them.

An "always" is listed too: it is a rule in the configuration, and revoking takes it out there.
Every text goes through `display.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import click
import msgspec

from .. import operator_protocol as op
from .. import paths
from ..display import show
from ..operator_client import ask_broker

_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_LINE_MAX_CHARS: Final = 400


@click.group()
def grants() -> None:
    """List and revoke what may run again without being asked."""


@grants.command("list")
@_JSON
def list_(as_json: bool) -> None:
    """List every grant in force and every "always", with last use and end."""
    reply = _call(op.ListGrants(0))
    assert isinstance(reply, op.Grants)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(reply.grants), indent=2))
    elif not reply.grants:
        click.echo("nothing may run again without being asked, but by the rules you wrote")
    for grant in () if as_json else reply.grants:
        click.echo("\n".join(_lines(grant)))


@grants.command()
@click.argument("grant_id", metavar="ID", required=False, default="")
@click.option("--all", "everything", is_flag=True, help="Every grant and every always.")
@click.option("--kill", is_flag=True, help="With --all: also end what was approved and runs.")
@_JSON
def revoke(grant_id: str, everything: bool, kill: bool, as_json: bool) -> None:
    """End the grant ID, or with --all every one."""
    if bool(grant_id) == everything:
        raise click.UsageError("name one grant, or say --all")
    if kill and not everything:
        raise click.UsageError("--kill goes with --all")
    if everything:
        reply = _call(op.RevokeAll(0, kill=kill))
        assert isinstance(reply, op.Done)
        notes = reply.notes
    else:
        _call(op.RevokeGrant(0, grant_id))
        notes = (f"ended {grant_id}",)
    if as_json:
        click.echo(json.dumps({"notes": list(notes)}))
    else:
        click.echo("\n".join(notes))


def _call(call: op.Call) -> op.Reply:
    return ask_broker(paths.resolve(os.environ).operator_socket, call)


def _lines(grant: op.GrantView) -> Iterator[str]:
    ends = f"ends {_time(grant.expires_at)}" if grant.expires_at is not None else "without an end"
    uses = "" if grant.uses_left is None else f", {grant.uses_left} uses left"
    used = "never used" if grant.last_used_at is None else f"last used {_time(grant.last_used_at)}"
    made = f"made {_time(grant.made_at)}, " if grant.made_at else ""
    kind = "always" if grant.is_rule else "grant"
    note = f" ({grant.note})" if grant.note else ""
    yield f"{grant.id}  {kind}{note}  {made}{ends}{uses}, {used}"
    for line in grant.text.split("\n"):
        yield f"  {show(line, limit=_LINE_MAX_CHARS).line}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
