"""The guessing budget: a redactor that masks tells who asks whether a guess was right.

Text that begins like a value is held back, and what is held can be told from what is not. So
heads of a needle that were held and then let go or cut off, and those that failed in the last
bytes of a write, are counted for each binding, across streams and commands. Within the budget
they are accidents; past it someone is guessing.

Pure: time is passed in. Refuses to know who is told and what is suspended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

# A guess this deep, beyond what is public, is no accident in ordinary output …
DEEP_BYTES: Final = 8
# … but whoever gets so far has learned eight characters. So heads from here on count too. Below,
# `idle` shows up to three bytes anyway, and words of every kind begin like some needle.
SHALLOW_BYTES: Final = 4
# Measured in tests/unit/test_redact_guessing.py: an echo attack on letters and digits pays 32
# misses a character on average; ordinary logs, editors and shells stay below three.
BUDGET: Final = 24
# Typing a word that begins like a password is forgiven at this rate; a deep miss never is.
FORGIVE_ONE_EVERY_S: Final = 3600.0


class Depth(Enum):
    """How much of a needle was seen before it was let go."""

    SHALLOW = "shallow"
    DEEP = "deep"


@dataclass(slots=True)
class NearMisses:
    """Counts for one binding."""

    shallow: int = 0
    deep: int = 0

    def add(self, depth: Depth) -> None:
        """One more."""
        if depth is Depth.DEEP:
            self.deep += 1
        else:
            self.shallow += 1


def depth_of(held_bytes: int, needle_bytes: int, public_bytes: int) -> Depth | None:
    """What letting go of a held head means; None if it tells nothing.

    Deep from min(DEEP_BYTES, half of the needle) on, counted after its public head.
    """
    secret_bytes = needle_bytes - public_bytes
    seen = held_bytes - public_bytes
    deep = min(DEEP_BYTES, (secret_bytes + 1) // 2)
    if seen <= 0:
        return None
    if seen >= deep:
        return Depth.DEEP
    return Depth.SHALLOW if seen >= SHALLOW_BYTES else None


class GuessingBudget:
    """What each binding has used up. One for the broker's life."""

    __slots__ = ("_budget", "_deep", "_shallow")

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget: Final = budget
        self._deep: Final[dict[str, int]] = {}
        self._shallow: Final[dict[str, tuple[float, float]]] = {}

    def note(self, name: str, misses: NearMisses, *, now_s: float) -> bool:
        """Count them. True if this binding is past its budget now.

        Units: `now_s` is any clock in seconds that does not go back.
        """
        self._deep[name] = self._deep.get(name, 0) + misses.deep
        self._shallow[name] = (self._shallow_now(name, now_s) + misses.shallow, now_s)
        return self.is_spent(name, now_s=now_s)

    def used(self, name: str, *, now_s: float) -> float:
        """How many misses count against this binding now."""
        return self._deep.get(name, 0) + self._shallow_now(name, now_s)

    def is_spent(self, name: str, *, now_s: float) -> bool:
        """True if more was used than the budget: commands end, grants and rules are suspended."""
        return self.used(name, now_s=now_s) > self._budget

    def forgive(self, name: str) -> None:
        """Start this binding afresh: the operator said so, or its value was changed."""
        self._deep.pop(name, None)
        self._shallow.pop(name, None)

    def _shallow_now(self, name: str, now_s: float) -> float:
        count, since_s = self._shallow.get(name, (0.0, now_s))
        return max(0.0, count - (now_s - since_s) / FORGIVE_ONE_EVERY_S)
