"""The help screen: the keys, and why some of them wait.

It refuses to know requests; opening and leaving it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, LiteralString

from textual import events
from textual.content import Content
from textual.screen import Screen

from .board import Board
from .text import BAR, KEY, NOTHING, QUIET, STRONG, key_line, own, row, spread

_KEYS: Final[tuple[tuple[LiteralString, LiteralString], ...]] = (
    ("Space", "tick or untick the credential under the cursor"),
    ("↑ ↓", "move through the credentials to Run and Deny"),
    ("/", "filter the credentials; what is ticked stays in sight"),
    ("Enter", "run the command with what is ticked"),
    ("Esc", "deny"),
    ("d", "deny and say why: the agent reads your words"),
    ("v", "read all of the request, nothing cut"),
    ("q", "leave; what waits goes on waiting, what runs goes on running"),
)
_TEXT: Final[tuple[LiteralString, ...]] = (
    "A request is ready ● after 0.4 seconds without a key. Until then no key acts,",
    "so that typing meant for another window answers nothing. Enter runs only after",
    "you ticked something or moved to Run. A paste or the mouse alone never decides.",
    "",
    'What stands after "agent says" is the agent\'s claim; the rest is what the',
    "broker found. One numbered line is one argument, and │ continues it.",
    "",
    "A backslash marks what could not be shown as it is: \\n is a line break,",
    "\\x1b a control character, \\u{202e} an invisible or a look-alike one,",
    "\\{40 spaces} a gap, \\{120 more} text that was cut. A real one is doubled.",
)


def guide_lines() -> list[Content]:
    """The text, for 80 columns."""
    keys = [row(own("    "), own(key, KEY).truncate(8, pad=True), own(what)) for key, what in _KEYS]
    return [NOTHING, *keys, NOTHING, *(row(own("  "), own(line, QUIET)) for line in _TEXT)]


class GuideScreen(Screen[None], inherit_bindings=False):
    """Any key goes back."""

    def compose(self) -> Iterator[Board]:
        yield Board(self._paint)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.dismiss()

    def _paint(self, width: int, height: int) -> list[Content]:
        body = guide_lines()[: height - 2]
        body += [NOTHING] * (height - 2 - len(body))
        header = spread(own("  Keys", STRONG), NOTHING, width, BAR)
        return [header, *body, key_line([(own("any key"), own("back"))], is_live=True)]
