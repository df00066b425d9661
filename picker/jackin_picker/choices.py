"""What the operator has chosen in one prompt: ticks, the cursor, the filter.

It refuses to know keys, the guard and the screen. Invariants: nothing is ticked at the start;
what is ticked is always among the rows that are seen, whatever the filter says; the cursor never
starts on *Run*.
Pure.
"""

from __future__ import annotations

from enum import Enum

from jackin_broker.operator_protocol import BindingView


class Place(Enum):
    """Where the cursor is, top to bottom."""

    COMMAND = "command"
    ROW = "row"
    RUN = "run"
    DENY = "deny"


class Choices:
    """The state of one prompt."""

    def __init__(self, bindings: tuple[BindingView, ...], *, starts_on_command: bool) -> None:
        """`starts_on_command`: something of the command wants to be read first."""
        self._bindings = sorted(bindings, key=lambda binding: not binding.wanted)
        self._ticked: set[str] = set()
        self._filter = ""
        self.row = 0
        at_rows = bool(bindings) and not starts_on_command
        self.place = Place.ROW if at_rows else Place.COMMAND

    @property
    def rows(self) -> list[BindingView]:
        """What is seen: wanted ones first, then in the order of the configuration."""
        wish = self._filter.casefold()
        return [row for row in self._bindings if row.name in self._ticked or _matches(row, wish)]

    @property
    def total(self) -> int:
        return len(self._bindings)

    @property
    def ticked(self) -> tuple[str, ...]:
        """The names that this command gets, in the order of the rows."""
        return tuple(row.name for row in self._bindings if row.name in self._ticked)

    def is_ticked(self, name: str) -> bool:
        return name in self._ticked

    @property
    def filter(self) -> str:
        return self._filter

    def narrow(self, wish: str) -> None:
        """Show the rows whose name, label, source or delivery holds `wish`."""
        self._filter = wish
        self._keep_cursor()

    def move(self, step: int) -> None:
        """One place down (1) or up (-1); it stops at both ends."""
        stops = self._stops()
        here = stops.index((self.place, self.row if self.place is Place.ROW else 0))
        place, row = stops[min(max(here + step, 0), len(stops) - 1)]
        self.place = place
        if place is Place.ROW:
            self.row = row

    def go(self, place: Place, row: int = 0) -> None:
        """Put the cursor there."""
        self.place = place
        if place is Place.ROW:
            self.row = row
        self._keep_cursor()

    def toggle(self) -> bool:
        """Tick or untick the row under the cursor. True when there was one."""
        if self.place is not Place.ROW:
            return False
        self._ticked ^= {self.rows[self.row].name}
        self._keep_cursor()
        return True

    def _stops(self) -> list[tuple[Place, int]]:
        rows = [(Place.ROW, index) for index in range(len(self.rows))]
        return [(Place.COMMAND, 0), *rows, (Place.RUN, 0), (Place.DENY, 0)]

    def _keep_cursor(self) -> None:
        self.row = max(0, min(self.row, len(self.rows) - 1))
        if self.place is Place.ROW and not self.rows:
            self.place = Place.COMMAND


def _matches(row: BindingView, wish: str) -> bool:
    fields = (row.name, row.label, row.source, row.delivery)
    return any(wish in field.casefold() for field in fields)
