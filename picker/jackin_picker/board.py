"""The widget that all screens consist of, and the screen that consists of it alone.

It refuses to know what the lines say. Invariants: a line is never wrapped and never parsed; a key
goes to the screen that is on top and to nothing behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from .text import flush, stack

# Lines for a width and a height.
Painter = Callable[[int, int], Sequence[Content]]


class Board(Widget, inherit_bindings=False):
    """A full screen of lines from a painter, asked again at every refresh."""

    DEFAULT_CSS = """
    Board { width: 100%; height: 100%; text-wrap: nowrap; text-overflow: clip; }
    """
    ALLOW_SELECT = False

    def __init__(self, painter: Painter) -> None:
        super().__init__()
        self._painter = painter

    def render(self) -> Content:
        width, height = self.size.width, self.size.height
        return stack(flush(line, width) for line in self._painter(width, height))


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
        self.board.refresh()

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
