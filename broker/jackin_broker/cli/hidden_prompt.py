"""Questions whose answers are not shown: passphrases and values.

Only a terminal is asked; without one the error says what else can be done. It refuses to know
what the answers are for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

import click

from ..errors import JackinError
from ..passphrase import PASSPHRASE_FILE_VARIABLE, from_file

# Whoever copies the key file can try passphrases at home, about one a second; fewer characters
# than this fall in days.
PASSPHRASE_MIN_CHARS: Final = 8
# age's scrypt: what makes guessing slow takes its second here, too.
WAIT: Final = "one moment: a passphrase takes a second, so that guessing takes years"


def ask_hidden(
    question: str,
    *,
    confirm: bool,
    without_terminal: str,
    check: Callable[[str], None] = lambda _: None,
) -> str:
    """What the operator types, never empty; `confirm` asks for it twice.

    `check` raises for an answer that is no good, before it is asked for again.
    Raises: JackinError where there is no terminal, with `without_terminal` as its hint;
    click.Abort on Ctrl-C.
    """
    require_terminal(without_terminal)
    while True:
        answer: str = click.prompt(question, hide_input=True, err=True)
        check(answer)
        if not confirm or answer == click.prompt(f"{question} again", hide_input=True, err=True):
            return answer
        click.echo("the two differ: type it again, twice", err=True)


def require_terminal(without_terminal: str) -> None:
    """Raise JackinError where nobody can be asked, with `without_terminal` as its hint."""
    if not sys.stdin.isatty():
        raise JackinError("there is no terminal to ask on", hint=without_terminal)


def vault_passphrase(environ: Mapping[str, str]) -> str:
    """The passphrase of a vault that is there: from the file that is named, or asked for.

    Raises: JackinError.
    """
    if found := from_file(environ):
        return found
    typed = ask_hidden("vault passphrase", confirm=False, without_terminal=_name_a_file())
    click.echo(WAIT, err=True)
    return typed


def new_vault_passphrase(
    environ: Mapping[str, str], variable: str = PASSPHRASE_FILE_VARIABLE
) -> str:
    """The passphrase that a vault is to get: from the file, or asked for twice.

    Raises: JackinError.
    """
    if found := from_file(environ, variable):
        _check_passphrase(found)
        return found
    typed = ask_hidden(
        "new vault passphrase",
        confirm=True,
        without_terminal=_name_a_file(variable),
        check=_check_passphrase,
    )
    click.echo(WAIT, err=True)
    return typed


def _check_passphrase(passphrase: str) -> None:
    """Raises: JackinError for one that could be guessed."""
    if len(passphrase) < PASSPHRASE_MIN_CHARS:
        raise JackinError(
            f"the passphrase has fewer than {PASSPHRASE_MIN_CHARS} characters",
            hint="a few words that only you would put together are long and easy to keep",
        )


def _name_a_file(variable: str = PASSPHRASE_FILE_VARIABLE) -> str:
    return f"name a file that holds the passphrase: {variable}=FILE"
