"""`jackin-capsule equip -- COMMAND…`: tells the known agents of this capsule, then is COMMAND.

`launch` puts it before the agent. Each known program finds the MCP server in its own settings and
the text that teaches it in its own place for instructions, whichever of them is started later. It
refuses to know which is there. Invariants: only a HOME that is the capsule's own is written to, a
directory that is mounted into it is left alone; a file that is there keeps what is in it; what
goes wrong here is said in a line and keeps no agent from starting.
"""

import errno
import os
import posix

from .agent import execute
from .problems import report
from .registration import merge, place, read, replace
from .teach import block, names
from .wire import EXIT_NOT_RUN, Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

EXIT_NOT_FOUND = 127
# Client → where it reads instructions from, below HOME, when nothing else is configured.
INSTRUCTIONS = {
    "claude": ".claude/CLAUDE.md",
    "codex": ".codex/AGENTS.md",
    "gemini": ".gemini/GEMINI.md",
    "opencode": ".config/opencode/AGENTS.md",
}


def equip(words: "list[str]") -> "NoReturn":
    """Tell them, and be the command.

    Raises: Fault.
    """
    argv = words[1:] if words[:1] == ["--"] else words
    if not argv:
        raise Fault("no command to start", "put it after the options: equip -- COMMAND [ARG…]")
    for client, instructions in INSTRUCTIONS.items():
        try:
            register(client)
            teach(os.path.join(os.path.expanduser("~"), instructions))
        except Fault as fault:
            report(fault.line, fault.hint, "jackin-capsule")
    become(argv)


def register(client: str) -> None:
    """Add the MCP server to the client's own file.

    Raises: Fault.
    """
    path = place(client)
    if not is_own(path):
        return
    content = read(path)
    merged = merge(client, content, path)
    if merged != content:
        replace(path, merged)


def teach(path: str) -> None:
    """Put the text there, unless there is one already.

    Raises: Fault.
    """
    if is_own(path) and not os.path.lexists(path):
        bindings, binaries = names("JACKIN_EXEC_BINDINGS"), names("JACKIN_HOST_BINARIES")
        replace(path, block("agents", bindings, binaries))


def is_own(path: str) -> bool:
    """Whether it lies in the capsule's own HOME, and nothing is mounted on the way to it."""
    home = os.path.expanduser("~")
    try:
        device = os.stat(home).st_dev
    except OSError:
        return False
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    is_below = os.path.join(folder, "").startswith(os.path.join(home, ""))
    return is_below and os.stat(folder).st_dev == device


def become(argv: "list[str]") -> "NoReturn":
    """Be the command, or say why not."""
    try:
        execute(argv, posix.environ)
    except OSError as error:
        report(
            f"cannot start {argv[0]}: {error.strerror}",
            "check that the command is in the capsule and executable",
            "jackin-capsule",
        )
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        os._exit(EXIT_NOT_FOUND if missing else EXIT_NOT_RUN)
