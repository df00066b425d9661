"""The operator's command line: commands only, a file a group, each loaded when it is named.

The one handler of the program is `main`: an error of ours is a line that begins with `error:` and,
where there is a next step, one that begins with `hint:`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final, NoReturn

import click

from .. import __version__
from ..errors import JackinError

EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
# How click's own message begins; what it quotes follows in brackets.
_TOO_MANY: Final = "unexpected extra argument"

# Command → the module of this package that holds it, and its first help line. Loading all of
# them would cost what the fastest of them takes to run.
COMMANDS: Final = {
    "attach": ("serve", "Open the picker on the running broker."),
    "audit": ("audit", "Read and check the record of what was asked and run."),
    "capsule": ("capsule", "Print a capsule's variables, revoke its token, print its shim."),
    "config": ("config", "Find, make, check and migrate the configuration."),
    "credential": ("credential", "Add, list, check and remove credentials."),
    "decide": ("requests", "Answer a request without the picker."),
    "doctor": ("doctor", "Say what is wrong and what to do about it."),
    "explain": ("explain", "Say what a capsule is given, and what that risks."),
    "grants": ("grants", "List and revoke what may run again without being asked."),
    "kill": ("requests", "End a running command and everything it started."),
    "launch": ("launch", "Start an agent in a capsule with everything wired."),
    "links": ("links", "Keep links to the shim in a directory of yours in order."),
    "reload": ("serve", "Have the broker read its configuration again."),
    "requests": ("requests", "List the requests that wait or run."),
    "serve": ("serve", "Run the broker in the foreground."),
    "status": ("serve", "Say what is up."),
    "stop": ("serve", "Stop the broker; what waits is denied, what runs is ended."),
    "try": ("trial", "See it work in a minute, without any set-up."),
    "vault": ("vault", "Create, unlock and change the embedded keyring."),
}

_HELP: Final = """Lend a credential to one command of an agent, without the agent ever holding it.

Without a command: start the broker if none runs, and open the picker.

First time here? Run: jackin-broker try
"""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module_name, _help = COMMANDS[cmd_name]
        module = importlib.import_module(f".{module_name}", __package__)
        command = getattr(module, cmd_name if cmd_name != "try" else "try_")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(COMMANDS.items())])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    help=_HELP,
    # Inherited by every command.
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="jackin-broker")
@click.pass_context
def root(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        from .serve import start_and_attach

        start_and_attach()


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command line; the exit status."""
    try:
        status = root.main(args=argv, prog_name="jackin-broker", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_text:
        click.echo(help_text.format_message())
        return EXIT_USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "jackin-broker"
        report(_usage_words(error), f"see: {command} --help")
        return EXIT_USAGE
    except click.ClickException as error:
        report(error.format_message())
        return EXIT_ERROR
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except JackinError as error:
        report(str(error), error.hint)
        return EXIT_ERROR
    except BrokenPipeError:
        return EXIT_ERROR
    except OSError as error:
        # Unforeseen, as on a full disk: what the system says, not a traceback.
        where = f"{error.filename}: " if error.filename else ""
        report(f"{where}{(error.strerror or str(error)).lower()}", "see: jackin-broker doctor")
        return EXIT_ERROR
    return status if isinstance(status, int) else 0


def _usage_words(error: click.UsageError) -> str:
    """What is wrong, on one line; not the text of an argument too many, which may be a value."""
    words = error.format_message().rstrip(".").replace("\n", " ")
    return words.partition(" (")[0] if _TOO_MANY in words else words


def report(message: str, hint: str = "") -> None:
    """An error line, and a hint line if there is a next step, on stderr."""
    click.echo(f"jackin-broker: error: {_first_lower(message)}", err=True)
    if hint:
        click.echo(f"jackin-broker: hint: {hint}", err=True)


def _first_lower(message: str) -> str:
    """Lower case at the start, as house style has it, but not for `PATH` or `HOME`."""
    if len(message) > 1 and message[0].isupper() and message[1].islower():
        return message[0].lower() + message[1:]
    return message
