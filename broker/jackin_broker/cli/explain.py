"""`explain`: what a capsule is given, before anything is started. It changes nothing.

Works without a broker. Text for people, and JSON with a version for programs
(`fixtures/explain/contract-1.schema.json`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from .. import config as configuration
from .. import paths
from ..config import CapsuleConfig, Config, Mount
from ..contract import Contract, MountLine, contract_of
from ..errors import ConfigError
from ..operator_protocol import OpenCapsule

_NETWORK: Final = {
    "bwrap": "the host's",
    "none": "the host's",
    "podman": "the engine's",
    "docker": "the engine's",
    "remote": "its machine's",
}


@click.command()
@click.argument("name", default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(name: str, as_json: bool) -> None:
    """Say what the capsule NAME is given: mounts, credentials, programs, rules, risks."""
    _explain(name, (), "", has_network=True, as_json=as_json)


def explain_launch(
    _socket: Path, call: OpenCapsule, *, image: str, has_network: bool, as_json: bool
) -> None:
    """The same for a launch that is not made.

    Raises: ConfigError.
    """
    mounts = tuple(Mount(one.capsule, one.host, one.read_only) for one in call.mounts)
    _explain(call.name, mounts, image, has_network=has_network, as_json=as_json, kind=call.kind)


def _explain(
    name: str,
    mounts: Sequence[Mount],
    image: str,
    *,
    has_network: bool,
    as_json: bool,
    kind: str = "",
) -> None:
    private = paths.resolve(os.environ)
    config = configuration.load(private.config_file)
    places = paths.resolve(os.environ, config.broker.runtime_dir)
    capsule = _named(config, name)
    if kind not in ("", capsule.kind.value):
        raise ConfigError(
            f"capsules.{capsule.name}.kind: is {capsule.kind.value}, not {kind}",
            hint="leave --runtime out, or change its kind",
        )
    contract = contract_of(
        config,
        capsule,
        places,
        os.environ,
        mounts=mounts,
        image=image,
        has_network=has_network,
        now=datetime.now().astimezone(),
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(contract), indent=2).decode())
        return
    for line in lines_of(contract):
        click.echo(line)


def _named(config: Config, name: str) -> CapsuleConfig:
    if not name and len(config.capsules) == 1:
        return next(iter(config.capsules.values()))
    if name in config.capsules:
        return config.capsules[name]
    if not config.capsules:
        raise ConfigError(
            "no capsule is configured",
            hint="switch one on in the file that `jackin-broker config path` names",
        )
    names = ", ".join(config.capsules)
    if name:
        raise ConfigError(f"capsules.{name}: is not configured", hint=f"there is: {names}")
    raise ConfigError("which capsule?", hint=f"name one: {names}")


def lines_of(contract: Contract) -> Iterator[str]:
    """The contract for people."""
    head = f"capsule {contract.capsule} ({contract.kind}"
    yield head + (f", image {contract.image})" if contract.image else ")")
    uids = ", ".join(map(str, contract.uids))
    yield f"  lives as     uid {uids}; who may ask: {contract.speakers}"
    network = _NETWORK[contract.kind] if contract.has_network else "its own, empty"
    yield f"  network      {network}"
    yield from _part("mounts", (_mount_text(one) for one in contract.mounts), contract.programs)
    yield from _part("never sees", contract.hidden_paths)
    yield from _part("is given", contract.given, *(f"{k}={v}" for k, v in contract.names.items()))
    yield from _part(
        "may be lent",
        (
            f"{one.name}: {one.source}, by {one.delivery} as {one.variable}"
            + ("" if one.is_redacted else ", not taken out of the output")
            + (f" ({one.label})" if one.label else "")
            for one in contract.bindings
        ),
    )
    yield from _part(
        "programs",
        (
            f"{one.name}: {one.path or 'missing on this PATH'}, "
            + ("confined" if one.is_confined else "unconfined")
            + (", your own HOME" if one.home == "operator" else "")
            + ("" if one.has_network else ", no network")
            for one in contract.binaries
        ),
    )
    yield from _part("runs", (f"{where}: {what}" for where, what in contract.targets.items()))
    yield from _part("rules", _rule_texts(contract))
    yield from _part("doorways", (f"{kind}: {at}" for kind, at in contract.doorways.items()))
    yield from _part("last calls", _call_texts(contract))
    yield from _part("effects", contract.effects)
    yield from _part("risks", contract.risks)


def _part(title: str, texts: Iterator[str] | Sequence[str], *more: str) -> Iterator[str]:
    every = [*texts, *more]
    for number, text in enumerate(every or ["none"]):
        yield f"  {title if number == 0 else '':<13}{text}"


def _mount_text(mount: MountLine) -> str:
    mode = " (read-only)" if mount.read_only else ""
    refused = f"; launch refuses it: {mount.why_refused}" if mount.why_refused else ""
    return f"{mount.capsule} is {mount.host}{mode}{refused}"


def _rule_texts(contract: Contract) -> Iterator[str]:
    for rule in contract.rules:
        where = f", target {rule.target}" if rule.target else ""
        lent = f", with {', '.join(rule.bindings)}" if rule.bindings else ""
        yield f"{rule.text}{where}{lent}"
        for warning in rule.warnings:
            yield f"  warning: {warning}"
    yield "what no rule names is asked"


def _call_texts(contract: Contract) -> Iterator[str]:
    for call in contract.recent_calls:
        by = f" by {call.by}" if call.by else ""
        lent = f", with {', '.join(call.bindings)}" if call.bindings else ""
        yield f"{call.at} {call.outcome}{by}{lent}: {call.command}"
