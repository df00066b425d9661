"""Search: every occurrence of every needle in a text.

Pure; looks at projected bytes only. Long needles are found by wide blocks, short ones by narrow
blocks or one by one, whichever is cheaper for this set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from jackin_broker.redact.blocks import NARROW_BYTES, WIDE_BYTES, Blocks

_STRIDES: Final = (8, 16, 24, 32)
# Measured (nanoseconds): one wide block; a byte of text, searched for one needle by `find`, in
# narrow blocks, and what each needle among those adds in false alarms.
_WIDE_BLOCK_NS: Final = 20.0
_FIND_NS: Final = 0.35
_NARROW_NS: Final = 5.0
_NARROW_ALARM_NS: Final = 0.015
# Of how many places in a needle the most distinctive run is chosen.
_WINDOW_CHOICES: Final = 4


class Searcher:
    """Finds whole needles."""

    __slots__ = ("_count", "_finds", "_narrow", "_wide")

    def __init__(self, needles: Iterable[bytes]) -> None:
        needles = list(needles)
        self._count: Final = len(needles)
        stride, use_finds = _cheapest([len(n) for n in needles])
        wide_window = stride + WIDE_BYTES - 1
        long = [n for n in needles if len(n) >= wide_window]
        short = [n for n in needles if len(n) < wide_window]
        self._wide: Final = Blocks(
            ((n, _distinctive(n, wide_window)) for n in long),
            width=WIDE_BYTES,
            stride=stride,
        )
        self._finds: Final[Sequence[bytes]] = short if use_finds else ()
        narrow_window = 2 * NARROW_BYTES - 1
        self._narrow: Final = Blocks(
            () if use_finds else ((n, _distinctive(n, narrow_window)) for n in short),
            width=NARROW_BYTES,
            stride=NARROW_BYTES,
        )

    def __repr__(self) -> str:
        return f"<searcher for {self._count} needles>"

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


def _cheapest(lengths: list[int]) -> tuple[int, bool]:
    """The stride for long needles, and whether `find` is the cheaper search for the others."""
    choices: list[tuple[float, int, bool]] = []
    for stride in _STRIDES:
        short = sum(length < stride + WIDE_BYTES - 1 for length in lengths)
        wide_ns = _WIDE_BLOCK_NS / stride if short < len(lengths) else 0.0
        choices.append((wide_ns + short * _FIND_NS, stride, True))
        choices.append((wide_ns + _NARROW_NS + short * _NARROW_ALARM_NS, stride, False))
    _, stride, use_finds = min(choices)
    return stride, use_finds


def _distinctive(needle: bytes, window: int) -> int:
    """Where to take the window: later and with more different bytes is better.

    Heads are the same for all tokens of a kind, tails are not.
    """
    last = len(needle) - window
    step = max(1, last // (_WINDOW_CHOICES - 1))
    return max(range(last, -1, -step), key=lambda at: len(set(needle[at : at + window])))
