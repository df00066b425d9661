"""`vault`: make the embedded keyring, unlock it for the running broker, change its passphrase."""

from __future__ import annotations

import json
import os

import click

from .. import operator_protocol as op
from .. import paths
from ..errors import BrokerUnreachable, JackinError
from ..operator_client import START_HINT, ask_broker
from ..passphrase import NEW_PASSPHRASE_FILE_VARIABLE
from .hidden_prompt import new_vault_passphrase, vault_passphrase


@click.group()
def vault() -> None:
    """The embedded keyring, for machines that have none.

    Two ordinary age files: `age -d -i vault.key.age vault.age` opens them without this program.
    """


@vault.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def create(as_json: bool) -> None:
    """Make an empty vault, locked by a new passphrase."""
    from ..vault import Vault

    made = Vault(_places().vault_file)
    made.refuse_existing()
    made.create(new_vault_passphrase(os.environ))
    if as_json:
        click.echo(json.dumps({"vault": str(made.path), "key": str(made.key_path)}))
        return
    click.echo(f"made {made.path} and its key {made.key_path.name}: back up both")
    click.echo("next: jackin-broker credential add NAME")


@vault.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def unlock(as_json: bool) -> None:
    """Unlock the vault for as long as the running broker lives."""
    places = _places()
    if _vault_state(places) == "unlocked":
        _say("unlocked", as_json, "the vault is unlocked already")
        return
    ask_broker(places.operator_socket, op.UnlockVault(0, vault_passphrase(os.environ)))
    _say("unlocked", as_json, "the vault is unlocked until the broker ends")


@vault.command(short_help="Change the passphrase; what is in it stays.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def change(as_json: bool) -> None:
    """Change the passphrase; what is in the vault stays, an unlocked broker stays unlocked.

    The old one comes from a hidden prompt or from JACKIN_VAULT_PASSPHRASE_FILE, the new one
    from a hidden prompt or from JACKIN_VAULT_NEW_PASSPHRASE_FILE.
    """
    from ..vault import Vault

    changed = Vault(_places().vault_file)
    changed.read_key()
    old = vault_passphrase(os.environ)
    changed.unlock(old)  # a wrong one is said before the new one is asked for
    changed.change(old, new_vault_passphrase(os.environ, NEW_PASSPHRASE_FILE_VARIABLE))
    _say("changed", as_json, "the vault has a new passphrase; keep no copy of its old key file")


def _places() -> paths.Paths:
    return paths.resolve(os.environ)


def _vault_state(places: paths.Paths) -> str:
    """What the running broker says of the vault.

    Raises: BrokerUnreachable, and JackinError where it has none.
    """
    try:
        reply = ask_broker(places.operator_socket, op.GetStatus(0))
    except BrokerUnreachable as error:
        raise BrokerUnreachable(
            "no broker runs, so there is nothing to unlock the vault for",
            hint=START_HINT,
        ) from error
    assert isinstance(reply, op.StatusReport)
    if reply.vault == "none":
        raise JackinError("there is no vault", hint="jackin-broker vault create")
    return reply.vault


def _say(state: str, as_json: bool, words: str) -> None:
    click.echo(json.dumps({"vault": state}) if as_json else words)
