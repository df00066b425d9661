"""`config`: where the configuration is, a first one, what is wrong with it, bringing it up to date.

It works without a broker. A running one takes a changed file with `jackin-broker reload`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import click

from .. import config as configuration
from .. import identity, paths
from ..config.problems import InvalidConfig
from ..config.starter import STARTER
from ..errors import ConfigError
from ..sources.permissions import permission_warnings
from ..trust import ensure_private_dir
from .explain_rules import explain_command

_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_FILE_MODE: Final = 0o600


@click.group()
def config() -> None:
    """Find, make, check and migrate the configuration."""


@config.command("path")
@_JSON
def path_(as_json: bool) -> None:
    """Print where the configuration is, whether it exists or not."""
    path = paths.resolve(os.environ).config_file
    if as_json:
        _print_json({"path": str(path), "exists": path.exists()})
    else:
        click.echo(path)


@config.command(short_help="Write a first one, every line explained.")
@_JSON
def init(as_json: bool) -> None:
    """Write a first configuration, every line explained, nothing switched on."""
    path = paths.resolve(os.environ).config_file
    ensure_private_dir(path.parent)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    except FileExistsError:
        raise ConfigError(
            f"{path}: exists already", hint="edit it, or move it away and run this again"
        ) from None
    except OSError as error:
        reason = (error.strerror or "cannot be written").lower()
        raise ConfigError(f"{path}: {reason}") from error
    with open(fd, "w", encoding="utf-8") as file:
        file.write(STARTER)
    if as_json:
        _print_json({"path": str(path), "created": True})
    else:
        click.echo(f"wrote {path}")
        click.echo(
            "next: in an editor, take the # from [capsules.web] and from the lines below it that "
            "you want; then: jackin-broker config check"
        )


class _Check(click.Command):
    """With `--explain` all that follows the options is a command, its own options too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = "--explain" not in args
        return super().parse_args(ctx, args)


@config.command(cls=_Check, short_help="Say what is wrong with it, and what is unwise.")
@click.option("--explain", is_flag=True, help="Which rule would decide on a command, and why.")
@click.option("--capsule", default="", metavar="NAME", help="With --explain: asked from there.")
@click.option("--cwd", default=".", metavar="DIR", help="With --explain: in this host directory.")
@click.option("--want", default="", metavar="NAME,…", help="With --explain: wanting these.")
@click.argument("words", nargs=-1, metavar="[FILE | COMMAND [ARG]...]")
@_JSON
@click.pass_context
def check(
    ctx: click.Context,
    explain: bool,
    capsule: str,
    cwd: str,
    want: str,
    words: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say what is wrong with the configuration, or in FILE, and what is unwise.

    With --explain: which of its rules would decide on COMMAND, and why the others do not.
    """
    if explain:
        if not words:
            raise click.UsageError("--explain needs a command")
        loaded = configuration.load(paths.resolve(os.environ).config_file)
        explain_command(loaded, words, capsule=capsule, cwd=cwd, want=want, as_json=as_json)
        return
    if len(words) > 1 or capsule or want or cwd != ".":
        raise click.UsageError("a command and where it runs go with --explain")
    ctx.exit(_check_file(Path(words[0]) if words else None, as_json))


def _check_file(file: Path | None, as_json: bool) -> int:
    """Print what is wrong with a configuration; the exit status."""
    path = file or paths.resolve(os.environ).config_file
    errors: list[dict[str, str]] = []
    warnings: list[str] = []
    exists = path.exists()
    try:
        loaded = configuration.load(path) if file is None else _load_named(file)
        warnings += configuration.warnings(loaded)
        _check_machine(loaded, errors, warnings)
    except InvalidConfig as error:
        errors += (_error(problem.path, problem.message) for problem in error.problems)
    except ConfigError as error:
        errors.append(_error("", str(error), error.hint))
    if as_json:
        report = {"path": str(path), "exists": exists, "ok": not errors}
        _print_json({**report, "errors": errors, "warnings": warnings})
    else:
        _print_findings(path, exists, errors, warnings)
    return 1 if errors else 0


@config.command(short_help="Bring it to this version's schema, keeping a backup.")
@_JSON
def migrate(as_json: bool) -> None:
    """Bring the configuration to this version's schema, keeping a backup."""
    # tomlkit takes 30 ms to import, and no other command here needs it.
    from ..migrations import migrate_file

    places = paths.resolve(os.environ)
    path = places.config_file
    done = migrate_file(path, lock=places.state_dir / "config.lock")
    if as_json:
        _print_json({"path": str(path), "changes": list(done.changes), "backup": done.backup})
    elif done.changes:
        for change in done.changes:
            click.echo(change)
        click.echo(f"wrote {path}, the old one is {done.backup}")
    else:
        click.echo(f"{path} is up to date")


def _load_named(file: Path) -> configuration.Config:
    """The configuration in a file that somebody named: without it, the defaults are no answer.

    Raises: ConfigError.
    """
    loaded = configuration.load(file)
    if loaded.is_missing:
        raise ConfigError(f"{file}: does not exist")
    return loaded


def _check_machine(
    loaded: configuration.Config, errors: list[dict[str, str]], warnings: list[str]
) -> None:
    """What the file cannot say alone: mounts, sources, and binaries as this PATH has them."""
    warnings += permission_warnings(loaded.all_bindings(), os.environ)
    roots = paths.resolve(os.environ, loaded.broker.runtime_dir).trust_roots
    search_path = os.environ.get("PATH", os.defpath)
    for name, capsule in loaded.capsules.items():
        where = f"capsules.{name}"
        try:
            configuration.check_mounts(capsule.mounts, roots)
        except ConfigError as error:
            errors.append(_error(f"{where}.mounts", str(error), error.hint))
        for mount in capsule.mounts:
            if not os.path.isdir(mount.host):
                warnings.append(f"{where}.mounts: {mount.host} is not a directory now")
        for binary in capsule.host_binaries:
            try:
                pinned = identity.find_binary(binary, search_path)
                configuration.check_binaries(capsule.mounts, [pinned])
            except ConfigError as error:
                errors.append(_error(where, str(error), error.hint))


def _error(path: str, message: str, hint: str = "") -> dict[str, str]:
    return {"path": path, "message": message, "hint": hint}


def _print_findings(
    path: Path, exists: bool, errors: list[dict[str, str]], warnings: list[str]
) -> None:
    for error in errors:
        where = f"{error['path']}: " if error["path"] else ""
        click.echo(f"error: {where}{error['message']}")
        if error["hint"]:
            click.echo(f"hint: {error['hint']}")
    for warning in warnings:
        click.echo(f"warning: {warning}")
    if errors:
        return
    click.echo(f"ok: {path}" if exists else f"ok: {path} does not exist, the defaults are used")


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, indent=2))
