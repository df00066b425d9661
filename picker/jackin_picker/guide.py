"""The help screen: the keys, and why some of them wait.

It refuses to know requests; opening and leaving it decides nothing.
"""

from __future__ import annotations

from typing import Final, LiteralString

from textual import events
from textual.content import Content

from .board import BoardScreen
from .text import BAR, KEY, NOTHING, QUIET, STRONG, key_line, own, row, spread

_KEYS: Final[tuple[tuple[LiteralString, LiteralString], ...]] = (
    ("Space", "tick or untick a credential;  ↑ ↓ move on to Run and Deny;  / filters"),
    ("Enter", "run the command with what is ticked"),
    ("Esc", "deny;  d denies and says why, D denies all that this capsule asks"),
    ("g", "for how long your answer holds: once, minutes, runs, always"),
    ("v", "read all of the request, nothing cut"),
    ("n", "leave it for later and look at the next one that waits"),
    (":", "every command by its name: what runs, grants, rules, light or dark …"),
    ("1-6", "the pages, where nothing is asked;  Tab goes to the next, Esc back"),
    ("q", "leave; what waits goes on waiting, what runs goes on running"),
)
_TEXT: Final[tuple[LiteralString, ...]] = (
    "A request is ready ● after 0.4 seconds without a key. Until then no key acts,",
    "so that typing meant for another window answers nothing. Enter runs only",
    "after you ticked or moved to Run. A paste or the mouse alone never decides.",
    "",
    'After "agent says" stands the agent\'s claim; all else is what the broker',
    "found. One numbered line is one argument, │ continues it. ≠ marks what",
    "differs from the last such request that you approved.",
    "",
    "A backslash marks what could not be shown as it is: \\n is a line break, \\x1b",
    "a control character, \\u{202e} an invisible or a look-alike one, \\{40 spaces} a",
    "gap, \\{120 more} text that was cut. A real backslash is doubled.",
)


def guide_lines() -> list[Content]:
    """The text, for 80 columns."""
    keys = [row(own("  "), own(key, KEY).truncate(7, pad=True), own(what)) for key, what in _KEYS]
    return [*keys, NOTHING, *(row(own("  "), own(line, QUIET)) for line in _TEXT)]


class GuideScreen(BoardScreen):
    """Any key goes back."""

    def pressed(self, event: events.Key) -> None:
        self.dismiss()

    def paint(self, width: int, height: int) -> list[Content]:
        body = guide_lines()[: height - 2]
        body += [NOTHING] * (height - 2 - len(body))
        header = spread(own("  Keys", STRONG), NOTHING, width, BAR)
        return [header, *body, key_line([(own("any key"), own("back"))], is_live=True)]
