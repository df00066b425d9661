"""jackin-exec's own options, before COMMAND.

Loaded only when there are some. It refuses to know the command: everything from the first word
that is not an option belongs to it, however much it looks like one.
"""

import posix
import sys

from . import VERSION
from .wire import Fault, end_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

USAGE = "jackin-exec [-t|-T] [-v] [--reason R] [--want NAME,…] [--] COMMAND [ARG…]"


class Options:
    """What stood before the command, and the command."""

    def __init__(self) -> None:
        self.is_verbose = False
        self.wants_terminal: bool | None = None  # None: as stdin and stdout are
        self.reason = ""
        self.want: list[str] = []
        self.argv: list[str] = []


def parse(args: "list[str]") -> Options:
    """The options and the command in `args`. --help and --version end the process.

    Raises: Fault.
    """
    options = Options()
    rest = list(args)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, is_joined, value = word.partition("=")
        if name in ("--reason", "--want"):
            if not is_joined:
                value = _value(name, rest)
            _set(options, name, _text(value))
        elif word in ("-h", "--help"):
            from .manual import EXEC

            _print_and_leave(EXEC)
        elif word in ("-V", "--version"):
            _print_and_leave(f"jackin-exec {VERSION}\n")
        else:
            _set_flags(options, word)
    options.argv = rest
    if not rest:
        raise Fault("no command to run", f"use: {USAGE}")
    return options


def _set(options: Options, name: str, value: str) -> None:
    if name == "--reason":
        options.reason = value
    else:
        options.want += [part for part in value.split(",") if part]


def _set_flags(options: Options, word: str) -> None:
    """-v, -t, -T, --verbose, --tty, --no-tty, and the short ones together; the last one counts."""
    flags = {"--verbose": "v", "--tty": "t", "--no-tty": "T"}.get(word, word[1:])
    if word == "-" or flags.strip("vtT"):
        raise Fault(f"unknown option {word}", f"put -- before the command, or use: {USAGE}")
    for flag in flags:
        if flag == "v":
            options.is_verbose = True
        else:
            options.wants_terminal = flag == "t"


def _value(name: str, rest: "list[str]") -> str:
    if not rest:
        raise Fault(f"{name} needs a value", f"use: {USAGE}")
    return rest.pop(0)


def _text(value: str) -> str:
    """Words for a person: what is not UTF-8 in them is replaced, not sent as bytes."""
    raw = value.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
    return raw.decode("utf-8", "replace")


def _print_and_leave(text: str) -> "NoReturn":
    try:
        posix.write(1, text.encode())
    except OSError:
        end_process(1)
    end_process(0)
