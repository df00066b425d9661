"""The command as lines, one argument an item, in the room there is.

It refuses to know the rest of the prompt. Invariants: an argument's text never leaves its own
column, so no folding can fake another item; what is not shown is counted.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from textual.content import Content

from jackin_broker.display import show
from jackin_broker.operator_protocol import RequestView
from jackin_broker.protocol import Text

from .text import CAREFUL, PLAIN, QUIET, STRONG, fitted, is_cut_in, number, own, row

# Longer texts are not read at a glance; the same number in every size of terminal.
GLANCE_CHARS: Final = 400
# No terminal shows more items at once.
GLANCE_ITEMS: Final = 200


@dataclass(frozen=True, slots=True)
class CommandLines:
    """The lines; `is_cut`: the text of an item among them is clipped."""

    lines: tuple[Content, ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Legibility:
    """Whether the command can be taken in at a glance, in a terminal of any size."""

    is_literal: bool
    is_short: bool

    @property
    def is_clear(self) -> bool:
        return self.is_literal and self.is_short


def items_of(view: RequestView) -> tuple[Text, ...]:
    """Argument zero as the agent wrote it, then the arguments."""
    return (view.command, *view.args)


def legibility_of(view: RequestView) -> Legibility:
    """Of everything that says what would run, and where."""
    texts = (*items_of(view)[:GLANCE_ITEMS], view.cwd, view.binary_path)
    shown = [show(text, limit=GLANCE_CHARS) for text in texts]
    return Legibility(
        is_literal=not any(each.escaped or each.lookalike for each in shown),
        is_short=not any(each.clipped for each in shown) and len(view.args) < GLANCE_ITEMS,
    )


def command_lines(view: RequestView, width: int, height: int) -> CommandLines:
    """The command in at most `height` lines (three at least) of `width` cells."""
    items = items_of(view)
    index_width = len(str(len(items) - 1))
    room = width - index_width - 2
    shown_count = len(items) if len(items) <= height else height - 1
    spare = height - shown_count if shown_count == len(items) else 0
    lines: list[Content] = []
    is_cut = False
    for index, item in enumerate(items[:shown_count]):
        style = STRONG if index == 0 else PLAIN
        folded = fitted(item, room, 1 + spare, style)
        spare -= len(folded) - 1
        is_cut = is_cut or is_cut_in(item, room, len(folded))
        lines += _item(index, index_width, folded)
    hidden_count = len(items) - shown_count
    if hidden_count:
        lines.append(_more(hidden_count, index_width))
    return CommandLines(tuple(lines), is_cut)


def _item(index: int, index_width: int, folded: list[Content]) -> list[Content]:
    head = row(number(index, QUIET).right(index_width), own("  "))
    rest = row(own("│", QUIET).right(index_width), own("  "))
    return [row(rest if turn else head, line) for turn, line in enumerate(folded)]


def _more(hidden_count: int, index_width: int) -> Content:
    noun = own(" more argument", CAREFUL) if hidden_count == 1 else own(" more arguments", CAREFUL)
    mark = row(own("⋮", CAREFUL).right(index_width), own("  "))
    return row(mark, number(hidden_count, CAREFUL), noun, own(": v shows all", CAREFUL))
