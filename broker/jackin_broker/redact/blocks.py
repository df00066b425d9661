"""Blocks: one pass in C that asks a text for many needles at once.

Pure; looks at projected bytes only. It rests on one fact: a run of `stride + width - 1` bytes
holds exactly one whole block of `width` bytes that starts at a multiple of `stride`. So the
`stride` blocks of one such run of each needle go into a set, and the text's own blocks are asked
whether they are disjoint from it. Only a hit is looked at closer. No false negatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from struct import Struct
from typing import Final

WIDE_BYTES: Final = 8
NARROW_BYTES: Final = 4
# Numbers as `cast` reads them.
_WIDE: Final = Struct("Q")
_NARROW: Final = Struct("I")
# So many blocks are asked for at a time: where one is known, all of these are looked at closer.
_PIECE_WORDS: Final = 1024


class Blocks:
    """The blocks of one window of each needle.

    `width` is 4 or 8, `stride` a multiple of it. A window has `stride + width - 1` bytes.
    """

    __slots__ = ("_known", "_places", "_step", "_stride", "_width")

    def __init__(self, windows: Iterable[tuple[bytes, int]], *, width: int, stride: int) -> None:
        self._width: Final = width
        self._stride: Final = stride
        self._step: Final = stride // width
        places: dict[int, list[tuple[int, int]]] = {}
        number_at = (_WIDE if width == WIDE_BYTES else _NARROW).unpack_from
        for needle, at in windows:
            for offset in range(at, at + stride):
                (block,) = number_at(needle, offset)
                places.setdefault(block, []).append((offset, len(needle)))
        for known in places.values():
            # what hundreds of tokens of one kind have in common speaks once for all of them
            if len(known) > 1:
                known[:] = dict.fromkeys(known)
        self._places: Final = places
        self._known: Final = frozenset(places)

    def candidates(self, text: bytes, base: int = 0) -> Iterator[tuple[int, int]]:
        """Each (start, size) of a needle that a block of text[base:] speaks for; to be verified."""
        if not self._known:
            return
        whole = (len(text) - base) // self._width * self._width
        view = memoryview(text)[base : base + whole]
        words = view.cast("Q" if self._width == WIDE_BYTES else "I")[:: self._step]
        for low in range(0, len(words), _PIECE_WORDS):
            piece = words[low : low + _PIECE_WORDS]
            if self._known.isdisjoint(piece):
                continue
            for index in compress(range(len(piece)), map(self._known.__contains__, piece)):
                for offset, size in self._places[piece[index]]:
                    yield base + (low + index) * self._stride - offset, size
