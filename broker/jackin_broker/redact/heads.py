"""Heads: which tails of a text could still become a needle, and which just failed to.

Pure; looks at projected bytes only. The cost does not depend on the number of needles: their
first four bytes are asked for as numbers in one pass, far-back starts of long needles by blocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import compress
from struct import Struct
from typing import Final, NamedTuple

from jackin_broker.redact.blocks import NARROW_BYTES, WIDE_BYTES, Blocks

# A held tail up to this long is looked for at every position, longer ones by blocks.
_NEAR_BYTES: Final = 256
_FAR_STRIDE: Final = 16
# A guess is known head and a few new characters: so many wrong ones at the end still make it one.
# With four, 62**4 / 2 guesses are needed for one that is noticed.
_GUESSED_BYTES: Final = 3
# Four bytes as `cast` reads them.
_WORD: Final = Struct("I")


class Miss(NamedTuple):
    """text[start:start + head_bytes] began this needle, what followed did not."""

    start: int
    head_bytes: int
    needle: bytes


class Heads:
    """The heads of a set of needles."""

    __slots__ = ("_far", "_first_words", "_longest", "_sorted")

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._sorted: Final = sorted(needles)
        self._far: Final = Blocks(
            ((n, 0) for n in self._sorted if len(n) > _NEAR_BYTES),
            width=WIDE_BYTES,
            stride=_FAR_STRIDE,
        )
        self._longest: Final = max(map(len, self._sorted), default=0)
        self._first_words: Final = frozenset(_WORD.unpack_from(n)[0] for n in self._sorted)

    def __repr__(self) -> str:
        return f"<heads of {len(self._sorted)} needles>"

    def at_the_end(self, text: bytes) -> tuple[list[int], list[Miss]]:
        """Each start from which the end of `text` may be the head of a needle; recent misses.

        Shape: the starts ascend; a whole needle counts as a head of it (`starting_with` tells).
        """
        size = len(text)
        near = max(0, size - _NEAR_BYTES)
        starts = self._far_starts(text, near) if near and self._longest > _NEAR_BYTES else []
        misses: list[Miss] = []
        for start in self._known_words(text, near):
            if self._is_head(text[start:]):
                starts.append(start)
            else:
                misses.extend(self._misses(text, start))
        last = range(max(0, size - NARROW_BYTES + 1), size)
        starts.extend(start for start in last if self._is_head(text[start:]))
        return starts, misses

    def starting_with(self, head: bytes) -> Iterator[bytes]:
        """Every needle that begins with `head`."""
        at = bisect_left(self._sorted, head)
        while at < len(self._sorted) and self._sorted[at].startswith(head):
            yield self._sorted[at]
            at += 1

    def _is_head(self, tail: bytes) -> bool:
        at = bisect_left(self._sorted, tail)
        return at < len(self._sorted) and self._sorted[at].startswith(tail)

    def _far_starts(self, text: bytes, near: int) -> list[int]:
        base = max(0, len(text) - self._longest)
        reach = text[: near + _FAR_STRIDE + WIDE_BYTES]
        return sorted(
            {
                start
                for start, _ in self._far.candidates(reach, base)
                if base <= start < near and self._is_head(text[start:])
            }
        )

    def _known_words(self, text: bytes, near: int) -> list[int]:
        """Where in text[near:] four bytes stand that a needle begins with."""
        tail = memoryview(text)[near:]
        found: list[int] = []
        for phase in range(min(NARROW_BYTES, len(tail) - NARROW_BYTES + 1)):
            words = tail[phase : len(tail) - (len(tail) - phase) % NARROW_BYTES].cast("I")
            if not self._first_words.isdisjoint(words):
                places = range(near + phase, len(text), NARROW_BYTES)
                found.extend(compress(places, map(self._first_words.__contains__, words)))
        found.sort()
        return found

    def _misses(self, text: bytes, start: int) -> Iterator[Miss]:
        """The longest heads are shared with a neighbour in the sort order."""
        tail = text[start:]
        at = bisect_left(self._sorted, tail)
        for needle in self._sorted[max(0, at - 1) : at + 1]:
            same = _shared_bytes(needle, tail)
            if same < len(needle) and len(tail) - same <= _GUESSED_BYTES:
                yield Miss(start, same, needle)


def _shared_bytes(one: bytes, other: bytes) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
