"""One line of text that the operator types: a filter, a reason.

It refuses to know who reads it and what Enter means. No key of it decides anything; what a paste
brings is one line without anything invisible, for a clipboard may hold an agent's text.
Pure.
"""

from __future__ import annotations

from typing import Final

# A sentence; the protocol's own limit for a reason is longer.
LINE_MAX_CHARS: Final = 400


class LineEditor:
    """The text and its cursor."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0

    def press(self, key: str, character: str | None) -> bool:
        """Whether the key was one of an editor's."""
        match key:
            case "backspace" | "ctrl+h":
                self._cut(self.cursor - 1, self.cursor)
            case "delete":
                self._cut(self.cursor, self.cursor + 1)
            case "ctrl+u":
                self._cut(0, self.cursor)
            case "ctrl+k":
                self._cut(self.cursor, len(self.text))
            case "ctrl+w":
                self._cut(self._word_start(), self.cursor)
            case "left":
                self.cursor = max(0, self.cursor - 1)
            case "right":
                self.cursor = min(len(self.text), self.cursor + 1)
            case "home" | "ctrl+a":
                self.cursor = 0
            case "end" | "ctrl+e":
                self.cursor = len(self.text)
            case _:
                if character is None or not character.isprintable():
                    return False
                self.insert(character)
        return True

    def insert(self, text: str) -> None:
        """Typed or pasted text; what cannot be printed becomes a space."""
        line = "".join(char if char.isprintable() else " " for char in text)
        line = line[: LINE_MAX_CHARS - len(self.text)]
        self.text = self.text[: self.cursor] + line + self.text[self.cursor :]
        self.cursor += len(line)

    def _cut(self, start: int, end: int) -> None:
        start = max(0, start)
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _word_start(self) -> int:
        head = self.text[: self.cursor].rstrip(" ")
        return head.rfind(" ") + 1
