"""jackin-capsule: the capsule's programs under one name, and the way to them by argv0.

It refuses to know what they do. Invariant: whatever fails here says so in one error line and one
hint line.
"""

import posix
import sys

from . import EXIT_NOT_RUN, VERSION, Fault, end_process

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
    try:
        return _dispatch(words)
    except Fault as fault:
        return _told(fault)
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, without a banner
    except Exception as error:  # the one handler: a fault of ours is still a status and two lines
        line = f"a fault in {PROGRAM} itself: {type(error).__name__}: {error}"
        return _told(Fault(line, "report it with the command that you ran", EXIT_NOT_RUN))


def _told(fault: Fault) -> int:
    from .problems import report

    report(fault.line, fault.hint, PROGRAM)
    return fault.status


def _dispatch(words: "list[str]") -> int:
    name, rest = (words[0], words[1:]) if words else ("--help", [])
    if name in ("-h", "--help", "help") or rest[:1] in (["-h"], ["--help"]):
        return _help(name, rest)
    if name == "exec":
        from .shim import execute

        execute(rest)
    if name == "ask":
        from .ask import ask

        return ask(rest)
    if name in ("mcp", "mcp-config", "prompt"):
        return _for_agents(name, rest)
    if name == "doctor":
        from .doctor import doctor

        return doctor(rest)
    if name == "equip":
        from .equip import equip

        equip(rest)
    if name == "init":
        from .init import init

        return init(rest)
    if name in ("-V", "--version"):
        return say(f"{PROGRAM} {VERSION}\n")
    raise Fault(f"no such command: {name}", "see `jackin-capsule --help`")


def _help(name: str, rest: "list[str]") -> int:
    """The help of one sub-command, `NAME --help` or `help NAME`, or of them all.

    Raises: Fault.
    """
    from .manual import CAPSULE, TOPICS

    asked = rest[0] if name in ("-h", "--help", "help") and rest else name
    if asked in TOPICS:
        return say(TOPICS[asked])
    if asked in ("-h", "--help", "help"):
        return say(CAPSULE)
    raise Fault(f"no such command: {asked}", "see `jackin-capsule --help`")


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
