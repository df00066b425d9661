"""Matching: which raw bytes of one buffer are to be masked, and which tail may yet be.

Pure. The searcher's hits are in projected text; here they are held against the raw bytes: how
much was ignored in between, white space where it counts, the characters beside a base64 core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from jackin_broker.redact.budget import SHALLOW_BYTES
from jackin_broker.redact.needles import Needle, NeedleSet
from jackin_broker.redact.projection import (
    IGNORABLE,
    View,
    canonical,
    escape_before,
    opened,
    without_escapes,
)
from jackin_broker.redact.values import MIN_NEEDLE_BYTES

# The owner of what an earlier marker stands for.
NOBODY: Final = -1
_ANY_CORE: Final = Needle(b"", NOBODY)


class Span(NamedTuple):
    """raw[start:end] is to be masked, for the binding `owner`."""

    start: int
    end: int
    owner: int


class Begun(NamedTuple):
    """A needle whose first `head_bytes` the end of the text may be; `at` is projected."""

    start: int
    at: int
    head_bytes: int
    needle: Needle

    @property
    def is_cut_off(self) -> bool:
        """True if so much was seen that the end of the stream does not make it harmless."""
        return self.head_bytes >= MIN_NEEDLE_BYTES and (
            self.needle.public < self.head_bytes < len(self.needle.text)
        )


class Matching:
    """One buffer held against one set. `before` is the projected text in front of it."""

    __slots__ = ("_before", "_set", "_texts", "view")

    def __init__(self, needles: NeedleSet, raw: bytes, before: bytes) -> None:
        self._set: Final = needles
        self.view: Final = View(raw)
        self._before: Final = before
        plain = self.view.text
        same_case = canonical(plain, before)
        self._texts: Final = (plain,) if same_case == plain else (plain, same_case)

    def __repr__(self) -> str:
        return f"<matching of {self.view!r}>"

    def spans(self) -> list[Span]:
        """Every occurrence."""
        return [
            span
            for text in self._texts
            for start, found in self._set.searcher.occurrences(text)
            if (span := self._span(text, start, self._set.needle(found))) is not None
        ]

    def tail(self) -> tuple[list[Begun], list[Begun]]:
        """What the end of the buffer may be the head of, and what it just failed to be.

        Shape: of heads too short to be a guess only the first needle of each place.
        """
        begun: list[Begun] = []
        missed: list[Begun] = []
        texts = self._texts
        if (half := opened(texts[-1], self._before)) != texts[-1]:
            texts = (*texts, half)
        for text in texts:
            starts, misses = self._set.heads.at_the_end(text)
            begun.extend(self._begun(text, starts))
            begun.extend(self._lead_alone(text))
            for miss in misses:
                needle = self._set.needle(miss.needle)
                if not needle.behind:
                    start = self.view.raw_index(miss.start)
                    missed.append(Begun(start, miss.start, miss.head_bytes, needle))
        begun.extend(self._escape_alone())
        return begun, missed

    def cut_off(self, begun: Iterable[Begun]) -> list[Span]:
        """The tail that is masked if nothing follows."""
        view = self.view
        return [
            Span(b.start, view.raw_index(len(view.text) - 1) + 1, b.needle.owner)
            for b in begun
            if b.is_cut_off
        ]

    def _span(self, text: bytes, index: int, needle: Needle) -> Span | None:
        view, size = self.view, len(needle.text)
        if needle.behind and not view.has_escapes:  # the usual case: nothing took its head
            return None
        stop = index + size
        start = view.raw_index(index)
        end = start + size
        # the usual case, nothing in between; a needle with an ESC may be cut by an escape
        if self._set.has_escapes or not view.raw.startswith(needle.text, start):
            end = view.raw_index(stop - 1) + 1
            if not view.is_tight(start, end, size):
                return None
        if needle.exact and without_escapes(view.raw[start:end]).upper() not in needle.exact:
            return None
        if needle.behind:
            escape = self._taker(start, needle.behind)
            return Span(escape, end, needle.owner) if escape < start else None
        if index and text[index - 1] in needle.lead:
            lead = view.raw_index(index - 1)
            if view.is_tight(lead, end, size + 1):
                start, size = lead, size + 1
        if stop < len(text) and text[stop] in needle.trail:
            trail = view.raw_index(stop) + 1
            if view.is_tight(start, trail, size + 1):
                end = trail
        return Span(start, end, needle.owner)

    def _begun(self, text: bytes, starts: Iterable[int]) -> Iterator[Begun]:
        view = self.view
        for index in starts:
            head = text[index:]
            start = view.raw_index(index)
            if not view.is_tight(start, len(view.raw), len(head)):
                continue
            may_lead = index > 0 and text[index - 1] in self._set.leads
            is_taken = self._is_taken(start)
            for found in self._set.heads.starting_with(head):
                needle = self._set.needle(found)
                if not _goes_on(view, start, head, needle):
                    continue
                begun = Begun(start, index, len(head), needle)
                if needle.behind:
                    if is_taken and (escape := self._taker(start, needle.behind)) < start:
                        yield begun._replace(start=escape)
                    continue
                if may_lead and text[index - 1] in needle.lead:
                    begun = self._with_lead(begun)
                yield begun
                is_enough = not may_lead or begun.at < index
                if len(head) < SHALLOW_BYTES and is_enough and not is_taken:
                    break

    def _with_lead(self, begun: Begun) -> Begun:
        index = begun.at - 1
        start = self.view.raw_index(index)
        if self.view.is_tight(start, len(self.view.raw), begun.head_bytes + 1):
            return begun._replace(start=start, at=index)
        return begun

    def _is_taken(self, start: int) -> bool:
        """True if an escape right in front of `start` has taken the head of some value."""
        behinds = self._set.behinds
        return bool(behinds) and self.view.has_escapes and self._taker(start, behinds) < start

    def _taker(self, end: int, behind: tuple[bytes, ...]) -> int:
        """Where the escape begins that ends at `end` and has taken one of these; else `end`."""
        at = escape_before(self.view.raw, end)
        return at if self.view.raw[at + 2 : end].endswith(behind) else end

    def _escape_alone(self) -> Iterator[Begun]:
        """An escape at the end may have taken the head of what follows."""
        end = len(self.view.raw)
        if self._is_taken(end):
            at = self._taker(end, self._set.behinds)
            yield Begun(at, len(self.view.text), 0, _ANY_CORE)

    def _lead_alone(self, text: bytes) -> Iterator[Begun]:
        index = len(text) - 1
        if text and text[index] in self._set.leads:
            start = self.view.raw_index(index)
            if self.view.is_tight(start, len(self.view.raw), 1):
                yield Begun(start, index, 0, _ANY_CORE)


def unions(spans: Iterable[Span], cover: int) -> list[Span]:
    """The maximal runs of overlapping spans, in order; adjacent ones stay apart.

    Shape: the first is raw[0:cover], for NOBODY, if anything is covered. A union belongs to the
    owner of its first span, of several to that of the longest.
    """
    merged = [Span(0, cover, NOBODY)] if cover else []
    for span in sorted(spans):
        if not merged or span.start >= merged[-1].end:
            merged.append(span)
            continue
        last = merged[-1]
        if span.end > last.end:
            # of those with one start the longest comes last
            is_longer = span.start == last.start and last.owner != NOBODY
            merged[-1] = span if is_longer else last._replace(end=span.end)
    return merged


def _goes_on(view: View, start: int, head: bytes, needle: Needle) -> bool:
    """True if more bytes could make this an occurrence, or a longer one."""
    is_whole = len(head) == len(needle.text)
    if is_whole and not needle.trail:
        return False
    if not needle.exact:
        return True
    seen = without_escapes(view.raw[start:]).upper()
    if is_whole:
        return seen.rstrip(IGNORABLE) in needle.exact
    return any(exact.startswith(seen) for exact in needle.exact)
