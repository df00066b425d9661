"""`credential check`: fetch each value once, and say of each whether that worked.

By the running broker, whose environment and unlocked vault are what counts; without one, here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack

import click
import msgspec

from .. import config as configuration
from .. import operator_protocol as op
from .. import paths
from ..bindings import Binding, describe_source
from ..config import Config
from ..errors import BrokerUnreachable, ConfigError, JackinError
from ..masking import has_needles
from ..operator_client import ask_broker
from ..redact.needles import refusal_of

Fetch = Callable[[Binding, str], None]


class Verdict(msgspec.Struct, frozen=True):
    """How one binding did. `problem` and `hint` are empty when it worked."""

    name: str
    capsule: str
    source: str
    ok: bool
    problem: str = ""
    hint: str = ""


@click.command(short_help="Fetch the values and say what is wrong.")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(name: str | None, as_json: bool) -> None:
    """Fetch every value, or that of NAME, and say what is wrong and what to do."""
    places = paths.resolve(os.environ)
    config = configuration.load(places.config_file)
    chosen = _chosen(config, name)
    with ExitStack() as stack:
        fetch, where = _fetcher(config, places, stack)
        verdicts = [_verdict(binding, capsule, fetch) for binding, capsule in chosen]
    if as_json:
        click.echo(json.dumps({"by": where, "credentials": msgspec.to_builtins(verdicts)}))
    else:
        _print(verdicts, where)
    if not all(verdict.ok for verdict in verdicts):
        raise click.exceptions.Exit(1)


def _chosen(config: Config, name: str | None) -> list[tuple[Binding, str]]:
    """The bindings to look at, each with the capsule that it is for ("" for all)."""
    every = [(binding, "") for binding in config.bindings.values()]
    for capsule in config.capsules.values():
        every += [(binding, capsule.name) for binding in capsule.env.values()]
    chosen = [(binding, of) for binding, of in every if name in (None, binding.name)]
    if name is not None and not chosen:
        raise ConfigError(
            f"env.{name}: there is no such binding", hint="see: jackin-broker credential list"
        )
    return chosen


def _fetcher(config: Config, places: paths.Paths, stack: ExitStack) -> tuple[Fetch, str]:
    """Who fetches: the broker if one runs, else this process."""
    if _is_broker_up(places):

        def by_broker(binding: Binding, capsule: str) -> None:
            ask_broker(places.operator_socket, op.CheckCredential(0, binding.name, capsule))

        return by_broker, "the running broker"
    from .local_sources import LocalSources

    sources = stack.enter_context(LocalSources(config, places, os.environ))

    def locally(binding: Binding, _capsule: str) -> None:
        value = sources.resolve(binding)
        refusal = refusal_of(value.reveal()) if has_needles(binding) else None
        value.forget()
        if refusal is not None and binding.on_demand:
            raise JackinError(
                f"credential {binding.name}: cannot be redacted: it {refusal}",
                hint='use a longer value, or accept that it is shown: redact = "off"',
            )

    return locally, "this command, as no broker runs"


def _is_broker_up(places: paths.Paths) -> bool:
    try:
        ask_broker(places.operator_socket, op.GetStatus(0))
    except BrokerUnreachable:
        return False
    return True


def _verdict(binding: Binding, capsule: str, fetch: Fetch) -> Verdict:
    source = describe_source(binding.source)
    try:
        fetch(binding, capsule)
    except JackinError as error:
        return Verdict(binding.name, capsule, source, False, str(error), error.hint)
    return Verdict(binding.name, capsule, source, True)


def _print(verdicts: list[Verdict], where: str) -> None:
    for verdict in verdicts:
        name = f"{verdict.name} ({verdict.capsule})" if verdict.capsule else verdict.name
        if verdict.ok:
            click.echo(f"ok    {name}: {verdict.source}")
            continue
        click.echo(f"fail  {name}: {verdict.problem}")
        if verdict.hint:
            click.echo(f"      hint: {verdict.hint}")
    if not verdicts:
        click.echo("no credentials yet: jackin-broker credential add NAME")
    click.echo(f"fetched by {where}", err=True)
