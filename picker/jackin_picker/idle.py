"""The screen between prompts as lines: what runs, what ended, what the broker warns of.

It refuses to know keys and the connection. Nothing can be decided here.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from textual.content import Content

from jackin_broker.operator_protocol import RequestView

from .glimpse import request_line
from .tabs import Page, tab_bar
from .text import (
    CAREFUL,
    LABEL,
    NOTHING,
    QUIET,
    STRONG,
    fitted,
    flush,
    key_line,
    own,
    row,
)

_KEYS: Final = [
    (own("1-6"), own("pages")),
    (own(":"), own("commands")),
    (own("?"), own("help")),
    (own("q"), own("quit")),
]


@dataclass(frozen=True, slots=True)
class Idle:
    """All that the screen depends on. `trouble`: why there is no connection, or nothing."""

    under_way: list[RequestView]
    recent: list[RequestView]
    notices: tuple[str, ...]
    note: Content
    trouble: str
    has_broker: bool
    lasted_s: Callable[[RequestView], float]


def idle_sheet(idle: Idle, width: int, height: int) -> list[Content]:
    """The screen in exactly `height` lines of `width` cells."""
    bar, _ = tab_bar(Page.DESK, width, waiting=0, has_broker=idle.has_broker)
    lines = [bar, NOTHING, *_headline(idle, width), NOTHING]
    for notice in idle.notices:
        folded = fitted(notice, width - 6, 3, at_words=True)
        lines += [row(own("  ! ", CAREFUL), folded[0]), *(row(own("    "), x) for x in folded[1:])]
    if idle.notices:
        lines.append(NOTHING)
    lines += _table(own("  Under way", LABEL), idle, idle.under_way, width)
    lines += _table(own("  Ended", LABEL), idle, idle.recent, width)
    room = height - 2
    lines = [*lines[:room], *[NOTHING] * (room - len(lines))]
    lines.append(row(own("  "), idle.note))
    lines.append(key_line(_KEYS, is_live=True))
    return [flush(line, width) for line in lines][:height]


def _headline(idle: Idle, width: int) -> list[Content]:
    if idle.trouble:
        why = [row(own("  "), line) for line in fitted(idle.trouble, width - 4, 3, QUIET)]
        return [
            own("  The broker is not there.", STRONG),
            *why,
            own("  Trying again every few seconds. Start it with: jackin-broker serve", QUIET),
        ]
    if not idle.has_broker:
        return [own("  Connecting to the broker …", QUIET)]
    return [
        own("  Nothing waits for an answer.", STRONG),
        own("  The next request appears here by itself.", QUIET),
    ]


def _table(title: Content, idle: Idle, views: list[RequestView], width: int) -> list[Content]:
    if not views:
        return []
    lines = [request_line(view, width - 4, lasted_s=idle.lasted_s(view)) for view in views]
    return [title, *(row(own("  "), line) for line in lines), NOTHING]
