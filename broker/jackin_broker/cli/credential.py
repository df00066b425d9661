"""`credential`: put values where commands can be lent them, look at what is there, take it away.

A value comes from a hidden prompt, from stdin or from a file, never from argv, and leaves to the
keyring only. The configuration gets the binding, which holds none.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

import click

from .. import config as configuration
from .. import paths
from ..bindings import Binding, Delivery, KeyringSource, Redact, describe_source
from ..config import Config, InvalidConfig, edits
from ..config.delivering import wrong_variable
from ..display import show
from ..errors import ConfigError, JackinError
from .credential_check import check
from .hidden_prompt import require_terminal
from .new_value import VALUE_WITHOUT_TERMINAL, check_value, read_value

# Items that we make are found under this name in a keyring's own program.
DEFAULT_SERVICE: Final = "jackin-exec"
_CONFIG_LOCK_NAME: Final = "config.lock"


@click.group()
def credential() -> None:
    """Add, list, check and remove credentials."""


credential.add_command(check)


@credential.command(short_help="Store a value and write the binding NAME.")
@click.argument("name")
@click.option("--service", help=f"The keyring's service.  [default: {DEFAULT_SERVICE}]")
@click.option("--username", help="The keyring's user name.  [default: NAME]")
@click.option(
    "--deliver",
    type=click.Choice([way.value for way in Delivery]),
    help="How a command gets it.  [default: env; file for a name such as SSH_KEY]",
)
@click.option("--prompt", help="For --deliver prompt: the pattern of the question.")
@click.option("--deliver-as", metavar="VARIABLE", help="The variable's name.  [default: NAME]")
@click.option(
    "--passphrase",
    metavar="NAME",
    help="For --deliver ssh-agent: the binding whose value opens the key.",
)
@click.option(
    "--destination",
    "destinations",
    multiple=True,
    metavar="[USER@]HOST",
    help="For --deliver ssh-agent: the only host that the key is for; may be repeated.",
)
@click.option("--label", help="A few words for the picker.")
@click.option(
    "--redact",
    type=click.Choice([how.value for how in Redact]),
    help="Whether it is taken out of the output.  [default: on]",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the value from a file, less one newline.",
)
@click.option("--from-stdin", is_flag=True, help="Read the value from stdin, less one newline.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def add(
    name: str,
    from_file: Path | None,
    from_stdin: bool,
    as_json: bool,
    **options: str | tuple[str, ...] | None,
) -> None:
    """Store a value in the keyring and write the binding NAME into the configuration.

    The value is asked for on the terminal, or read from stdin or a file; never an argument.
    """
    if wrong := wrong_variable(name):
        raise click.BadParameter(wrong, param_hint="NAME")
    if from_file is not None and from_stdin:
        raise click.UsageError("--from-file and --from-stdin are two sources: give one")
    places = paths.resolve(os.environ)
    entry = _entry(configuration.load(places.config_file), name, options)

    def change(text: str) -> str:
        return edits.set_entry(text, name, entry)

    planned = _planned(places.config_file, change)
    given = read_value(name, from_file, from_stdin) if from_file or from_stdin else None
    keyring = _store(planned, places, name, given)
    edits.write(places.config_file, change, lock=places.state_dir / _CONFIG_LOCK_NAME)
    _say_added(name, keyring, places.config_file, as_json)
    for line in configuration.warnings(planned):
        if line.startswith(f"env.{name}: "):
            click.echo(f"warning: {line}", err=True)


def _planned(file: Path, change: edits.Change) -> Config:
    """The configuration as it would be. The file was in order: what is wrong now, an option said.

    Raises: ConfigError.
    """
    try:
        return edits.preview(file, change)
    except InvalidConfig as error:
        raise ConfigError(
            str(error.problems[0]),
            hint="nothing was stored; what goes together: jackin-broker credential add --help",
        ) from error


def _entry(
    config: Config, name: str, options: dict[str, str | tuple[str, ...] | None]
) -> dict[str, object]:
    """The keys to write for this binding: all of a new one's, the given ones of an old one's.

    Raises: ConfigError where the name has another source already.
    """
    given: dict[str, object] = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in options.items()
        if value is not None and value != ()
    }
    keys: dict[str, object] = {}
    old = config.bindings.get(name)
    if old is not None and not isinstance(old.source, KeyringSource):
        raise ConfigError(
            f"env.{name}: comes from {describe_source(old.source)} already",
            hint=f"first: jackin-broker credential remove {name}",
        )
    if old is None or "service" in given:
        keys["keyring"] = given.pop("service", DEFAULT_SERVICE)
    if "username" in given:
        keys["username"] = given.pop("username")
    if old is None:
        keys["on_demand"] = True
    return {**keys, **given}


def _store(config: Config, places: paths.Paths, name: str, given: str | None) -> str:
    """Put the value into the keyring; the words for it. None: ask for the value.

    What was read is checked before a passphrase is asked for. What has to be typed is asked for
    after it: a mistyped passphrase then costs no second typing of the value.
    """
    from .local_sources import LocalSources

    binding = config.bindings[name]
    assert isinstance(binding.source, KeyringSource)
    if given is not None:
        check_value(binding, given)
    else:
        require_terminal(VALUE_WITHOUT_TERMINAL)
    with LocalSources(config, places, os.environ) as sources:
        keyring = sources.open_keyring(create=True)
        value = read_value(name, None, False) if given is None else given
        check_value(binding, value)
        sources.store(binding.source, value, name=name)
    return keyring


def _say_added(name: str, keyring: str, file: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"name": name, "keyring": keyring, "config": str(file)}))
        return
    click.echo(f"{name}: the value is in {keyring}, the binding in {file}")
    click.echo("a running broker sees it after: jackin-broker reload", err=True)


@credential.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the bindings: names, sources and deliveries, no values."""
    config = configuration.load(paths.resolve(os.environ).config_file)
    rows = [_row(binding, "") for binding in config.bindings.values()]
    for capsule in config.capsules.values():
        rows += [_row(binding, capsule.name) for binding in capsule.env.values()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif not rows:
        click.echo("no credentials yet: jackin-broker credential add NAME")
    else:
        _print_table(rows)


def _row(binding: Binding, capsule: str) -> dict[str, object]:
    return {
        "name": binding.name,
        "capsule": capsule,
        "source": describe_source(binding.source),
        "deliver": binding.delivery.value,
        "on_demand": binding.on_demand,
        "redact": binding.redact.value,
        "label": binding.label,
    }


def _print_table(rows: list[dict[str, object]]) -> None:
    lines = [("NAME", "SOURCE", "DELIVERY", "LABEL")]
    for row in rows:
        name = f"{row['name']} ({row['capsule']})" if row["capsule"] else str(row["name"])
        # Not on demand: the agent of a capsule gets it when it is launched.
        way = str(row["deliver"]) if row["on_demand"] else "given at launch"
        way += "" if row["redact"] == Redact.ON.value else f", redact {row['redact']}"
        lines.append((name, str(row["source"]), way, str(row["label"])))
    shown = [[show(cell, limit=None).text if cell else "" for cell in line] for line in lines]
    widths = [max(len(line[column]) for line in shown) for column in range(3)]
    for line in shown:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        click.echo("  ".join([*cells, line[3]]).rstrip())


@credential.command(short_help="Remove the binding NAME and its value.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def remove(name: str, yes: bool, as_json: bool) -> None:
    """Remove the binding NAME, and its value where that is in the keyring."""
    places = paths.resolve(os.environ)
    config = configuration.load(places.config_file)
    binding = config.bindings.get(name)
    if binding is None:
        raise ConfigError(
            f"env.{name}: there is no such binding", hint="see: jackin-broker credential list"
        )
    # A rule that names it would make the configuration invalid: say so before the value is gone.
    edits.preview(places.config_file, lambda text: edits.remove_entry(text, name))
    shared = _others_with(binding, config)
    goes = isinstance(binding.source, KeyringSource) and not shared
    if not yes:
        _ask_to_remove(binding, goes)
    removed = goes and _remove_value(config, places, binding)
    edits.write(
        places.config_file,
        lambda text: edits.remove_entry(text, name),
        lock=places.state_dir / _CONFIG_LOCK_NAME,
    )
    _say_removed(binding, removed, shared, as_json)


def _others_with(binding: Binding, config: Config) -> list[str]:
    """The names of other bindings that read the same item."""
    every = config.all_bindings()
    return [one.name for one in every if one is not binding and one.source == binding.source]


def _ask_to_remove(binding: Binding, value_too: bool) -> None:
    what = f"{binding.name} and its value" if value_too else f"the binding {binding.name}"
    if not sys.stdin.isatty():
        raise JackinError(f"{what} would be removed, and nobody is there to ask", hint="add --yes")
    click.confirm(f"remove {what} ({describe_source(binding.source)})?", abort=True, err=True)


def _remove_value(config: Config, places: paths.Paths, binding: Binding) -> bool:
    from .local_sources import LocalSources

    assert isinstance(binding.source, KeyringSource)
    with LocalSources(config, places, os.environ) as sources:
        sources.open_keyring(create=False)
        return sources.remove(binding.source, name=binding.name)


def _say_removed(binding: Binding, removed: bool, shared: list[str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"name": binding.name, "value_removed": removed}))
        return
    click.echo(f"removed {binding.name}" + (" and its value" if removed else ""))
    if shared:
        click.echo(f"its value stays, it is also that of {', '.join(shared)}")
    elif not removed and not isinstance(binding.source, KeyringSource):
        click.echo(f"its value stays where it is: {describe_source(binding.source)}")
    click.echo("a running broker sees it after: jackin-broker reload", err=True)
