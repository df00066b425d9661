"""Argument patterns: which argv a rule names, element by element.

It knows no rules, capsules or shells. An element of a pattern is literal but for `*`, which
stands for any bytes within that one element; nothing else is special, not `?`, not `[ ]`.
Last alone, `**` stands for the rest as long as none of it begins with `-`, and `...` for the
rest whatever it is. `\\*`, `\\\\`, `\\.` and `\\xHH` write what would be special otherwise.

Invariants: one element of the pattern meets one element of the argv; a wildcard never admits
an element that begins with `-` unless the pattern begins with `-` (callers that restrict pass
`with_options` and get the wider reading). Matching is linear, without backtracking.
Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

import msgspec

# Every rule of a configuration is compiled once; more rules than this only compile again.
_COMPILED_MAX: Final = 1024
_HEX: Final = frozenset("0123456789abcdefABCDEF")


class PatternError(ValueError):
    """A pattern that means nothing. The message says what to write instead."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index: Final = index


class Rest(Enum):
    """What may follow the elements that a pattern names."""

    NOTHING = "nothing"
    PLAIN = "**"
    ANYTHING = "..."


class Parting(Enum):
    """How an argv and a pattern part from each other."""

    OTHER = "other"
    OPTION = "option"  # a wildcard would take it, were it no option
    TOO_SHORT = "too short"
    TOO_LONG = "too long"


class Mismatch(msgspec.Struct, frozen=True):
    """The first element of an argv that a pattern does not name, and why. Zero is the command."""

    index: int
    parting: Parting


class ElementPattern(msgspec.Struct, frozen=True):
    """One element. `segments` are the literal bytes between the wildcards; one = a literal."""

    segments: tuple[bytes, ...]

    @property
    def is_literal(self) -> bool:
        return len(self.segments) == 1

    def matches(self, element: bytes, *, with_options: bool = False) -> bool:
        """Whether this pattern names that element."""
        first, last = self.segments[0], self.segments[-1]
        if self.is_literal:
            return element == first
        if element.startswith(b"-") and not (with_options or first.startswith(b"-")):
            return False
        if len(element) < len(first) + len(last):
            return False
        if not (element.startswith(first) and element.endswith(last)):
            return False
        at, end = len(first), len(element) - len(last)
        for segment in self.segments[1:-1]:
            found = element.find(segment, at, end)
            if found < 0:
                return False
            at = found + len(segment)
        return True


class ArgvPattern(msgspec.Struct, frozen=True):
    """A whole argv."""

    elements: tuple[ElementPattern, ...]
    rest: Rest

    def matches(self, argv: Sequence[bytes], *, with_options: bool = False) -> bool:
        """Whether this pattern names that argv, element by element."""
        if len(argv) < len(self.elements):
            return False
        named, rest = argv[: len(self.elements)], argv[len(self.elements) :]
        for pattern, element in zip(self.elements, named, strict=True):
            if not pattern.matches(element, with_options=with_options):
                return False
        if self.rest is Rest.NOTHING:
            return not rest
        if self.rest is Rest.ANYTHING or with_options:
            return True
        return not any(element.startswith(b"-") for element in rest)

    def mismatch(self, argv: Sequence[bytes], *, with_options: bool = False) -> Mismatch | None:
        """Where this pattern and that argv part, or None when it names it."""
        for index, pattern in enumerate(self.elements):
            if index >= len(argv):
                return Mismatch(index, Parting.TOO_SHORT)
            if not pattern.matches(argv[index], with_options=with_options):
                is_option = argv[index].startswith(b"-") and pattern.matches(
                    argv[index], with_options=True
                )
                return Mismatch(index, Parting.OPTION if is_option else Parting.OTHER)
        if self.matches(argv, with_options=with_options):
            return None
        start = len(self.elements)
        if self.rest is Rest.NOTHING:
            return Mismatch(start, Parting.TOO_LONG)
        options = (i for i in range(start, len(argv)) if argv[i].startswith(b"-"))
        return Mismatch(next(options), Parting.OPTION)


@lru_cache(maxsize=_COMPILED_MAX)
def compile_argv(texts: tuple[str, ...]) -> ArgvPattern:
    """The pattern that these texts write.

    Raises: PatternError with the index of the element at fault.
    """
    if not texts:
        raise PatternError(0, "is empty, name the command at least")
    rest = Rest.NOTHING
    if texts[-1] in (Rest.PLAIN.value, Rest.ANYTHING.value):
        rest = Rest(texts[-1])
        texts = texts[:-1]
    return ArgvPattern(tuple(_element(text, index) for index, text in enumerate(texts)), rest)


@lru_cache(maxsize=_COMPILED_MAX)
def compile_name(text: str) -> ElementPattern:
    """A glob over a plain name, such as a capsule's: `*` alone is special, no escapes."""
    return ElementPattern(tuple(part.encode() for part in text.split("*")))


def escape(element: bytes) -> str:
    """The pattern that names this element and no other; how a literal is stored."""
    text = element.decode("utf-8", "surrogateescape")
    escaped = "".join(_escape_character(character) for character in text)
    return "\\..." if escaped == "..." else escaped


def literal_of(text: str) -> bytes:
    """The bytes that `escape` wrote as this text.

    Raises: PatternError when it is a pattern, or none at all.
    """
    pattern = _element(text, 0)
    if not pattern.is_literal:
        raise PatternError(0, r"names more than one thing, a literal star is written \*")
    return pattern.segments[0]


def _escape_character(character: str) -> str:
    if character in "*\\":
        return "\\" + character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as surrogateescape keeps it
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def _element(text: str, index: int) -> ElementPattern:
    if text in (Rest.PLAIN.value, Rest.ANYTHING.value):
        raise PatternError(index, f"{text!r} has a meaning at the end alone")
    segments = [bytearray()]
    at = 0
    while at < len(text):
        character = text[at]
        if character == "*":
            segments.append(bytearray())
            at += 1
        elif character == "\\":
            size, raw = _escaped(text, at, index)
            segments[-1] += raw
            at += size
        else:
            segments[-1] += _encoded(character, index)
            at += 1
    if any(0 in segment for segment in segments):
        raise PatternError(index, "contains a NUL, which no argument can hold")
    return ElementPattern(tuple(bytes(segment) for segment in segments))


def _escaped(text: str, at: int, index: int) -> tuple[int, bytes]:
    """How many characters the escape at `at` takes, and the bytes that it writes."""
    follows = text[at + 1 : at + 2]
    if follows in ("*", "\\", "."):
        return 2, follows.encode()
    digits = text[at + 2 : at + 4]
    if follows == "x" and len(digits) == 2 and set(digits) <= _HEX:
        return 4, bytes.fromhex(digits)
    raise PatternError(index, r"a backslash is written \\, a literal star \*, a byte \xHH")


def _encoded(character: str, index: int) -> bytes:
    try:
        return character.encode()
    except UnicodeEncodeError:
        raise PatternError(index, "is not Unicode text, write such bytes as \\xHH") from None
