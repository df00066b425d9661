"""Answer without the screen: `requests`, `decide`, `kill`.

`request_lines.py` takes everything that came from a capsule through `display.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Final

import click
import msgspec

from .. import operator_protocol as op
from .. import paths
from ..display import show
from ..errors import DenialCode, JackinError, Refusal
from ..operator_client import OperatorClient, ask_broker
from .duration import whole
from .request_lines import request_lines

# Shorter beginnings of an id are typed by mistake more often than on purpose.
ID_PREFIX_MIN_CHARS: Final = 4


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="A list of objects; with --follow one a line."
)
@click.option("--follow", is_flag=True, help="Go on: print every change. Counts as an operator.")
def requests(as_json: bool, follow: bool) -> None:
    """List the requests that wait or run."""
    socket_path = paths.resolve(os.environ).operator_socket
    if follow:
        asyncio.run(_follow(str(socket_path), as_json))
        return
    views = _views()
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(views), indent=2))
    elif not views:
        click.echo("nothing waits, nothing runs")
    else:
        for view in views:
            click.echo(request_lines(view))


async def _follow(socket_path: str, as_json: bool) -> None:
    client = await OperatorClient.connect(socket_path)
    try:
        attached = await client.call(op.Attach(0, op.OPERATOR_PROTOCOL_VERSION, client="follow"))
        assert isinstance(attached, op.Attached)
        for view in attached.requests:
            _print_change(view, as_json)
        async for push in client:
            if isinstance(push, op.RequestChanged):
                _print_change(push.request, as_json)
            elif isinstance(push, op.Goodbye):
                raise JackinError(f"the broker ended: {push.reason}")
    finally:
        await client.close()


def _print_change(view: op.RequestView, as_json: bool) -> None:
    click.echo(json.dumps(msgspec.to_builtins(view)) if as_json else request_lines(view))


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--approve", is_flag=True, help="Run it.")
@click.option("--deny", is_flag=True, help="Do not.")
@click.option("--with", "names", default="", metavar="NAME,…", help="Lend it these; else none.")
@click.option(
    "--for", "minutes", callback=whole("m"), metavar="15m", help="This again, unasked, so long."
)
@click.option("--uses", type=int, metavar="N", help="This again, unasked, N more times.")
@click.option(
    "--always",
    "days",
    callback=whole("d"),
    metavar="90d",
    help="As a rule that ends after so long.",
)
@click.option("--reason", default="", help="With --deny: what the agent is told.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def decide(
    request_id: str,
    approve: bool,
    deny: bool,
    names: str,
    minutes: int | None,
    uses: int | None,
    days: int | None,
    reason: str,
    as_json: bool,
) -> None:
    """Answer the request ID (or the beginning of one) without the picker."""
    if approve == deny:
        raise click.UsageError("say --approve or --deny")
    if deny and (names or minutes or uses):
        raise click.UsageError("--with, --for and --uses go with --approve")
    if approve and reason:
        raise click.UsageError("--reason goes with --deny")
    term = _term(minutes, uses, days)
    view = _find(request_id)
    bindings = tuple(name for name in names.split(",") if name)
    call = op.Decide(0, view.id, op.view_digest(view), approve, bindings, reason, term)
    reply = ask_broker(paths.resolve(os.environ).operator_socket, call)
    assert isinstance(reply, op.Decided)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(reply)))
    if not reply.accepted:
        raise JackinError(f"not decided: {reply.reason}", hint="look again: jackin-broker requests")
    if not as_json:
        _print_decided(view, call, reply)
    if reply.code:
        raise JackinError(
            f"decided for once, and nothing was stored: {reply.reason}",
            hint="see what is in force: jackin-broker grants list",
        )


def _print_decided(view: op.RequestView, call: op.Decide, reply: op.Decided) -> None:
    """What was decided, and word for word what was stored with it."""
    click.echo(f"{'approved' if call.approve else 'denied'} {view.id}")
    if not reply.grant_id:
        return
    click.echo(f"stored as {reply.grant_id}, to be seen and ended with: jackin-broker grants")
    for offer in view.offers:
        if (offer.term, offer.approve) == (call.grant, call.approve):
            for line in op.stored_text(offer.text, call.bindings).split("\n"):
                click.echo(f"  {show(line).line}")


def _term(minutes: int | None, uses: int | None, days: int | None) -> op.GrantTerm:
    """What the options name, once where they name nothing."""
    chosen = [
        op.GrantTerm(kind, amount)
        for kind, amount in (
            (op.GrantKind.MINUTES, minutes),
            (op.GrantKind.USES, uses),
            (op.GrantKind.ALWAYS, days),
        )
        if amount is not None
    ]
    if len(chosen) > 1:
        raise click.UsageError("--for, --uses and --always are three answers, say one")
    return chosen[0] if chosen else op.ONCE


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def kill(request_id: str, as_json: bool) -> None:
    """End the running command ID and everything it started."""
    view = _find(request_id)
    if view.state is op.RequestState.WAITING:
        raise JackinError(
            f"{view.id} waits, it does not run",
            hint=f"answer it: jackin-broker decide {view.id} --deny",
        )
    ask_broker(paths.resolve(os.environ).operator_socket, op.KillRequest(0, view.id))
    click.echo(json.dumps({"ended": view.id}) if as_json else f"ended {view.id}")


def _views() -> tuple[op.RequestView, ...]:
    reply = ask_broker(paths.resolve(os.environ).operator_socket, op.ListRequests(0))
    assert isinstance(reply, op.Requests)
    return reply.requests


def _find(request_id: str) -> op.RequestView:
    views = _views()
    for view in views:
        if view.id == request_id:
            return view
    hits = [view for view in views if view.id.startswith(request_id)]
    if len(hits) == 1 and len(request_id) >= ID_PREFIX_MIN_CHARS:
        return hits[0]
    raise Refusal(
        DenialCode.BAD_REQUEST,
        f"{len(hits) or 'no'} requests on the desk begin with that id",
        hint="list them with: jackin-broker requests",
    )
