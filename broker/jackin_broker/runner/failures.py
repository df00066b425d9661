"""Words for a command that never ran: from the kernel's answer to what to do next.

It refuses to know processes. No message holds an argument or a variable, only the program's path.
"""

from __future__ import annotations

import errno
import os

from ..errors import DenialCode, Refusal
from . import leader
from .spec import NoSuchCommand, SpawnFailed

# One line of a terminal; what bubblewrap says fits, a traceback's last line too.
_LINE_MAX_CHARS = 200


def refusal_for(stage: bytes, code: int, executable: str) -> Refusal:
    """The refusal for a leader's `failed` report. Shape: `code` is an errno."""
    if stage == leader.STAGE_CWD:
        return Refusal(
            DenialCode.WORKDIR_REJECTED,
            "the working directory was moved or replaced since the request was made",
            hint="ask again from the directory that you mean",
        )
    if stage == leader.STAGE_TERMINAL:
        return SpawnFailed(
            f"no terminal could be made for {os.path.basename(executable)}: {_words(code)}",
            hint="run it without -t, or end other terminals: /proc/sys/kernel/pty/max limits them",
        )
    return _exec_refusal(code, executable)


def _exec_refusal(code: int, executable: str) -> Refusal:
    match code:
        case errno.ENOENT | errno.ENOTDIR if not os.path.exists(executable):
            return NoSuchCommand(
                f"{executable} does not exist",
                hint="install it, then restart the broker, which looks programs up at its start",
            )
        case errno.ENOENT | errno.ENOTDIR:
            return SpawnFailed(
                f"the interpreter or loader of {executable} does not exist where the command runs",
                hint="look at its first line; where that names a file below HOME, add home_paths "
                "or confine = false to this binary's configuration",
            )
        case errno.EACCES | errno.EPERM:
            return SpawnFailed(
                f"{executable} may not be executed", hint="check the permissions of file and path"
            )
        case errno.ENOEXEC:
            return SpawnFailed(
                f"{executable} is no program that the kernel can run",
                hint="a script needs a first line such as #!/bin/sh",
            )
        case errno.E2BIG:
            return SpawnFailed(
                "arguments and environment are longer than the kernel takes",
                hint="pass long data on stdin or in a file",
            )
        case _:
            return SpawnFailed(f"{executable} could not be started: {_words(code)}")


def unexplained(diagnosis: str, *, is_confined: bool) -> SpawnFailed:
    """The refusal for a leader that ended without a report."""
    lines = diagnosis.splitlines()
    why = lines[-1].strip()[:_LINE_MAX_CHARS] if lines else "it said nothing"
    if is_confined:
        return SpawnFailed(
            f"the command could not be confined: {why}",
            hint="run: jackin-broker doctor; or set confine = false for this binary",
        )
    return SpawnFailed(
        f"the process that leads the command ended: {why}", hint="see the broker's log"
    )


def _words(code: int) -> str:
    return os.strerror(code).lower()
