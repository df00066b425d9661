"""The redactor's reference: brute force, a byte at a time, the whole stream at once.

It shares with the engine the needle table and nothing else: how output is projected, what an
occurrence is, how unions are named and what the end of the stream masks is all said again here,
in the plainest way. Slow on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from jackin_broker.redact.needles import Needle, NeedleSet

MAX_GAP = 256
MAX_IGNORED = 16 * 1024
WHITE = b" \t\r\n\v\f"
UNSEEN = b"\0\x0e\x0f"
HEX = b"0123456789abcdefABCDEF"


class Seen(NamedTuple):
    """One byte of text, where it stands, and its spelling in same-case percent escapes."""

    byte: int
    at: int
    same_case: int


def escape_length(data: bytes, at: int) -> int:
    """The length of the escape that begins at `at`; 0 if none does."""
    if data[at : at + 1] != b"\x1b":
        return 0
    kind = data[at + 1 : at + 2]
    if kind and kind in b"%()*+-./":
        return 3 if len(data) > at + 2 and 0x30 <= data[at + 2] <= 0x7E else 0
    if kind != b"[":
        return 0
    end = at + 2
    while end < len(data) and 0x30 <= data[end] <= 0x3F and end - at - 2 < 48:
        end += 1
    middle = end
    while end < len(data) and 0x20 <= data[end] <= 0x2F and end - middle < 8:
        end += 1
    return end - at + 1 if end < len(data) and 0x40 <= data[end] <= 0x7E else 0


def taker(data: bytes, end: int, behind: tuple[bytes, ...]) -> int | None:
    """Where the escape begins that ends at `end`, its own bytes with one of these."""
    for at in range(end):
        if at + escape_length(data, at) == end:
            return at if any(data[at + 2 : end].endswith(taken) for taken in behind) else None
    return None


def seen_text(data: bytes) -> list[Seen]:
    """Every byte that is text."""
    plain: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        if size := escape_length(data, at):
            at += size
            continue
        if data[at] not in WHITE + UNSEEN:
            plain.append((data[at], at))
        at += 1
    case = [byte for byte, _ in plain]
    for i in range(len(plain) - 2):
        if plain[i][0] == ord("%") and case[i + 1] in HEX and case[i + 2] in HEX:
            case[i + 1 : i + 3] = bytes(case[i + 1 : i + 3]).upper()
    return [Seen(byte, at, same) for (byte, at), same in zip(plain, case, strict=True)]


def half_escape(seen: list[Seen]) -> bytes | None:
    """The text as it reads if its end is half of a percent escape, where it is no whole one."""
    text = bytes(s.same_case for s in seen)
    if text[-2:-1] == b"%" and text[-1:] in (b"a", b"b", b"c", b"d", b"e", b"f"):
        return text[:-1] + text[-1:].upper()
    return None


class Reference:
    """`redact(data)` and what it found."""

    def __init__(self, needles: NeedleSet) -> None:
        self.needles = needles
        self.count = 0

    def redact(self, data: bytes, *, at_end: bool = True) -> bytes:
        """The whole output for the whole input."""
        seen = seen_text(data)
        found = [
            span
            for needle in self.needles.needles()
            for text in {bytes(s.byte for s in seen), bytes(s.same_case for s in seen)}
            for span in self._spans(data, seen, text, needle, at_end=at_end)
        ]
        if at_end and (half := half_escape(seen)) is not None:
            found += [
                span
                for needle in self.needles.needles()
                for span in self._spans(data, seen, half, needle, at_end=True)
                if span[1] == seen[-1].at + 1
            ]
        return self._masked(data, found)

    def _spans(
        self, data: bytes, seen: list[Seen], text: bytes, needle: Needle, *, at_end: bool
    ) -> Iterator[tuple[int, int, int]]:
        size = len(needle.text)
        for first in range(len(text)):
            if text[first : first + size] == needle.text and self._is_one(
                data, seen, first, first + size, needle, is_whole=True
            ):
                yield self._grown(data, seen, text, first, first + size, needle)
            rest = len(text) - first
            if (
                at_end
                and 8 <= rest < size
                and rest > needle.public
                and needle.text.startswith(text[first:])
                and self._is_one(data, seen, first, len(text), needle, is_whole=False)
            ):
                yield self._grown(data, seen, text, first, len(text), needle)

    def _is_one(
        self,
        data: bytes,
        seen: list[Seen],
        first: int,
        stop: int,
        needle: Needle,
        *,
        is_whole: bool,
    ) -> bool:
        places = [s.at for s in seen[first:stop]] + ([] if is_whole else [len(data)])
        if not tight(places, 0 if is_whole else 1):
            return False
        if needle.behind and taker(data, places[0], needle.behind) is None:
            return False
        if not needle.exact:
            return True
        end = places[-1] + 1 if is_whole else len(data)
        spelled = spelling(data, places[0], end)
        if is_whole:
            return spelled in needle.exact
        return any(exact.startswith(spelled) for exact in needle.exact)

    def _grown(
        self, data: bytes, seen: list[Seen], text: bytes, first: int, stop: int, needle: Needle
    ) -> tuple[int, int, int]:
        places = [s.at for s in seen]
        if needle.behind:
            start = taker(data, places[first], needle.behind)
            assert start is not None
            return start, places[stop - 1] + 1, needle.owner
        if first and text[first - 1] in needle.lead and tight(places[first - 1 : stop], 0):
            first -= 1
        if stop < len(text) and text[stop] in needle.trail and tight(places[first : stop + 1], 0):
            stop += 1
        return places[first], places[stop - 1] + 1, needle.owner

    def _masked(self, data: bytes, found: list[tuple[int, int, int]]) -> bytes:
        out = b""
        end = 0
        for start, stop, owner in sorted(set(found), key=lambda f: (f[0], -f[1], f[2])):
            if start >= end:
                out += data[end:start] + self.needles.markers[owner]
                self.count += 1
            end = max(end, stop)
        return out + data[end:]


def tight(places: list[int], virtual: int) -> bool:
    """No gap too wide, and not too much in all; `virtual` of the places hold no byte."""
    gaps = [after - before - 1 for before, after in pairwise(places)]
    return all(gap <= MAX_GAP for gap in gaps) and sum(gaps) <= MAX_IGNORED


def spelling(data: bytes, start: int, end: int) -> bytes:
    """data[start:end] without escapes and unseen bytes, in upper case."""
    out = b""
    at = start
    while at < end:
        if size := escape_length(data, at):
            at += size
            continue
        if data[at] not in UNSEEN:
            out += data[at : at + 1]
        at += 1
    return out.upper()
