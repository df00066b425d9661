"""`capsule`: what an entry into a capsule needs that is no launch, and taking it back.

`docker exec`, compose files, devcontainers and VMs get their variables from here, fresh at each
entry, so that none is kept in an image.
"""

from __future__ import annotations

import json
import os
import shlex

import click

from .. import operator_protocol as op
from .. import paths
from ..errors import ConfigError
from ..links import shell_shim
from ..operator_client import ask_broker


@click.group()
def capsule() -> None:
    """The variables of a capsule, its bridge's token, and the shim without Python."""


@capsule.command("env")
@click.argument("name", default="")
@click.option("--renew", is_flag=True, help="With a token that nobody has yet; the old one ends.")
@click.option("--values", is_flag=True, help="With what [env] gives every agent at launch.")
@click.option("--shell", is_flag=True, help="As lines that a shell can read.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def env(name: str, renew: bool, values: bool, shell: bool, as_json: bool) -> None:
    """Print the variables for `docker exec`, compose or a VM.

    One NAME=VALUE a line. Whoever reads them may ask through the bridge until the token ends.
    """
    reply = ask_broker(
        paths.resolve(os.environ).operator_socket, op.CapsuleEnv(0, name, renew, values)
    )
    assert isinstance(reply, op.CapsuleVariables)
    if as_json:
        click.echo(json.dumps({"capsule": reply.name, "env": reply.env}, indent=2))
        return
    if not shell:
        _check_lines(reply.env)
    if "JACKIN_EXEC_TOKEN" not in reply.env:
        click.echo(
            f"jackin-broker: capsule {reply.name} has no bridge, these are names alone; for one "
            "set bridge = true and list host_binaries",
            err=True,
        )
    for key, value in sorted(reply.env.items()):
        click.echo(f"export {key}={shlex.quote(value)}" if shell else f"{key}={value}")


@capsule.command("revoke")
@click.argument("name", default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def revoke(name: str, as_json: bool) -> None:
    """Make the token worthless; what runs goes on."""
    ask_broker(paths.resolve(os.environ).operator_socket, op.RevokeToken(0, name))
    click.echo(json.dumps({"revoked": True}) if as_json else "revoked")


@capsule.command("shim")
def shim() -> None:
    """Print the shim for a capsule without Python: sh and curl."""
    click.echo(shell_shim().decode(), nl=False)


def _check_lines(env: dict[str, str]) -> None:
    """A file of lines has no way to say a line break.

    Raises: ConfigError.
    """
    for name, value in env.items():
        if "\n" in value:
            raise ConfigError(
                f"env.{name}: its value has more than one line",
                hint="use --shell or --json, or leave --values out",
            )
