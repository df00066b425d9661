"""Values: which can be redacted at all, and which parts of one are secret by themselves.

Pure. A value comes in, reasons and pieces come out; reasons never hold a byte of it.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, cast
from urllib.parse import unquote_to_bytes

from jackin_broker.redact.projection import project
from jackin_broker.redact.words import is_common

# Shorter needles would mask ordinary words; eight is N of the redaction document.
MIN_NEEDLE_BYTES: Final = 8
# One line of a multi-line value counts alone from here: shorter lines are often plain text.
MIN_LINE_BYTES: Final = 16
# A value of fewer distinct bytes ("aaaaaaaa", "abababab") masks rulers and progress bars.
MIN_DISTINCT_BYTES: Final = 4
# Below this many bits in the whole value a needle hits by chance in a day of logs.
MIN_ENTROPY_BITS: Final = 20.0
# Values with more lines than this are key files: their lines are sought as they are, not encoded.
_MAX_ENCODED_LINES: Final = 8
# Beyond this a piece is sought as it is: its encodings would cost megabytes of needles.
MAX_ENCODED_BYTES: Final = 8 * 1024
# Longer pieces are cut, so that nothing longer is ever held back.
MAX_PIECE_BYTES: Final = 32 * 1024

_WHITE: Final = b" \t\r\n\v\f\0"
_QUOTES: Final = b"\"'"
_OUTER: Final = _WHITE + _QUOTES
_ARMOUR: Final = re.compile(rb"-----(?:BEGIN|END) [A-Z0-9 ]{1,64}-----")
_SETTING: Final = re.compile(rb"\s*[A-Za-z_][\w.-]{0,63}\s*[:=]\s*(?=\S)")
# Bounded, for a search of it in a long value would take seconds; real ones have 36 at most.
_SCHEME: Final = rb"[A-Za-z][A-Za-z0-9+.-]{0,63}://"
_USERINFO: Final = re.compile(_SCHEME + rb"([^/?#\s]*)@")

# What every value of a kind begins with, so that it is no secret (DESIGN §10).
_PUBLIC_HEADS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rb"gh[oprsu]_|github_pat_|gl[a-z]{2,4}-|xox[a-z]-|npm_|pypi-|hv[sbr]\.|dop_v1_",
        rb"(?:sk|pk|rk)[-_](?:live|test|proj|ant|or)?[-_]?|A[KS]IA|SG\.|AIza|ya29\.",
        rb"eyJ[A-Za-z0-9_-]+\.",  # a JWT's header
        rb"(?i:bearer|basic) ",
        _SCHEME + rb"(?:[^/?#@\s:]*:(?=[^/?#\s]*@)|(?=[^/?#\s]*@)|[^/?#\s]*/?)",
        rb"MII[A-Za-z0-9+/]{2,4}IBADANBgkqhkiG9w0BAQEFAASC[A-Za-z0-9+/]{0,12}",  # PKCS #8
        rb"MII[A-Za-z0-9+/]{2,5}IBAAKCA[A-Za-z0-9+/]{0,3}",  # PKCS #1
        rb"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/]{0,63}",  # openssh's key file, its first line
        rb"M(?:HcC|C4C|IGH)AQ[A-Za-z0-9+/]{0,12}",  # EC and Ed25519
    )
)


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """Something secret by itself. Its first `public` bytes are known to everyone."""

    text: bytes
    public: int
    is_encoded: bool

    def __repr__(self) -> str:
        return f"<piece of {len(self.text)} bytes>"


class _Part(NamedTuple):
    """A piece before it is trimmed and judged."""

    text: bytes
    is_encoded: bool
    public: int = 0


def refusal_of(value: bytes) -> str | None:
    """Why this value cannot be redacted, in words that follow "the value"; None if it can."""
    pieces = _segments(value)
    reasons = [_weakness(piece) for piece in pieces]
    if not reasons or None in reasons:
        return None if reasons else _weakness(b"")
    return reasons[0]


def pieces_of(value: bytes) -> Iterator[Piece]:
    """All that is secret by itself in a value: itself, its lines, members, passwords.

    Shape: none is weak (`refusal_of`), none is longer than MAX_PIECE_BYTES; some may be equal.
    """
    for text, is_encoded, known in _parts(value):
        for trimmed in _trims(text):
            is_short = len(trimmed) <= MAX_ENCODED_BYTES
            for at in range(0, len(trimmed), MAX_PIECE_BYTES):
                cut = trimmed[at : at + MAX_PIECE_BYTES]
                if len(project(cut)) >= MIN_NEEDLE_BYTES:
                    public = max(known, _public_head(cut)) if at == 0 else 0
                    yield Piece(cut, public, is_encoded and is_short)


def _public_head(text: bytes) -> int:
    """How many bytes at the head every value of this kind has."""
    found = (head.match(text) for head in _PUBLIC_HEADS)
    return max((match.end() for match in found if match), default=0)


def _trims(text: bytes) -> Iterator[bytes]:
    """Without outer white space and quotes; with its quotes as well where they do not pair."""
    trimmed = text.strip(_OUTER)
    if _weakness(trimmed) is not None:
        return
    yield trimmed
    spoken = text.strip(_WHITE)
    if spoken != trimmed and spoken[:1] != spoken[-1:]:
        yield spoken


def _weakness(text: bytes) -> str | None:
    text = project(text.strip(_OUTER))
    size = len(text)
    if size < MIN_NEEDLE_BYTES:
        return f"is shorter than {MIN_NEEDLE_BYTES} characters"
    counts = Counter(text)
    if len(counts) < MIN_DISTINCT_BYTES:
        return f"has fewer than {MIN_DISTINCT_BYTES} different characters"
    if is_common(text):
        return "is a common word"
    bits = size * math.log2(size) - sum(n * math.log2(n) for n in counts.values())
    if round(bits, 6) < MIN_ENTROPY_BITS:
        return "is too easy to guess"
    return None


def _segments(value: bytes) -> list[bytes]:
    """The value without PEM armour, which is public."""
    return [part for part in _ARMOUR.split(value) if part.strip(_OUTER)]


def _parts(value: bytes) -> Iterator[_Part]:
    if b"\\n" in value and b"\n" not in value.strip(_OUTER):
        # a multi-line value kept on one line: programs that use it print real lines
        yield from _parts(value.replace(b"\\r", b"").replace(b"\\n", b"\n"))
    for segment in _segments(value):
        yield _Part(segment, is_encoded=True)
        yield from _lines(segment)
        yield from _userinfo(segment)
    yield from _members(value)


def _lines(segment: bytes) -> Iterator[_Part]:
    lines = [line for line in segment.splitlines() if line.strip(_OUTER)]
    if len(lines) < 2:  # one line is the value itself
        return
    is_encoded = len(lines) <= _MAX_ENCODED_LINES
    for line in lines:
        setting = _SETTING.match(line)
        for text in (line, line[setting.end() :] if setting else b""):
            if len(project(text.strip(_OUTER))) >= MIN_LINE_BYTES:
                yield _Part(text, is_encoded)


def _userinfo(text: bytes) -> Iterator[_Part]:
    for found in _USERINFO.finditer(text):
        for userinfo in {found[1], unquote_to_bytes(found[1])}:
            user, _, password = userinfo.partition(b":")
            if password:
                yield _Part(password, is_encoded=True)
                yield _Part(userinfo, is_encoded=True, public=len(user) + 1)
            else:
                yield _Part(user, is_encoded=True)


def _members(value: bytes) -> Iterator[_Part]:
    if value.lstrip()[:1] not in (b"{", b"["):
        return
    try:
        waiting: list[object] = [json.loads(value)]
    except (ValueError, RecursionError):
        return
    while waiting:
        member = waiting.pop()
        if isinstance(member, dict):
            waiting.extend(cast("dict[str, object]", member).values())
        elif isinstance(member, list):
            waiting.extend(cast("list[object]", member))
        elif isinstance(member, str):
            yield from _parts(member.encode("utf-8", "surrogatepass"))
