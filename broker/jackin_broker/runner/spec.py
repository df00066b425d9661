"""What to run, where its output goes, and how it ended: the runner's vocabulary.

It refuses to know how a process is made. Invariants: the `repr` of a spec shows no value of the
environment, for it may be a credential; a refusal from here means that the command never ran.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import DenialCode, Refusal
from ..frames import Stream
from ..protocol import EXIT_NOT_FOUND, EXIT_NOT_RUN, EndedBy, StdinKind
from .foreground import NO_PROGRAM, Program

if TYPE_CHECKING:
    from ..deliveries import PrivateFile, PrivateSocket, Prompt
    from ..protocol import TerminalSize
    from ..workdir import WorkDir
    from .confine import Confinement

# DESIGN §9: a grandchild that keeps the output open delays the result by no more.
DRAIN_S: Final = 2.0
# Between TERM and KILL; long enough to remove a lock file, short enough to wait for.
GRACE_S: Final = 3.0


class SpawnFailed(Refusal):
    """The command could not be started. `exit_code` is what its caller should exit with."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int = EXIT_NOT_RUN) -> None:
        super().__init__(DenialCode.SPAWN_FAILED, message, hint=hint)
        self.exit_code: Final = exit_code


class NoSuchCommand(SpawnFailed):
    """There is no such program at the target."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=EXIT_NOT_FOUND)


@dataclass(frozen=True)
class RunSpec:
    """One command. `argv[0]` is the name that was asked for, `executable` the path found.

    With a `terminal`, all that the command writes is stdout, and stdin is typed into it.
    `is_plain` leaves newlines on it as they are, for a caller who has none. `files` and `sockets`
    are what a confined command alone sees, `prompts` what is typed when `program`, the pinned
    file, asks. `run_s`, `address_space_bytes` and `processes` are 0 for no limit; the last, which
    counts threads too, holds for confined commands alone. `cwd` stays the caller's to close,
    after `start`.
    """

    executable: str
    argv: tuple[bytes, ...]
    cwd: WorkDir
    env: Mapping[bytes, bytes] = field(repr=False)
    confinement: Confinement
    stdin: StdinKind = StdinKind.NONE
    terminal: TerminalSize | None = None
    is_plain: bool = False
    files: tuple[PrivateFile, ...] = ()
    sockets: tuple[PrivateSocket, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    program: Program = NO_PROGRAM
    run_s: float = 0
    address_space_bytes: int = 0
    processes: int = 0
    grace_s: float = GRACE_S
    drain_s: float = DRAIN_S

    @property
    def name(self) -> str:
        """The executable's own name, for messages."""
        return os.path.basename(self.executable)


@dataclass(frozen=True)
class Ended:
    """How a command ended. `exit_code` is what its caller exits with.

    `signal` is the one that the command died of, whoever sent it.
    """

    exit_code: int
    signal: int | None
    ended_by: EndedBy
    duration_s: float


class OutputSink(Protocol):
    """Who takes the output. Every call is made from the loop and must not block.

    `stdin_consumed` may be called from within `write_stdin`; bytes that the command will never
    read count as consumed, so that a caller's credit does not run dry.
    """

    def output(self, stream: Stream, data: bytes) -> None:
        """Some bytes came, at least one."""

    def output_end(self, stream: Stream) -> None:
        """No more will come on this stream; called once for each."""

    def stdin_consumed(self, size: int) -> None:
        """So many bytes of stdin are out of our hands."""
