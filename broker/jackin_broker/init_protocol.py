"""What broker and a capsule's init say beside `Spawn` and `Kill`: who keeps whom apart, and jobs.

A job holds values. It is no message: it is the content of a memory file that is passed, with the
command's streams, to the one process that the kernel says is the recorded init. Its text form
shows no value. Pure: no I/O.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from .errors import LocalProtocolError, PeerProtocolError
from .protocol import PROTOCOL_VERSION, TerminalSize
from .texts import Bytes64, Text


class Isolation(str, Enum):
    """What keeps the agent from reading a command that runs beside it in the capsule."""

    NAMESPACES = "namespaces"
    UID = "uid"
    NONE = "none"


# What an init may be able to do beside running commands; those of an earlier version have none.
SKILL_LOOK: Final = "look"  # for a program, before anyone is asked
SKILL_SOCKETS: Final = "sockets"  # of a command's own, on which the broker answers


class InitReady(msgspec.Struct, frozen=True, tag="InitReady"):
    """Init's first message: it can run commands, and what else."""

    protocol: int
    isolation: Isolation
    skills: frozenset[str] = frozenset()


class JobFile(msgspec.Struct, frozen=True):
    """A file that this command alone sees, 0600."""

    path: str
    content: Bytes64

    def __repr__(self) -> str:
        return f"JobFile({self.path!r})"


class Job(msgspec.Struct, frozen=True, tag="Job", omit_defaults=True):
    """What to run inside. `env` is added to the environment that the capsule was started with.

    `address_space_bytes` is 0 for no limit. `sockets` are paths: what listens there comes back.
    """

    argv: tuple[Text, ...]
    cwd: Text
    env: dict[str, Text]
    files: tuple[JobFile, ...] = ()
    sockets: tuple[str, ...] = ()
    terminal: TerminalSize | None = None
    address_space_bytes: int = 0

    def __repr__(self) -> str:
        return f"Job({len(self.argv)} arguments, {len(self.env)} variables)"


_from_init = msgspec.json.Decoder(InitReady)


def encode_job(job: Job) -> bytes:
    """The job as it stands in the memory file.

    Raises: LocalProtocolError; its text repeats nothing of the job.
    """
    try:
        return msgspec.json.encode(job)
    except (UnicodeEncodeError, TypeError, ValueError):
        raise LocalProtocolError("a job cannot be encoded") from None


def decode_from_init(body: bytes) -> InitReady:
    """Init's first message.

    Raises: PeerProtocolError.
    """
    try:
        ready = _from_init.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerProtocolError("init did not say what it can do") from error
    if ready.protocol != PROTOCOL_VERSION:
        raise PeerProtocolError(
            f"init speaks protocol {ready.protocol}, this broker speaks {PROTOCOL_VERSION}"
        )
    return ready
