"""jackin-capsule: the capsule's programs under one name, and the way to them by argv0.

It refuses to know what they do. Invariant: whatever fails here says so in one error line and one
hint line.
"""

import posix
import sys

from . import VERSION
from .wire import EXIT_NOT_RUN, Fault, end_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PROGRAM = "jackin-capsule"


def main(argv: "list[str] | None" = None) -> "NoReturn":
    """Run the sub-command in `argv`; under any other name than jackin-capsule, be the shim."""
    words = list(sys.argv if argv is None else argv)
    if words[0].rsplit("/", 1)[-1] != PROGRAM:
        from .shim import main as shim

        shim(words)
    end_process(_run(words[1:]))


def _run(words: "list[str]") -> int:
    from .problems import report

    try:
        return _dispatch(words)
    except Fault as fault:
        report(fault.line, fault.hint, PROGRAM)
        return fault.status
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, without a banner
    except Exception as error:  # the one handler: a fault of ours is still a status and two lines
        report(
            f"a fault in {PROGRAM} itself: {type(error).__name__}: {error}",
            "report it with the command that you ran",
            PROGRAM,
        )
        return EXIT_NOT_RUN


def _dispatch(words: "list[str]") -> int:
    name, rest = (words[0], words[1:]) if words else ("--help", [])
    if name == "exec":
        from .shim import execute

        execute(rest)
    if name == "ask":
        from .ask import ask

        return ask(rest)
    if name in ("mcp", "mcp-config", "prompt"):
        return _for_agents(name, rest)
    if name == "doctor":
        if rest[:1] in (["-h"], ["--help"]):
            from .manual import CAPSULE

            return say(CAPSULE)
        from .doctor import doctor

        return doctor(rest)
    if name == "equip":
        from .equip import equip

        equip(rest)
    if name == "init":
        from .init import init

        return init(rest)
    if name in ("-h", "--help", "help"):
        from .manual import CAPSULE

        return say(CAPSULE)
    if name in ("-V", "--version"):
        return say(f"{PROGRAM} {VERSION}\n")
    raise Fault(f"no such command: {name}", "see `jackin-capsule --help`")


def _for_agents(name: str, rest: "list[str]") -> int:
    """What an agent's own program is given: the tool, how to find it, and what to know of it."""
    if name == "mcp":
        from .relay import relay

        return relay(rest)
    if name == "mcp-config":
        from .registration import mcp_config

        return mcp_config(rest)
    from .teach import prompt

    return prompt(rest)


def say(text: str) -> int:
    """Text on stdout; 0, or 1 when nobody takes it."""
    view = memoryview(text.encode("utf-8", "backslashreplace"))
    try:
        while view:
            view = view[posix.write(1, view) :]
    except OSError:
        return 1
    return 0
