"""The widget that all screens consist of, and the screen that consists of it alone.

It refuses to know what the lines say. Invariants: a line is never wrapped and never parsed; lines
are made at most once for all that happened since they were made, and only for the screen on top;
of them the terminal gets those that are others than before; a key goes to the screen that is on
top and to nothing behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from .text import NOTHING, Strip, flush, is_same, stack, strip_of

# Lines for a width and a height.
Painter = Callable[[int, int], Sequence[Content]]
# News are drawn this often at most, so that the keys between them are not kept waiting. Faster
# than anybody reads a list that moves.
NEWS_S: Final = 0.1
# Whatever else wrote on the terminal is painted over after this long at most.
WHOLE_S: Final = 5.0


class Board(Widget, inherit_bindings=False):
    """A full screen of lines from a painter."""

    DEFAULT_CSS = """
    Board { width: 100%; height: 100%; text-wrap: nowrap; text-overflow: clip; }
    """
    ALLOW_SELECT = False

    def __init__(self, painter: Painter) -> None:
        super().__init__()
        self._painter = painter
        self._lines: list[Content] = []
        self._strips: dict[int, Strip] = {}  # of the lines that were drawn
        self._painted = Size(0, 0)
        self._painted_at_s = -NEWS_S
        self._is_stale = True
        self._news: Timer | None = None

    def on_mount(self) -> None:
        self.set_interval(WHOLE_S, self.refresh)

    def repaint(self) -> None:
        """Make the lines again, once for all that is asked for before the next look."""
        self._is_stale = True
        self.check_idle()

    def repaint_soon(self) -> None:
        """As `repaint`, but within NEWS_S, once for all that comes until then."""
        left_s = self._painted_at_s + NEWS_S - time.monotonic()
        if left_s <= 0:
            self.repaint()
        elif self._news is None:
            self._news = self.set_timer(left_s, self.repaint)

    def on_idle(self) -> None:
        """Have the lines drawn that changed; Textual's own handler comes next."""
        if self._is_stale and self.size and self.screen.is_current:
            changed = self._paint()
            if changed:
                self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def _paint(self) -> list[int]:
        """Make the lines; which of them are others now."""
        before, self._painted, self._is_stale = self._lines, self.size, False
        self._painted_at_s = time.monotonic()
        if self._news is not None:
            self._news.stop()
            self._news = None
        width, height = self.size
        self._lines = [flush(line, width) for line in self._painter(width, height)]
        pairs = enumerate(zip_longest(before, self._lines, fillvalue=NOTHING))
        changed = [y for y, (was, now) in pairs if not is_same(was, now)]
        for y in changed:
            self._strips.pop(y, None)
        return changed

    def recolour(self) -> None:
        """The same lines in the colours that hold now."""
        self._strips.clear()
        self.refresh()

    def render(self) -> Content:
        """What is drawn."""
        return stack(self._lines)

    def render_line(self, y: int) -> Strip:
        if self._painted != self.size:
            self._paint()
        if y not in self._strips:
            line = self._lines[y] if y < len(self._lines) else NOTHING
            self._strips[y] = strip_of(line, self)
        return self._strips[y]


class BoardScreen(Screen[None], inherit_bindings=False):
    """A screen of lines. `belongs_to_prompt`: it makes no sense without the one below it."""

    belongs_to_prompt = True

    def __init__(self) -> None:
        super().__init__()
        self.board = Board(self.paint)

    def compose(self) -> Iterator[Board]:
        yield self.board

    def repaint(self) -> None:
        """Ask for the lines again."""
        self.board.repaint()

    def repaint_soon(self) -> None:
        """Ask for the lines again, for news that no key waits for."""
        self.board.repaint_soon()

    def on_screen_resume(self) -> None:
        """Out of sight nothing was made."""
        self.repaint()

    def paint(self, width: int, height: int) -> Sequence[Content]:
        """The lines of this screen."""
        return ()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.pressed(event)
        self.repaint()

    def pressed(self, event: events.Key) -> None:
        """A key for this screen."""

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.pasted(event)
        self.repaint()

    def pasted(self, event: events.Paste) -> None:
        """Pasted text for this screen."""
