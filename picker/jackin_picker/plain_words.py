"""What a line that was typed in plain mode asks for.

It refuses to know requests and what becomes of an order. Invariants: a line with anything that is
no printable character, or with a word too many, is no order; an order that decides holds the
number that was shown with what it is about.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Verb(Enum):
    """What is to be done."""

    NOTHING = "nothing"
    UNKNOWN = "unknown"
    RUN = "run"
    DENY = "deny"
    DENY_ALL = "deny all"
    KILL = "kill"
    GRANTS = "grants"
    REVOKE = "revoke"
    REVOKE_ALL = "revoke all"
    RULES = "rules"
    CREDENTIALS = "credentials"
    HISTORY = "history"
    OUTPUT = "output"
    SILENT = "silent"
    TICK = "tick"
    UNTICK = "untick"
    TERMS = "terms"
    TERM = "term"
    READ = "read"
    AGAIN = "again"
    NEXT = "next"
    LIST = "list"
    UNLOCK = "unlock"
    HELP = "help"
    QUIT = "quit"


@dataclass(frozen=True, slots=True)
class Order:
    """A line, understood. `number` is the one that was shown, as it was typed."""

    verb: Verb
    number: str = ""
    places: tuple[int, ...] = ()
    reason: str = ""


UNKNOWN: Final = Order(Verb.UNKNOWN)
# Words of one order; the single letters are the picker's keys for the same.
_ALONE: Final = {
    "terms": Verb.TERMS,
    "g": Verb.TERMS,
    "read": Verb.READ,
    "v": Verb.READ,
    "again": Verb.AGAIN,
    "next": Verb.NEXT,
    "n": Verb.NEXT,
    "list": Verb.LIST,
    "silent": Verb.SILENT,
    "credentials": Verb.CREDENTIALS,
    "unlock": Verb.UNLOCK,
    "help": Verb.HELP,
    "?": Verb.HELP,
    "quit": Verb.QUIT,
    "q": Verb.QUIT,
}
# Pages: alone they say what there is, with a place all of one.
_PAGES: Final = {"grants": Verb.GRANTS, "rules": Verb.RULES, "history": Verb.HISTORY}
_NUMBERED: Final = {"run": Verb.RUN, "kill": Verb.KILL, "output": Verb.OUTPUT}
_PLACED: Final = {"tick": Verb.TICK, "untick": Verb.UNTICK, "term": Verb.TERM}
# More digits are no place in any list, and long to read as a number.
_DIGITS_MAX: Final = 6


def order_in(line: str) -> Order:
    """What the line asks for."""
    if not line.strip():
        return Order(Verb.NOTHING)
    if not line.isprintable():
        return UNKNOWN
    head, *rest = line.split()
    if head in _ALONE:
        return UNKNOWN if rest else Order(_ALONE[head])
    if head in _PLACED:
        places = _places(rest)
        is_one = head != "term" or len(places) == 1
        return Order(_PLACED[head], places=places) if places and is_one else UNKNOWN
    if head in _PAGES:
        is_known = len(rest) <= 1 and all(map(_is_number, rest))
        return Order(_PAGES[head], places=_places(rest)) if is_known else UNKNOWN
    if head in _NUMBERED:
        is_one = len(rest) == 1 and _is_number(rest[0])
        return Order(_NUMBERED[head], number=rest[0]) if is_one else UNKNOWN
    if head == "revoke":
        return _revocation(rest)
    return _denial(rest) if head == "deny" else UNKNOWN


def _revocation(rest: list[str]) -> Order:
    """`revoke NUMBER` and `revoke all NUMBER`."""
    verb = Verb.REVOKE_ALL if rest[:1] == ["all"] else Verb.REVOKE
    words = rest[1:] if verb is Verb.REVOKE_ALL else rest
    is_one = len(words) == 1 and _is_number(words[0])
    return Order(verb, number=words[0]) if is_one else UNKNOWN


def _denial(rest: list[str]) -> Order:
    """`deny NUMBER [REASON]` and `deny all NUMBER [REASON]`."""
    verb = Verb.DENY_ALL if rest[:1] == ["all"] else Verb.DENY
    words = rest[1:] if verb is Verb.DENY_ALL else rest
    if not words or not _is_number(words[0]):
        return UNKNOWN
    return Order(verb, number=words[0], reason=" ".join(words[1:]))


def _places(words: list[str]) -> tuple[int, ...]:
    """Numbers with spaces or commas between them, nothing where there is anything else."""
    texts = " ".join(words).replace(",", " ").split()
    return tuple(int(text) for text in texts) if all(map(_is_number, texts)) else ()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
