"""What stands around a page's list, as lines: title, banner, what is typed, the keys.

It refuses to know what is listed. Invariant: what does not fit is counted.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, LiteralString

from textual.content import Content

from ..editor import LineEditor
from ..listing import Listing
from ..text import (
    CAREFUL,
    KEY,
    NOTHING,
    QUIET,
    STRONG,
    key_line,
    literal,
    number,
    own,
    row,
    span,
    spread,
    typed,
)

# What takes longer says so.
SLOW_S: Final = 1.0
KeyPair = tuple[Content, Content]
_EVERYWHERE: Final[tuple[KeyPair, ...]] = (
    (own("/"), own("filter")),
    (own("Esc"), own("back")),
    (own(":"), own("commands")),
    (own("q"), own("quit")),
)
_TYPING: Final[tuple[KeyPair, ...]] = ((own("Enter"), own("take it")), (own("Esc"), own("back")))


@dataclass(frozen=True, slots=True)
class Question:
    """What the operator is typing, and what for."""

    asked: LiteralString
    editor: LineEditor


def title_line(name: LiteralString, words: LiteralString, listing: Listing, width: int) -> Content:
    """The page's name, what it is for, how many entries it has."""
    left = row(own("  "), own(name, STRONG), own("  "), own(words, QUIET))
    seen, total = listing.seen, listing.total
    right = row(number(seen, STRONG), own("  ")) if total else NOTHING
    if seen != total:
        right = row(number(seen, STRONG), own(" of ", QUIET), number(total), own("  "))
    return spread(left, right, width)


def banner_line(waiting: int) -> Content:
    """What a page says while a request waits."""
    if not waiting:
        return NOTHING
    return own("  ! A request waits for your answer: Esc shows it", CAREFUL)


def status_line(
    question: Question | None, note: Content, busy_s: float, wish: str, width: int
) -> Content:
    """What is typed, else what was said, else what takes long, else the filter."""
    if question is not None:
        label = question.asked
        asked = row(own("  "), own(label, STRONG), own(": ", STRONG))
        return row(asked, typed(question.editor, width - asked.cell_length - 1))
    if note:
        return row(own("  "), note)
    if busy_s >= SLOW_S:
        return row(own("  … the broker works on it, ", CAREFUL), span(busy_s, CAREFUL))
    if wish:
        filtered = literal(wish, limit=max(10, width - 30))
        return row(own("  / ", KEY), filtered, own("  Esc shows all", QUIET))
    return NOTHING


def keys_line(keys: Sequence[KeyPair], width: int, *, is_typing: bool) -> Content:
    """The page's keys, then every page's, as many as fit."""
    pairs = [*_TYPING] if is_typing else [*keys, *_EVERYWHERE]
    while (line := key_line(pairs, is_live=True)).cell_length > width:
        pairs.pop()
    return line


def fitting(lines: list[Content], room: int) -> list[Content]:
    """The lines, or as many as there is room for and how many more there are."""
    if len(lines) <= room:
        return lines
    kept = lines[: max(0, room - 1)]
    more = len(lines) - len(kept)
    words = own(" more lines below: Enter reads all", QUIET)
    return [*kept, row(own("! ", CAREFUL), number(more, CAREFUL), words)]
