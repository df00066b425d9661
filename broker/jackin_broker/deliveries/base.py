"""The contract of a delivery: a credential in, additions to one command out.

A delivery refuses to know the runner and the wire. Invariants: what it adds reaches this command
alone; the `repr` of what it prepared shows no value; `clean` takes back what outlives the command
and may be called more than once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..bindings import Credential
from ..errors import DenialCode, Refusal

Cleanup = Callable[[], Awaitable[None]]


@dataclass
class Prepared:
    """What one command gets: the one place where values leave for a process."""

    env: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes], repr=False)
    cleanups: list[Cleanup] = field(default_factory=list[Cleanup], repr=False)

    async def clean(self) -> None:
        """Take back what was made for the command, and drop the values."""
        self.env.clear()
        while self.cleanups:
            await self.cleanups.pop()()


class Deliverer(Protocol):
    """One way to deliver."""

    async def deliver(self, credential: Credential, prepared: Prepared) -> None:
        """Add this credential to what the command gets.

        Raises: Refusal(SOURCE_FAILED) for a value that cannot go this way.
        """


def refused(credential: Credential, why: str, *, hint: str) -> Refusal:
    """The refusal of a value that cannot be delivered; it names the binding, never the value."""
    return Refusal(
        DenialCode.SOURCE_FAILED,
        f"the value of {credential.binding.name} cannot be delivered: {why}",
        hint=hint,
    )
