"""The whole request, to scroll through: nothing in it is clipped.

It refuses to know decisions: no key of this screen is one. Invariants: every line of the agent's
text stands right of the gutter; lines are made as they are reached, so that a megabyte opens as
fast as a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, LiteralString

from textual import events
from textual.content import Content
from textual.screen import Screen

from jackin_broker.display import show_lines
from jackin_broker.operator_protocol import RequestView
from jackin_broker.protocol import StdinKind, Text

from .board import Board
from .command import items_of
from .facts import facts_of, notices_of
from .text import (
    BAR,
    CAREFUL,
    LABEL,
    NOTHING,
    QUIET,
    STRONG,
    drawn,
    flush,
    key_line,
    literal,
    number,
    own,
    row,
    spread,
)

# No text that fits a message has more lines than this; `facts_of` folds to a depth.
DEPTH_WHOLE: Final = 100_000
_FRAME_LINES: Final = 2


def request_lines(view: RequestView, width: int) -> Iterator[Content]:
    """Every line that there is to read about the request."""
    yield NOTHING
    items = items_of(view)
    for index, item in enumerate(items):
        yield from _numbered(index, len(str(len(items) - 1)), item, width)
    yield NOTHING
    for notice in notices_of(view, width - 4, depth=DEPTH_WHOLE):
        yield row(own("  "), notice)
    for fact in facts_of(view, width - 16, depth=DEPTH_WHOLE):
        for turn, line in enumerate(fact.lines):
            label = own("") if turn else own(fact.label, LABEL)
            yield row(own("  "), label.truncate(13, pad=True), line)
    yield from _digests(view, width)
    if view.stdin.kind is StdinKind.CLOSED and view.stdin.preview:
        yield NOTHING
        yield own("  What it will read on stdin, from the start:", LABEL)
        yield from _guttered(view.stdin.preview, own("  │ ", QUIET), width)
    for binding in view.bindings:
        yield NOTHING
        yield row(own("  credential ", LABEL), literal(binding.name, STRONG))
        for said in (binding.label, binding.source, binding.delivery, *binding.warnings):
            if said:
                yield from _guttered(said, own("    "), width)
    yield NOTHING


def _digests(view: RequestView, width: int) -> Iterator[Content]:
    if view.stdin.sha256:
        yield row(own("  stdin sha256 ", LABEL), literal(view.stdin.sha256, QUIET, limit=64))
    for file in view.files:
        yield row(own("  file sha256  ", LABEL), literal(file.sha256, QUIET, limit=64))


def _numbered(index: int, index_width: int, item: Text, width: int) -> Iterator[Content]:
    gutter = row(own("  "), own("│", QUIET).right(index_width), own("  "))
    head = row(own("  "), number(index, QUIET).right(index_width), own("  "))
    for turn, line in enumerate(_guttered(item, NOTHING, width - gutter.cell_length)):
        yield row(gutter if turn else head, line)


def _guttered(text: Text | bytes, gutter: Content, width: int) -> Iterator[Content]:
    room = width - gutter.cell_length - 1
    rest = NOTHING
    for shown in show_lines(text):
        *whole, rest = row(rest, drawn(shown)).fold(room)
        yield from (row(gutter, line) for line in whole)
        if shown.ends_line:
            yield row(gutter, rest)
            rest = NOTHING
    if rest:
        yield row(gutter, rest)


class ReaderScreen(Screen[None], inherit_bindings=False):
    """Arrows and pages scroll, Esc goes back to the prompt."""

    def __init__(self, view: RequestView) -> None:
        super().__init__()
        self._view = view
        self._top = 0
        self._lines: list[Content] = []
        self._more: Iterator[Content] = iter(())
        self._width = 0
        self._board = Board(self._paint)

    def compose(self) -> Iterator[Board]:
        yield self._board

    def on_key(self, event: events.Key) -> None:
        event.stop()
        page = max(1, self.size.height - _FRAME_LINES - 1)
        match event.key:
            case "escape" | "v" | "q" | "enter":
                self.dismiss()
            case "down" | "j":
                self._scroll(1)
            case "up" | "k":
                self._scroll(-1)
            case "pagedown" | "space":
                self._scroll(page)
            case "pageup":
                self._scroll(-page)
            case "home":
                self._scroll(-self._top)
            case "end":
                self._reach(DEPTH_WHOLE * 100)
                self._scroll(len(self._lines))
            case _:
                pass

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll(-3)

    def _scroll(self, step: int) -> None:
        room = self.size.height - _FRAME_LINES
        self._reach(self._top + step + room)
        self._top = max(0, min(self._top + step, len(self._lines) - room))
        self._board.refresh()

    def _reach(self, count: int) -> bool:
        """Have `count` lines if there are so many. True when there may be more."""
        self._lines += islice(self._more, max(0, count - len(self._lines)))
        return len(self._lines) >= count

    def _paint(self, width: int, height: int) -> list[Content]:
        if width != self._width:
            self._width, self._lines = width, []
            self._more = request_lines(self._view, width)
        room = max(1, height - _FRAME_LINES)
        has_more = self._reach(self._top + room + 1)
        body = self._lines[self._top : self._top + room]
        body += [NOTHING] * (room - len(body))
        keys = [
            (own("↑↓ PgUp PgDn Home End"), own("scroll")),
            (own("Esc"), own("back to the request")),
        ]
        return [self._header(width, has_more), *body, key_line(keys, is_live=True)]

    def _header(self, width: int, has_more: bool) -> Content:
        left = row(own("  All of the request", STRONG), own("  nothing is decided here", QUIET))
        where: LiteralString = "more below  " if has_more else "the end  "
        right = row(number(self._top + 1), own("  "), own(where, CAREFUL if has_more else QUIET))
        return flush(spread(left, row(own("line ", QUIET), right), width, BAR), width)
