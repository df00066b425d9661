"""The marker: what stands where a value stood.

Pure. It names the binding: `[redacted:GH_TOKEN]`. It neither holds a needle, nor stands in one,
nor makes one together with what is beside it: so masking twice changes nothing. Where the usual
marker would, another is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jackin_broker.redact.projection import project
from jackin_broker.redact.values import MIN_NEEDLE_BYTES

_STYLES: Final = (
    (b"[redacted:", b"]"),
    (b"<redacted:", b">"),
    (b"{redacted:", b"}"),
    (b"(hidden:", b")"),
    (b"*hidden:", b"*"),
)
_NAMELESS: Final = (b"[redacted]", b"<hidden>", b"(***)", b"#####", b"*****")
_PRINTABLE: Final = bytes(range(0x21, 0x7F))
# Long enough to be seen, when nothing but one repeated character will do.
_RUN_LENGTH: Final = 5


def choose_markers(names: Sequence[str], needles: Sequence[bytes]) -> list[bytes]:
    """One marker a name, in their order. `needles` are projected."""
    edges = _Edges(needles)
    holders = {open_: [n for n in needles if open_ in n] for open_, _ in _STYLES}
    return [_named(name, edges, holders) or _nameless(edges, needles) for name in names]


def _named(name: str, edges: _Edges, holders: dict[bytes, list[bytes]]) -> bytes | None:
    for open_, close in _STYLES:
        marker = open_ + name.encode() + close
        seen = project(marker)
        if not edges.touch(seen) and not any(seen in needle for needle in holders[open_]):
            return marker
    return None


def _nameless(edges: _Edges, needles: Sequence[bytes]) -> bytes:
    for marker in _NAMELESS:
        if not edges.touch(marker) and not any(marker in needle for needle in needles):
            return marker
    used = frozenset(byte for needle in needles for byte in needle)
    for byte in _PRINTABLE:
        if byte not in used:
            return bytes([byte]) * _RUN_LENGTH
    # every printable byte is in use: nothing at all is the one text that holds no needle
    return b""


class _Edges:
    """The heads and tails of the needles, to be asked what a marker overlaps."""

    __slots__ = ("_heads", "_tails")

    def __init__(self, needles: Sequence[bytes]) -> None:
        sizes = range(1, MIN_NEEDLE_BYTES + 1)
        self._heads: Final = frozenset(needle[:size] for size in sizes for needle in needles)
        self._tails: Final = frozenset(needle[-size:] for size in sizes for needle in needles)

    def touch(self, marker: bytes) -> bool:
        """True if a needle lies in the marker, or one may end or begin inside it.

        A needle has at least MIN_NEEDLE_BYTES, so a longer overlap shows a whole head or tail.
        """
        last = len(marker) - MIN_NEEDLE_BYTES
        whole = (marker[at : at + MIN_NEEDLE_BYTES] for at in range(last + 1))
        if any(run in self._heads or run in self._tails for run in whole):
            return True
        return any(
            marker[:size] in self._tails or marker[-size:] in self._heads
            for size in range(1, MIN_NEEDLE_BYTES)
        )
