"""Every command of the picker, found by its name.

It refuses to know what a command does. Invariant: it answers no request; what a command leads to
asks as it always does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import LiteralString

from textual import events
from textual.content import Content

from .board import BoardScreen
from .editor import LineEditor
from .listing import Entry, Listing
from .text import BAR, KEY, NOTHING, QUIET, STRONG, key_line, own, row, spread, typed

_FRAME_LINES = 5


@dataclass(frozen=True, slots=True)
class Command:
    """`key` is the one that does it without the palette, or nothing."""

    words: LiteralString
    key: LiteralString
    do: Callable[[], None]


class PaletteScreen(BoardScreen):
    """Type to find, Enter to do."""

    belongs_to_prompt = False

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self._commands = commands
        self._editor = LineEditor()
        self._listing = Listing()
        self._spots: list[tuple[int, int]] = []

    def pressed(self, event: events.Key) -> None:
        self._listing.show(self._entries())
        match event.key:
            case "escape" | "ctrl+c" | "ctrl+p":
                self.dismiss()
            case "enter":
                self._do()
            case "down" | "tab":
                self._listing.move(1)
            case "up" | "shift+tab":
                self._listing.move(-1)
            case key:
                self._editor.press(key, event.character)
                self._listing.narrow(self._editor.text)

    def pasted(self, event: events.Paste) -> None:
        self._editor.insert(event.text)
        self._listing.narrow(self._editor.text)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        for y, index in self._spots:
            if event.screen_y == y + 3:
                self._listing.go(index)
        self.repaint()

    def _do(self) -> None:
        chosen = self._listing.selected
        self.dismiss()
        for command in self._commands:
            if command.words == chosen:
                command.do()

    def _entries(self) -> list[Entry]:
        return [
            Entry(command.words, partial(_words, command), partial(_draw, command))
            for command in self._commands
        ]

    def paint(self, width: int, height: int) -> list[Content]:
        self._listing.show(self._entries())
        room = max(1, height - _FRAME_LINES)
        body, self._spots = self._listing.lines(width, room)
        body = body or [own("  no command has such a name", QUIET)]
        body += [NOTHING] * (room - len(body))
        keys = [(own("↑↓"), own("move")), (own("Enter"), own("do it")), (own("Esc"), own("back"))]
        return [
            spread(own("  Commands", STRONG), NOTHING, width, BAR),
            row(own("  : ", KEY), typed(self._editor, width - 6)),
            NOTHING,
            *body,
            NOTHING,
            key_line(keys, is_live=True),
        ]


def _words(command: Command) -> str:
    return command.words


def _draw(command: Command, width: int) -> list[Content]:
    key, words = command.key, command.words
    return [row(own(key, KEY).truncate(8, pad=True), own(words))]
