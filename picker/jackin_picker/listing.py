"""A list with a cursor and a filter: which entries are seen, and which one is meant.

It refuses to know what an entry is and which keys there are. Invariants: the cursor follows its
entry, not its place, so that what arrives above does not change what a key acts on; an entry that
is gone leaves the cursor at the same place; only what is seen is drawn; what did not change is
neither made nor searched again.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from textual.content import Content

from .text import CURSOR, NOTHING, own, row


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to point at.

    Shape: `words` are what a filter is compared with and are never drawn; `draw` gives as many
    lines for a width as the listing's entries have.
    """

    id: str
    words: Callable[[], str]
    draw: Callable[[int], Sequence[Content]]


T = TypeVar("T")


class Entries(Generic[T]):
    """The entries of things that are replaced when they change, made once for each."""

    def __init__(self, make: Callable[[T], Entry]) -> None:
        self._make = make
        self._made: dict[int, tuple[T, Entry]] = {}
        self._things: Sequence[T] = ()
        self._entries: list[Entry] = []

    def of(self, things: Sequence[T]) -> list[Entry]:
        """One for each, in their order; the same list for the same sequence."""
        if things is self._things:
            return self._entries
        former, self._made = self._made, {}
        entries: list[Entry] = []
        for thing in things:
            # By identity: to compare two requests takes longer than to make an entry.
            known = former.get(id(thing)) or (thing, self._make(thing))
            self._made[id(thing)] = known
            entries.append(known[1])
        self._things, self._entries = things, entries
        return entries


class Listing:
    """The entries, the cursor, the filter."""

    def __init__(self, lines_each: int = 1) -> None:
        self._lines_each = lines_each
        self._all: Sequence[Entry] = ()
        self._seen: Sequence[Entry] = ()
        self._index = 0
        self._cursor = ""
        self._top = 0
        self._words: dict[str, tuple[Entry, str]] = {}  # of all, while there is a filter
        self.filter = ""
        self._shown_filter = ""

    def show(self, entries: Sequence[Entry]) -> None:
        """These are the entries now; a sequence that was shown before did not change."""
        if entries is self._all and self.filter == self._shown_filter:
            return
        self._all, self._shown_filter = entries, self.filter
        wish = self.filter.casefold()
        self._seen = entries
        if wish:
            self._seen = [entry for entry in entries if wish in self._words_of(entry)]
        self._words = {e.id: self._words[e.id] for e in entries} if wish else {}
        if self._index < len(self._seen) and self._seen[self._index].id == self._cursor:
            return
        places = (index for index, entry in enumerate(self._seen) if entry.id == self._cursor)
        self._put(next(places, self._index))

    def _words_of(self, entry: Entry) -> str:
        known = self._words.get(entry.id)
        if known is None or known[0] is not entry:
            known = self._words[entry.id] = (entry, entry.words().casefold())
        return known[1]

    def narrow(self, wish: str) -> None:
        """Show only what holds `wish`."""
        self.filter = wish
        self.show(self._all)

    @property
    def selected(self) -> str | None:
        """The id under the cursor."""
        return self._seen[self._index].id if self._seen else None

    @property
    def total(self) -> int:
        return len(self._all)

    @property
    def seen(self) -> int:
        return len(self._seen)

    def move(self, step: int) -> None:
        """Down, or up where it is negative; it stops at both ends."""
        self._put(self._index + step)

    def go(self, index: int) -> None:
        """The entry at this place of those that are seen."""
        self._put(index)

    def _put(self, index: int) -> None:
        self._index = max(0, min(index, len(self._seen) - 1))
        self._cursor = self._seen[self._index].id if self._seen else ""

    def lines(self, width: int, height: int) -> tuple[list[Content], list[tuple[int, int]]]:
        """At most `height` lines; and which line shows which place."""
        fit = max(1, height // self._lines_each)
        self._top = max(0, min(self._top, len(self._seen) - fit))
        self._top = max(min(self._top, self._index), self._index - fit + 1)
        lines: list[Content] = []
        spots: list[tuple[int, int]] = []
        for index in range(self._top, min(self._top + fit, len(self._seen))):
            mark = own("› ", CURSOR) if index == self._index else own("  ")
            drawn = list(self._seen[index].draw(width - 2))[: self._lines_each]
            drawn += [NOTHING] * (self._lines_each - len(drawn))
            for turn, line in enumerate(drawn):
                spots.append((len(lines), index))
                lines.append(row(own("  ") if turn else mark, line))
        return lines[:height], spots

    @property
    def first_seen(self) -> int:
        """The number of entries above those that were drawn last."""
        return self._top
