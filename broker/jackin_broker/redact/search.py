"""Search: every occurrence of every needle in a text.

Pure; looks at projected bytes only. Long needles are found by wide blocks, short ones by narrow
blocks or one by one, whichever is cheaper for this set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from jackin_broker.redact.blocks import NARROW_BYTES, WIDE_BYTES, Blocks

_STRIDES: Final = (8, 16, 24, 32)
_NARROW_STRIDES: Final = (4, 8)
# Measured (nanoseconds): one block, wide or narrow; a byte of text, searched for one needle by
# `find`; what each needle among the narrow blocks adds to one of them in false alarms.
_WIDE_BLOCK_NS: Final = 20.0
_NARROW_BLOCK_NS: Final = 20.0
_FIND_NS: Final = 0.35
_NARROW_ALARM_NS: Final = 0.06
# Kept in all, at 250 bytes each: a key file of thousands of lines takes no longer strides.
_MAX_BLOCKS: Final = 1 << 19
# Of how many places in a needle the most distinctive run is chosen.
_WINDOW_CHOICES: Final = 4


class Searcher:
    """Finds whole needles."""

    __slots__ = ("_finds", "_narrow", "_needles", "_wide")

    def __init__(self, needles: Iterable[bytes]) -> None:
        needles = list(needles)
        self._needles: Final = frozenset(needles)
        wide_stride, narrow_stride = _cheapest([len(n) for n in needles])
        wide_window = wide_stride + WIDE_BYTES - 1
        narrow_window = narrow_stride + NARROW_BYTES - 1
        long = [n for n in needles if len(n) >= wide_window]
        short = [n for n in needles if len(n) < wide_window]
        in_blocks = [n for n in short if narrow_stride and len(n) >= narrow_window]
        self._wide: Final = Blocks(
            ((n, _distinctive(n, wide_window)) for n in long),
            width=WIDE_BYTES,
            stride=wide_stride,
        )
        self._narrow: Final = Blocks(
            ((n, _distinctive(n, narrow_window)) for n in in_blocks),
            width=NARROW_BYTES,
            stride=narrow_stride or NARROW_BYTES,
        )
        known = frozenset(in_blocks)
        self._finds: Final[Sequence[bytes]] = [n for n in short if n not in known]

    def __repr__(self) -> str:
        return f"<searcher for {len(self._needles)} needles>"

    def occurrences(self, text: bytes) -> list[tuple[int, bytes]]:
        """Every (start, needle) in `text`, overlapping ones too; in no order, some twice."""
        found = [
            (start, needle)
            for blocks in (self._wide, self._narrow)
            for start, size in blocks.candidates(text)
            if start >= 0 and (needle := text[start : start + size]) in self._needles
        ]
        for needle in self._finds:
            at = text.find(needle)
            while at >= 0:
                found.append((at, needle))
                at = text.find(needle, at + 1)
        return found


def _cheapest(lengths: list[int]) -> tuple[int, int]:
    """The strides of wide and narrow blocks; a narrow stride of 0 leaves short ones to `find`."""
    choices: list[tuple[float, int, int]] = []
    for wide_stride in _STRIDES:
        short = [length for length in lengths if length < wide_stride + WIDE_BYTES - 1]
        if choices and (len(lengths) - len(short)) * wide_stride > _MAX_BLOCKS:
            break
        wide_ns = _WIDE_BLOCK_NS / wide_stride if len(short) < len(lengths) else 0.0
        choices.append((wide_ns + len(short) * _FIND_NS, wide_stride, 0))
        for narrow_stride in _NARROW_STRIDES:
            window = narrow_stride + NARROW_BYTES - 1
            in_blocks = sum(length >= window for length in short)
            blocks_ns = (_NARROW_BLOCK_NS + in_blocks * _NARROW_ALARM_NS) / narrow_stride
            finds_ns = (len(short) - in_blocks) * _FIND_NS
            choices.append((wide_ns + blocks_ns + finds_ns, wide_stride, narrow_stride))
    _, wide_stride, narrow_stride = min(choices)
    return wide_stride, narrow_stride


def _distinctive(needle: bytes, window: int) -> int:
    """Where to take the window: later and with more different bytes is better.

    Heads are the same for all tokens of a kind, tails are not.
    """
    last = len(needle) - window
    step = max(1, last // (_WINDOW_CHOICES - 1))
    return max(range(last, -1, -step), key=lambda at: len(set(needle[at : at + window])))
