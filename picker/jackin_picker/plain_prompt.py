"""One request in plain mode: its ticks, its term, its number, and whether an order decides.

It refuses to know the terminal and the clock; times are passed in. Invariants: every line passes
the guard; an order decides only with the number that was shown with this request since it was
last not ready, so that nothing that was typed or pasted for something else, or written before,
answers it; a wrong number makes a new one.
Pure, but for where the number comes from.
"""

from __future__ import annotations

import secrets
from typing import Final

from jackin_broker.operator_protocol import ONCE, Decide, DenyAll, RequestView, view_digest

from .guard import Guard, Press
from .plain_words import Order, Verb
from .terms import Offer

# Three digits: quick to type and to hear, a thousand to one against a line from elsewhere.
_NUMBER_MIN: Final = 100
_NUMBER_MAX: Final = 999


def new_number() -> int:
    """A number that nobody can know before it is shown."""
    return _NUMBER_MIN + secrets.randbelow(_NUMBER_MAX - _NUMBER_MIN + 1)


class PlainPrompt:
    """The request that is asked about."""

    def __init__(self, view: RequestView) -> None:
        self.view: Final = view
        self.digest: Final = view_digest(view)
        # As the picker has them: wanted ones first, then in the order of the configuration.
        self.rows: Final = tuple(sorted(view.bindings, key=lambda binding: not binding.wanted))
        self.guard: Final = Guard()
        self.number = new_number()
        self.offer: Offer = None
        self.is_decided = False
        self._ticked: set[str] = set()

    @property
    def ticked(self) -> tuple[str, ...]:
        """What a yes lends, in the order in which it is listed."""
        return tuple(row.name for row in self.rows if row.name in self._ticked)

    def draw(self, at_s: float) -> None:
        """It is said anew: not ready, and under another number."""
        self.guard.hidden()
        self.guard.drawn(self.digest, at_s)
        self.number = new_number()

    def tick(self, order: Order) -> bool:
        """Tick or untick; whether every place is in the list. It may end a term."""
        places = range(1, len(self.rows) + 1)
        if not all(place in places for place in order.places):
            return False
        names = {self.rows[place - 1].name for place in order.places}
        before = set(self._ticked)
        self._ticked = before | names if order.verb is Verb.TICK else before - names
        if self._ticked != before and self.offer is not None and self.offer.approve:
            self.offer = None  # its text was another one
        return True

    def decide(self, order: Order, press: Press) -> Decide | DenyAll | None:
        """What the order decides; None where it may not."""
        if press is not Press.ACTS or self.is_decided or order.number != str(self.number):
            return None
        self.guard.deliberate()
        if not self.guard.may_run:
            return None
        self.is_decided = True
        if order.verb is Verb.DENY_ALL:
            return DenyAll(0, self.view.capsule, order.reason)
        approve, offer = order.verb is Verb.RUN, self.offer
        return Decide(
            0,
            self.view.id,
            self.digest,
            approve,
            self.ticked if approve else (),
            order.reason,
            offer.term if offer is not None and offer.approve is approve else ONCE,
        )
