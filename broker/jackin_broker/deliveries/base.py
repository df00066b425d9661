"""The contract of a delivery: credentials in, additions to one command out.

A delivery refuses to know the runner and the wire. Invariants: what it adds reaches this command
alone; the `repr` of what it prepared shows no value; `clean` takes back what outlives the command
and may be called more than once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ..bindings import Binding, Credential
from ..errors import DenialCode, Refusal
from ..protocol import StdinKind, Target
from .scratch import Scratch

_log = logging.getLogger(__name__)

Cleanup = Callable[[], Awaitable[None]]

# Where a confined command finds its files and sockets: in memory, in its own mounts alone.
COMMAND_DIR: Final = "/run/jackin"


@dataclass(frozen=True)
class Place:
    """Where the command will run, as far as a delivery must know.

    `lifetime_s` is the longest that it can run. `home` is the operator's. `why_no_files` says
    why what lies in a file system could be seen by the agent there, empty where it cannot;
    `why_no_sockets` the same of a socket's.
    """

    is_confined: bool
    scratch: Scratch
    lifetime_s: float
    stdin: StdinKind = StdinKind.NONE
    has_terminal: bool = False
    target: Target = Target.HOST
    home: str = ""
    why_no_files: str = ""
    why_no_sockets: str = ""


@dataclass(frozen=True)
class PrivateFile:
    """A file that only a confined command has: made in its own mounts, 0600."""

    path: str
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class PrivateSocket:
    """A socket of ours, and where a confined command sees it.

    Inside a capsule there is none of ours: `take` gets the descriptor of what listens there.
    """

    host_path: str
    path: str
    take: Callable[[int], None] | None = None


@dataclass(frozen=True)
class Prompt:
    """A question that the command will ask, and what is typed then."""

    binding: str
    pattern: bytes
    answer: bytes = field(repr=False)


@dataclass
class Prepared:
    """What one command gets: the one place where values leave for a process.

    `stdin` is None where the command keeps the caller's. `notes` are for the record: no values.
    """

    env: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes], repr=False)
    stdin: bytes | None = field(default=None, repr=False)
    files: list[PrivateFile] = field(default_factory=list[PrivateFile])
    sockets: list[PrivateSocket] = field(default_factory=list[PrivateSocket])
    prompts: list[Prompt] = field(default_factory=list[Prompt])
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    cleanups: list[Cleanup] = field(default_factory=list[Cleanup], repr=False)
    _directory: Path | None = None

    def directory(self, scratch: Scratch) -> Path:
        """This command's own directory on the host, removed by `clean`."""
        if self._directory is None:
            made = self._directory = scratch.make()

            async def remove() -> None:
                scratch.remove(made)

            # First in the list, so last to be called: what lies in it was ended by then.
            self.cleanups.insert(0, remove)
        return self._directory

    async def clean(self) -> None:
        """Take back what was made for the command, and drop the values."""
        self.env.clear()
        self.stdin = None
        self.files.clear()
        self.sockets.clear()
        self.prompts.clear()
        while self.cleanups:
            try:
                await self.cleanups.pop()()
            except Exception:  # whatever it was, the turn of the others comes all the same
                _log.exception("something that was made for a command could not be taken back")


class Deliverer(Protocol):
    """One way to deliver."""

    def check(self, bindings: Sequence[Binding], place: Place) -> None:
        """Return when these bindings can go this way to that place; no value is known yet.

        Raises: Refusal(SOURCE_FAILED).
        """

    async def deliver(
        self, credentials: Sequence[Credential], prepared: Prepared, place: Place
    ) -> None:
        """Add these credentials, at least one, to what the command gets.

        Raises: Refusal(SOURCE_FAILED) for a value that cannot go this way.
        """


def refused(binding: Binding, why: str, *, hint: str) -> Refusal:
    """The refusal of a value that cannot be delivered; it names the binding, never the value."""
    return Refusal(
        DenialCode.SOURCE_FAILED,
        f"the value of {binding.name} cannot be delivered: {why}",
        hint=hint,
    )


def add_variable(binding: Binding, name: str, value: bytes, prepared: Prepared) -> None:
    """Add a variable that no other of the ticked credentials is delivered as.

    Raises: Refusal(SOURCE_FAILED).
    """
    key = name.encode("ascii")
    if key in prepared.env:
        raise refused(
            binding,
            f"another of the ticked credentials is delivered as {name} too",
            hint="tick one of them, or give one another deliver_as",
        )
    prepared.env[key] = value
