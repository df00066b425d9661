"""`links sync`: the programs of capsules that nobody launches, and links to the shim elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import msgspec

from .. import config, paths
from ..errors import ConfigError
from ..launch.base import system_interpreter
from ..link_folder import Synced, sync_links
from ..links import SHELL_SHIM_NAME, SHIM_NAME, build_programs
from ..paths import CAPSULE_BIN_DIR


@click.group()
def links() -> None:
    """Links by which a capsule calls host binaries by their own names."""


@links.command("sync")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--capsule", "names", multiple=True, help="Whose binaries. [default: every capsule's]"
)
@click.option("--to", "target", default="", help="What links lead to, as the capsule sees it.")
@click.option("--shell", is_flag=True, help="Link to the shim for sh and curl.")
@click.option("--interpreter", default="", help="The capsule's Python, as the capsule sees it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sync(
    folder: Path | None,
    names: tuple[str, ...],
    target: str,
    shell: bool,
    interpreter: str,
    as_json: bool,
) -> None:
    """Bring links in FOLDER up to date with host_binaries.

    Without FOLDER: bring each capsule's own directory of programs up to date, the one to mount
    at /jackin/bin. What somebody else put into FOLDER is never touched.
    """
    here = paths.resolve(os.environ)
    loaded = config.load(here.config_file)
    capsules = _chosen(loaded, names)
    if folder is None:
        if not capsules:
            raise ConfigError(
                "no capsule is configured",
                hint="switch one on in the file that `jackin-broker config path` names",
            )
        _build(capsules, loaded, interpreter, as_json=as_json)
        return
    program = SHELL_SHIM_NAME if shell else SHIM_NAME
    wanted = dict.fromkeys(name for one in capsules for name in one.host_binaries)
    done = sync_links(folder, wanted, target or f"{CAPSULE_BIN_DIR}/{program}", here.links_dir)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(done)))
    else:
        _say(done)


def _chosen(loaded: config.Config, names: tuple[str, ...]) -> list[config.CapsuleConfig]:
    """The capsules of these names, or all.

    Raises: ConfigError.
    """
    for name in names:
        if name not in loaded.capsules:
            raise ConfigError(
                f"capsules.{name}: is not configured",
                hint=f"it has: {', '.join(loaded.capsules) or 'none'}",
            )
    return [one for name, one in loaded.capsules.items() if not names or name in names]


def _build(
    capsules: list[config.CapsuleConfig], loaded: config.Config, interpreter: str, *, as_json: bool
) -> None:
    here = paths.resolve(os.environ, loaded.broker.runtime_dir)
    made: list[dict[str, object]] = []
    for capsule in capsules:
        place = here.shim_dir(capsule.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        build_programs(place, capsule.host_binaries, interpreter or system_interpreter())
        made.append({"capsule": capsule.name, "bin_dir": str(place)})
        if not as_json:
            click.echo(f"capsule {capsule.name}: mount {place} at {CAPSULE_BIN_DIR}, read-only")
    if as_json:
        click.echo(json.dumps(made))


def _say(done: Synced) -> None:
    if done.is_skipped:
        click.echo(f"{done.folder}: another run is at it, nothing was done")
        return
    for words, names in (("made", done.made), ("removed", done.removed)):
        if names:
            click.echo(f"{done.folder}: {words} {', '.join(names)}")
    for name in done.in_the_way:
        click.echo(f"{done.folder}/{name}: is somebody else's, left alone", err=True)
    if not (done.made or done.removed):
        click.echo(f"{done.folder}: nothing to do")
