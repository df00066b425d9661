"""Something long to scroll through, nothing of it clipped: a request, a grant, a rule.

It refuses to know decisions: no key of this screen is one. Invariant: lines are made as they are
reached, so that a megabyte opens as fast as a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, LiteralString

from textual import events
from textual.content import Content

from jackin_broker.operator_protocol import RequestView

from .board import BoardScreen
from .text import (
    BAR,
    CAREFUL,
    NOTHING,
    QUIET,
    STRONG,
    flush,
    key_line,
    number,
    own,
    row,
    spread,
)
from .whole import request_lines

_FRAME_LINES: Final = 2
# "End" goes to the end of whatever fits a message.
_LINES_MAX: Final = 10_000_000


def read_request(view: RequestView) -> ReaderScreen:
    """All of a request, to read."""
    return ReaderScreen("All of the request", partial(request_lines, view))


class ReaderScreen(BoardScreen):
    """Arrows and pages scroll, Esc goes back."""

    def __init__(self, title: LiteralString, lines: Callable[[int], Iterator[Content]]) -> None:
        """`lines` makes them for a width, as they are reached."""
        super().__init__()
        self._title: LiteralString = title
        self._make = lines
        self._top = 0
        self._lines: list[Content] = []
        self._more: Iterator[Content] = iter(())
        self._width = 0

    def pressed(self, event: events.Key) -> None:
        page = max(1, self.size.height - _FRAME_LINES - 1)
        match event.key:
            case "escape" | "v" | "q" | "enter" | "ctrl+c":
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
                self._reach(_LINES_MAX)
                self._scroll(len(self._lines))
            case _:
                pass

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll(3)
        self.repaint()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll(-3)
        self.repaint()

    def _scroll(self, step: int) -> None:
        room = self.size.height - _FRAME_LINES
        self._reach(self._top + step + room)
        self._top = max(0, min(self._top + step, len(self._lines) - room))

    def _reach(self, count: int) -> bool:
        """Have `count` lines if there are so many. True when there may be more."""
        self._lines += islice(self._more, max(0, count - len(self._lines)))
        return len(self._lines) >= count

    def paint(self, width: int, height: int) -> list[Content]:
        if width != self._width:
            self._width, self._lines = width, []
            self._more = self._make(width)
        room = max(1, height - _FRAME_LINES)
        has_more = self._reach(self._top + room + 1)
        body = self._lines[self._top : self._top + room]
        body += [NOTHING] * (room - len(body))
        keys = [
            (own("↑↓ PgUp PgDn Home End"), own("scroll")),
            (own("Esc"), own("back")),
        ]
        return [self._header(width, has_more), *body, key_line(keys, is_live=True)]

    def _header(self, width: int, has_more: bool) -> Content:
        title = self._title
        left = row(own("  "), own(title, STRONG), own("  nothing is decided here", QUIET))
        where: LiteralString = "more below  " if has_more else "the end  "
        right = row(number(self._top + 1), own("  "), own(where, CAREFUL if has_more else QUIET))
        return flush(spread(left, row(own("line ", QUIET), right), width, BAR), width)
