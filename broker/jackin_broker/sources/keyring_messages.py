"""What the broker asks of its keyring helper, and what that answers.

Some hold values: those have a `repr` without. Pure: no I/O.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..errors import SourceFault

# Said on either side, whichever finds out that no Secret Service can be reached.
NO_BUS_HINT: Final = 'start the broker in a desktop session, or set [broker] keyring = "vault"'


class Get(msgspec.Struct, frozen=True, tag="Get"):
    """Read an item."""

    service: str
    username: str


class Set(msgspec.Struct, frozen=True, tag="Set"):
    """Store an item."""

    service: str
    username: str
    value: str

    def __repr__(self) -> str:
        return f"Set(service={self.service!r}, username={self.username!r}, value=<hidden>)"


class Delete(msgspec.Struct, frozen=True, tag="Delete"):
    """Remove an item."""

    service: str
    username: str


class Probe(msgspec.Struct, frozen=True, tag="Probe"):
    """Does a Secret Service answer?"""


Request = Get | Set | Delete | Probe


class Found(msgspec.Struct, frozen=True, tag="Found"):
    """The value of an item; None where there is none."""

    value: str | None

    def __repr__(self) -> str:
        return "Found(value=<hidden>)"


class Did(msgspec.Struct, frozen=True, tag="Did"):
    """Done, or the answer to a question: yes."""

    yes: bool


class Waiting(msgspec.Struct, frozen=True, tag="Waiting"):
    """Not an answer yet: the keyring is locked, and a person is being asked to unlock it."""


class Broken(msgspec.Struct, frozen=True, tag="Broken"):
    """It did not work, and why."""

    fault: SourceFault
    reason: str
    hint: str


Answer = Found | Did | Waiting | Broken
