"""Bindings that somebody guesses at: their commands end, and no rule delivers them.

An operator who approves such a binding again, having read the warning, starts it afresh. The
counting is in `redact/budget.py`; this is what follows from it. Pure: time is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from .redact.budget import GuessingBudget, NearMisses

WARNING: Final = (
    "a command's output came close to its value too often, as if someone guessed at it: "
    "rules do not deliver it until you approve it again"
)


class Suspicion:
    """Which bindings are suspended; one for the broker's life."""

    def __init__(self) -> None:
        self._budget = GuessingBudget()
        self._suspended: set[str] = set()

    @property
    def suspended(self) -> frozenset[str]:
        """The names of the bindings that no rule delivers now."""
        return frozenset(self._suspended)

    def note(self, misses: Mapping[str, NearMisses], *, now_s: float) -> tuple[str, ...]:
        """Count near misses; the bindings that are past their budget, for which it must end."""
        spent = tuple(
            name for name, missed in misses.items() if self._budget.note(name, missed, now_s=now_s)
        )
        self._suspended.update(spent)
        return spent

    def trust_again(self, names: Iterable[str]) -> None:
        """The operator approved these bindings, warned."""
        for name in self._suspended.intersection(names):
            self._suspended.discard(name)
            self._budget.forgive(name)
