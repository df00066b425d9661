"""Needles: the bytes that must not appear in the output, and whose they are.

Pure. No type here shows a value in its `repr`. Values are judged by `refusal_of`; what it
refuses gets no needle, and the caller decides what that means (`unredactable`, DESIGN §8).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final

from jackin_broker.bindings import Redact

# Shorter needles would mask ordinary words; eight is N of the redaction document.
MIN_NEEDLE_BYTES: Final = 8
# One line of a multi-line value counts alone from here: shorter lines are often plain text.
MIN_LINE_BYTES: Final = 16
# A value of fewer distinct bytes ("aaaaaaaa", "abababab") masks rulers and progress bars.
MIN_DISTINCT_BYTES: Final = 4
# Below this many bits in the whole value a needle hits by chance in a day of logs.
MIN_ENTROPY_BITS: Final = 20.0
_OUTER: Final = b" \t\r\n\v\f\0\"'"
_WHITE: Final = b" \t\r\n\v\f\0"
_COMMON: Final = frozenset({b"password", b"localhost", b"postgres", b"production", b"changeme"})


def refusal_of(value: bytes) -> str | None:
    """Why this value cannot be redacted, in words that follow "the value"; None if it can."""
    trimmed = value.strip(_OUTER)
    projected = trimmed.translate(None, _WHITE)
    if len(projected) < MIN_NEEDLE_BYTES:
        return f"is shorter than {MIN_NEEDLE_BYTES} characters"
    counts = Counter(projected)
    if len(counts) < MIN_DISTINCT_BYTES:
        return f"has fewer than {MIN_DISTINCT_BYTES} different characters"
    if trimmed.lower() in _COMMON:
        return "is a common word"
    size = len(projected)
    if -sum(n * math.log2(n / size) for n in counts.values()) < MIN_ENTROPY_BITS:
        return "is too easy to guess"
    return None


class NeedleSet:
    """The needles of one command. Immutable; shared by its streams."""

    __slots__ = ("longest", "markers", "names", "owner_of", "refused", "texts")

    def __init__(self, owner_of: dict[bytes, str], refused: dict[str, str]) -> None:
        self.owner_of: Final = owner_of
        self.refused: Final = refused
        self.texts: Final = sorted(owner_of)
        self.names: Final = tuple(dict.fromkeys(owner_of.values()))
        self.markers: Final = {n: b"[redacted:" + n.encode() + b"]" for n in self.names}
        self.longest: Final = max(map(len, self.texts), default=0)

    def __repr__(self) -> str:
        return f"<needles of {', '.join(self.names) or 'nothing'}>"

    def __bool__(self) -> bool:
        return bool(self.texts)

    def begins_with(self, held: bytes) -> bool:
        """True if `held` is a proper prefix of a needle."""
        at = bisect_left(self.texts, held)
        if at < len(self.texts) and self.texts[at] == held:
            at += 1
        return at < len(self.texts) and self.texts[at].startswith(held)


def build(credentials: Iterable[tuple[str, bytes, Redact]]) -> NeedleSet:
    """The needles of these credentials; refused ones are in `.refused` by name, with the reason."""
    owner_of: dict[bytes, str] = {}
    refused: dict[str, str] = {}
    for name, value, redact in credentials:
        if redact is Redact.OFF:
            continue
        if (reason := refusal_of(value)) is not None:
            refused[name] = reason
            continue
        trimmed = value.strip(_OUTER)
        owner_of.setdefault(trimmed, name)
        for line in trimmed.splitlines():
            if len(line.strip(_OUTER)) >= MIN_LINE_BYTES and refusal_of(line) is None:
                owner_of.setdefault(line.strip(_OUTER), name)
    return NeedleSet(owner_of, refused)
