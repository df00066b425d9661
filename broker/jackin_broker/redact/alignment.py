"""Base64: what of a value can be seen in the base64 of any text that holds it.

Pure. Where the value begins within a group of three bytes is unknown, so there are three
alignments. Characters that encode bits of the value alone are the core, the needle; those at its
two ends that share bits with a neighbour are classes of possible characters, masked with it.
"""

from __future__ import annotations

import string
from base64 import b64encode
from dataclasses import dataclass
from typing import Final

_GROUP_BYTES: Final = 3
_CHAR_BITS: Final = 6
_LETTERS: Final = (string.ascii_uppercase + string.ascii_lowercase + string.digits).encode()
_ALPHABETS: Final = (_LETTERS + b"+/", _LETTERS + b"-_")


@dataclass(frozen=True, slots=True, repr=False)
class Core:
    """The sure characters, which ones may stand before and after them, where it came from."""

    text: bytes
    lead: bytes
    trail: bytes
    before: int

    def __repr__(self) -> str:
        return f"<base64 core of {len(self.text)} characters>"


def cores(value: bytes) -> list[Core]:
    """The core of each alignment in each alphabet; equal ones once."""
    found: dict[bytes, Core] = {}
    for before in range(_GROUP_BYTES):
        first, size = _first(before), core_length(len(value), before)
        for alphabet in _ALPHABETS:
            encoded = b64encode(bytes(before) + value, alphabet[62:])
            text = encoded[first : first + size]
            lead, trail = _lead(value, before, alphabet), _trail(value, before, alphabet)
            if (same := found.get(text)) is not None:
                # the sure characters may agree where those beside them do not
                lead, trail = _union(same.lead, lead), _union(same.trail, trail)
            found[text] = Core(text, lead, trail, before)
    return list(found.values())


def core_length(value_bytes: int, before: int) -> int:
    """How many characters encode bits of so many bytes alone, with `before` bytes in front."""
    return max(0, 8 * (before + value_bytes) // _CHAR_BITS - _first(before))


def _first(before: int) -> int:
    return -(-8 * before // _CHAR_BITS)


def _lead(value: bytes, before: int, alphabet: bytes) -> bytes:
    """The characters whose last bits are the value's first."""
    known_bits = -8 * before % _CHAR_BITS
    if not known_bits:
        return b""
    known = value[0] >> (8 - known_bits)
    return bytes(alphabet[other << known_bits | known] for other in range(64 >> known_bits))


def _trail(value: bytes, before: int, alphabet: bytes) -> bytes:
    """The characters whose first bits are the value's last."""
    known_bits = 8 * (before + len(value)) % _CHAR_BITS
    if not known_bits:
        return b""
    free_bits = _CHAR_BITS - known_bits
    known = value[-1] & ((1 << known_bits) - 1)
    return bytes(alphabet[known << free_bits | other] for other in range(1 << free_bits))


def _union(one: bytes, other: bytes) -> bytes:
    return bytes(sorted({*one, *other}))
