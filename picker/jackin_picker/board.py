"""The widget that all screens consist of: finished lines, drawn as they are.

It refuses to know what they say. Invariant: a line is never wrapped and never parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.content import Content
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
