"""Search: where needles occur in a text, and which tails could still become one.

Pure; looks at projected bytes only. Finding many needles at once rests on one fact: a run of
`stride + 7` bytes holds exactly one whole 8-byte block that starts at a multiple of `stride`. So
the `stride` blocks of one such run of each needle go into a set, and one pass in C asks whether
the text's own blocks are disjoint from it. Only a hit is looked at closer. No false negatives.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Final

# Eight-byte blocks, each read: 2.5 ns a byte of text, however many needles.
_WIDE_BYTES: Final = 8
_WIDE_STRIDE: Final = 8
# Needles too short for a wide block: four-byte blocks, twice the cost a byte of text …
_NARROW_BYTES: Final = 4
# … which `bytes.find` for each of them beats up to about this many.
_MAX_FINDS: Final = 12
# A held tail up to this long is looked for at every position, longer ones by blocks.
_NEAR_BYTES: Final = 256
_FAR_STRIDE: Final = 16
_PREFIX_BYTES: Final = 4
# Of how many places in a needle the most distinctive run is chosen.
_WINDOW_CHOICES: Final = 4


class Blocks:
    """The blocks of one window of each needle.

    `width` is 4 or 8, `stride` a multiple of it. A window has `stride + width - 1` bytes.
    """

    __slots__ = ("_code", "_known", "_places", "_step", "_stride", "_width")

    def __init__(self, windows: Iterable[tuple[bytes, int]], *, width: int, stride: int) -> None:
        self._width: Final = width
        self._stride: Final = stride
        self._step: Final = stride // width
        self._code: Final = "Q" if width == _WIDE_BYTES else "I"
        places: dict[int, list[tuple[bytes, int]]] = {}
        for needle, at in windows:
            for offset in range(at, at + stride):
                block = memoryview(needle[offset : offset + width]).cast(self._code)[0]
                places.setdefault(block, []).append((needle, offset))
        self._places: Final = places
        self._known: Final = frozenset(places)

    def candidates(self, text: bytes, base: int = 0) -> Iterator[tuple[int, bytes]]:
        """Each (start, needle) that a block of text[base:] speaks for; to be verified."""
        if not self._known:
            return
        whole = (len(text) - base) // self._width * self._width
        words = memoryview(text)[base : base + whole].cast(self._code)[:: self._step]
        if self._known.isdisjoint(words):
            return
        for index in compress(range(len(words)), map(self._known.__contains__, words)):
            for needle, offset in self._places[words[index]]:
                yield base + index * self._stride - offset, needle


class Searcher:
    """Finds whole needles, and tails that begin one."""

    __slots__ = ("_far", "_finds", "_longest", "_narrow", "_prefixes", "_sorted", "_wide")

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._sorted: Final = sorted(needles)
        wide_window = _WIDE_STRIDE + _WIDE_BYTES - 1
        long = [n for n in self._sorted if len(n) >= wide_window]
        short = [n for n in self._sorted if len(n) < wide_window]
        self._wide: Final = Blocks(
            ((n, _distinctive(n, wide_window)) for n in long),
            width=_WIDE_BYTES,
            stride=_WIDE_STRIDE,
        )
        self._finds: Final[Sequence[bytes]] = short if len(short) <= _MAX_FINDS else ()
        narrow_window = 2 * _NARROW_BYTES - 1
        self._narrow: Final = Blocks(
            () if self._finds else ((n, _distinctive(n, narrow_window)) for n in short),
            width=_NARROW_BYTES,
            stride=_NARROW_BYTES,
        )
        self._far: Final = Blocks(
            ((n, 0) for n in self._sorted if len(n) > _NEAR_BYTES),
            width=_WIDE_BYTES,
            stride=_FAR_STRIDE,
        )
        self._longest: Final = max(map(len, self._sorted), default=0)
        self._prefixes: Final = frozenset(_word(n, 0) for n in self._sorted)

    def __repr__(self) -> str:
        return f"<searcher for {len(self._sorted)} needles>"

    def occurrences(self, text: bytes) -> list[tuple[int, bytes]]:
        """Every (start, needle) in `text`, overlapping ones too; in no order."""
        found = [
            (start, needle)
            for blocks in (self._wide, self._narrow)
            for start, needle in blocks.candidates(text)
            if start >= 0 and text.startswith(needle, start)
        ]
        for needle in self._finds:
            at = text.find(needle)
            while at >= 0:
                found.append((at, needle))
                at = text.find(needle, at + 1)
        return found

    def beginnings(self, text: bytes) -> Iterator[int]:
        """Each start, ascending, from which the end of `text` may be the head of a needle.

        The whole of a needle counts as a head of it; `starting_with` tells which ones.
        """
        size = len(text)
        near = max(0, size - _NEAR_BYTES)
        if near and self._longest > _NEAR_BYTES:
            yield from self._far_beginnings(text, near)
        yield from self._near_beginnings(text, near)
        for start in range(max(0, size - _PREFIX_BYTES + 1), size):
            if next(self.starting_with(text[start:]), None) is not None:
                yield start

    def starting_with(self, head: bytes) -> Iterator[bytes]:
        """Every needle that begins with `head`, shortest heads of the sort order first."""
        at = bisect_left(self._sorted, head)
        while at < len(self._sorted) and self._sorted[at].startswith(head):
            yield self._sorted[at]
            at += 1

    def _far_beginnings(self, text: bytes, near: int) -> Iterator[int]:
        base = max(0, len(text) - self._longest)
        reach = text[: near + _FAR_STRIDE + _WIDE_BYTES]
        starts = {
            start
            for start, needle in self._far.candidates(reach, base)
            if base <= start < near and needle.startswith(text[start:])
        }
        yield from sorted(starts)

    def _near_beginnings(self, text: bytes, near: int) -> Iterator[int]:
        tail = memoryview(text)[near:]
        last = len(tail) - _PREFIX_BYTES + 1
        for phase in range(min(_PREFIX_BYTES, last)):
            words = tail[phase:]
            words = words[: len(words) // _PREFIX_BYTES * _PREFIX_BYTES].cast("I")
            if not self._prefixes.isdisjoint(words):
                break
        else:
            return
        for start in range(near, near + last):
            if _word(text, start) in self._prefixes and (
                next(self.starting_with(text[start:]), None) is not None
            ):
                yield start


def _word(text: bytes, at: int) -> int:
    """Four bytes as `cast("I")` reads them."""
    return memoryview(text[at : at + _PREFIX_BYTES]).cast("I")[0]


def _distinctive(needle: bytes, window: int) -> int:
    """Where to take the window: later and with more different bytes is better.

    Heads are the same for all tokens of a kind, tails are not.
    """
    last = len(needle) - window
    step = max(1, last // (_WINDOW_CHOICES - 1))
    return max(range(last, -1, -step), key=lambda at: len(set(needle[at : at + window])))
