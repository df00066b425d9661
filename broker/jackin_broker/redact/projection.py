"""The projected stream: output as the eye joins it, with a way back to the raw bytes.

Escape sequences (CSI and charset selects) and white space are taken out of needles and stream
alike, so that one rule covers wraps, indents, CRLF, colour and UTF-16. OSC payloads stay text: a
link can carry a value. Pure. Refuses to know what a needle is.

Invariants
- an escape is parsed from its ESC alone and never holds a second one, so parsing may begin at
  any byte that is outside an escape and gives the same result as parsing from the start;
- positions map back to raw bytes lazily, from the end: most chunks need only their last few.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import compress
from typing import Final

ESC: Final = b"\x1b"
# NUL is every other byte of UTF-16 text; SO and SI end vt100's "attributes off".
UNSEEN: Final = b"\0\x0e\x0f"
IGNORABLE: Final = b" \t\r\n\v\f" + UNSEEN
# Between two needle bytes. More than a screen's width of indent, less than a page of blank lines.
MAX_GAP_BYTES: Final = 256
# In one occurrence: every letter of a 500-letter line in its own 24-bit colour. Bounds memory.
MAX_IGNORED_BYTES: Final = 16 * 1024
# Longer sequences are text. xterm's own longest is 34 parameter bytes.
_MAX_PARAMETERS: Final = 48
_MAX_INTERMEDIATES: Final = 8
MAX_ESCAPE_BYTES: Final = 2 + _MAX_PARAMETERS + _MAX_INTERMEDIATES + 1

_CSI_OPEN: Final = rb"\[[0-?]{0,%d}[ -/]{0,%d}" % (_MAX_PARAMETERS, _MAX_INTERMEDIATES)
_CHARSET_OPEN: Final = rb"[%()*+\-./]"
_ESCAPE: Final = re.compile(rb"\x1b(?:" + _CSI_OPEN + rb"[@-~]|" + _CHARSET_OPEN + rb"[0-~])")
_UNFINISHED: Final = re.compile(rb"\x1b(?:" + _CSI_OPEN + rb"|" + _CHARSET_OPEN + rb")?")
_CSI_REST: Final = re.compile(
    rb"[0-?]{0,%d}[ -/]{0,%d}[@-~]" % (_MAX_PARAMETERS, _MAX_INTERMEDIATES)
)
_CHARSET_REST: Final = re.compile(rb"[0-~]")
_LOWER_PERCENT: Final = re.compile(rb"%(?:[0-9A-Fa-f][a-f]|[a-f][0-9A-F])")
_IS_TEXT: Final = bytes(0 if byte in IGNORABLE else 1 for byte in range(256))
_LONG_GAP: Final = bytes(MAX_GAP_BYTES + 1)
# One step of the way back: small enough to be cheap for a single hit.
_BLOCK_BYTES: Final = 512


def without_escapes(raw: bytes) -> bytes:
    """`raw` as a strict needle sees it: no escapes, none of `UNSEEN`, white space as it is."""
    if ESC in raw:
        raw = _ESCAPE.sub(b"", raw)
    return raw.translate(None, UNSEEN)


def project(raw: bytes) -> bytes:
    """`raw` without escapes and ignorable bytes."""
    if ESC in raw:
        raw = _ESCAPE.sub(b"", raw)
    return raw.translate(None, IGNORABLE)


def canonical(text: bytes, before: bytes = b"") -> bytes:
    """`text` with the digits of percent escapes in upper case; of equal length.

    `before` is what stood in front: an escape may begin there.
    """
    if b"%" not in text and b"%" not in before:
        return text
    joined = before + text
    if _LOWER_PERCENT.search(joined) is None:
        return text
    return _LOWER_PERCENT.sub(lambda found: found[0].upper(), joined)[len(before) :]


def opened(text: bytes, before: bytes = b"") -> bytes:
    """`text`, canonical, as it reads if its end turns out to be half of a percent escape."""
    end = (before + text)[-2:]
    if text and end[:1] == b"%" and end[1:] in (b"a", b"b", b"c", b"d", b"e", b"f"):
        return text[:-1] + end[1:].upper()
    return text


def swallowed_heads(raw: bytes) -> set[bytes]:
    """What an escape that is still open where `raw` is printed would take of it."""
    heads = {found[0] for found in (_CSI_REST.match(raw), _CHARSET_REST.match(raw)) if found}
    return {head for head in heads if len(head) < len(raw)}


def escape_before(raw: bytes, end: int) -> int:
    """Where the escape begins that ends at `end`; `end` if none does."""
    at = raw.rfind(ESC, max(0, end - MAX_ESCAPE_BYTES), end)
    if at >= 0 and _ESCAPE.fullmatch(raw, at, end) is not None:
        return at
    return end


def unfinished_escape(raw: bytes) -> int:
    """Where an escape begins that the end of `raw` cuts; `len(raw)` if none does."""
    size = len(raw)
    at = raw.rfind(ESC, max(0, size - MAX_ESCAPE_BYTES + 1))
    if at >= 0 and _UNFINISHED.fullmatch(raw, at) is not None:
        return at
    return size


class View:
    """One buffer: its projected `text`, and where each of its bytes stands in `raw`."""

    __slots__ = ("_counts", "_positions", "has_escapes", "raw", "text")

    def __init__(self, raw: bytes) -> None:
        self.raw: Final = raw
        self.has_escapes: Final = ESC in raw
        self.text: Final = project(raw)
        self._counts: Final[list[int]] = []
        self._positions: Final[dict[int, list[int]]] = {}

    def __repr__(self) -> str:
        return f"<view of {len(self.raw)} bytes>"

    def raw_index(self, index: int) -> int:
        """The raw position of projected byte `index`."""
        back = len(self.text) - index
        counts = self._counts
        while not counts or counts[-1] < back:
            self._count_one_more_block()
        block = bisect_left(counts, back)
        positions = self._positions.get(block)
        if positions is None:
            low, high = self._bounds(block)
            flags = self._blanked(low, high).translate(_IS_TEXT)
            positions = self._positions[block] = list(compress(range(low, high), flags))
        return positions[counts[block] - back]

    def is_tight(self, start: int, end: int, text_bytes: int) -> bool:
        """True if raw[start:end], holding so many bytes of text, ignores no more than it may."""
        ignored = end - start - text_bytes
        if ignored <= MAX_GAP_BYTES:
            return True
        if ignored > MAX_IGNORED_BYTES:
            return False
        return _LONG_GAP not in self._blanked(start, end).translate(_IS_TEXT)

    def _bounds(self, block: int) -> tuple[int, int]:
        high = len(self.raw) - block * _BLOCK_BYTES
        return max(0, high - _BLOCK_BYTES), high

    def _count_one_more_block(self) -> None:
        low, high = self._bounds(len(self._counts))
        here = len(self._blanked(low, high).translate(None, IGNORABLE))
        self._counts.append(here + (self._counts[-1] if self._counts else 0))

    def _blanked(self, low: int, high: int) -> bytes:
        """raw[low:high] with every byte of an escape replaced by NUL."""
        if not self.has_escapes:
            return self.raw[low:high]
        sync = self.raw.rfind(ESC, max(0, low - MAX_ESCAPE_BYTES), low)
        start = sync if sync >= 0 else low
        piece = self.raw[start : high + MAX_ESCAPE_BYTES]
        blank = _ESCAPE.sub(lambda found: bytes(len(found[0])), piece)
        return blank[low - start : high - start]
