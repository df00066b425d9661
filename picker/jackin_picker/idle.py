"""The screen between prompts as lines: what runs, what ended, what the broker warns of.

It refuses to know keys and the connection. Nothing can be decided here.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, LiteralString

from textual.content import Content

from jackin_broker.operator_protocol import RequestState, RequestView

from .command import items_of
from .text import (
    BAD,
    BAR,
    CAREFUL,
    GOOD,
    LABEL,
    NOTHING,
    PLAIN,
    QUIET,
    STRONG,
    fitted,
    flush,
    key_line,
    literal,
    number,
    own,
    row,
    spread,
)

# How a state is said and how it looks; the word alone tells them apart.
_SAID: Final[dict[RequestState, tuple[LiteralString, LiteralString]]] = {
    RequestState.WAITING: ("waiting", CAREFUL),
    RequestState.APPROVED: ("approved", GOOD),
    RequestState.RESOLVING: ("resolving", GOOD),
    RequestState.RUNNING: ("running", GOOD),
    RequestState.DONE: ("done", PLAIN),
    RequestState.DENIED: ("denied", BAD),
    RequestState.EXPIRED: ("expired", CAREFUL),
    RequestState.CANCELLED: ("cancelled", QUIET),
}
_STATE_CELLS: Final = 11
_CAPSULE_CELLS: Final = 12
# Enough of a command to know it again; the audit has all of it.
_ITEMS_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Idle:
    """All that the screen depends on. `trouble`: why there is no connection, or nothing."""

    under_way: list[RequestView]
    recent: list[RequestView]
    notices: tuple[str, ...]
    note: Content
    trouble: str
    is_attached: bool


def idle_sheet(idle: Idle, width: int, height: int) -> list[Content]:
    """The screen in exactly `height` lines of `width` cells."""
    lines = [_header(idle, width), NOTHING, *_headline(idle, width), NOTHING]
    for notice in idle.notices:
        folded = fitted(notice, width - 6, 3)
        lines += [row(own("  ! ", CAREFUL), folded[0]), *(row(own("    "), x) for x in folded[1:])]
    if idle.notices:
        lines.append(NOTHING)
    lines += _table(own("  Under way", LABEL), idle.under_way, width)
    lines += _table(own("  Ended", LABEL), idle.recent, width)
    room = height - 2
    lines = [*lines[:room], *[NOTHING] * (room - len(lines))]
    lines.append(row(own("  "), idle.note))
    lines.append(key_line([(own("?"), own("help")), (own("q"), own("quit"))], is_live=True))
    return [flush(line, width) for line in lines][:height]


def _header(idle: Idle, width: int) -> Content:
    state = own("attached  ", GOOD) if idle.is_attached else own("not connected  ", BAD)
    return spread(own("  jackin-exec", STRONG), state, width, BAR)


def _headline(idle: Idle, width: int) -> list[Content]:
    if idle.trouble:
        why = [row(own("  "), line) for line in fitted(idle.trouble, width - 4, 3, QUIET)]
        return [
            own("  The broker is not there.", STRONG),
            *why,
            own("  Trying again every few seconds. Start it with: jackin-broker serve", QUIET),
        ]
    if not idle.is_attached:
        return [own("  Connecting to the broker …", QUIET)]
    return [
        own("  Nothing waits for an answer.", STRONG),
        own("  The next request appears here by itself.", QUIET),
    ]


def _table(title: Content, views: list[RequestView], width: int) -> list[Content]:
    if not views:
        return []
    return [title, *(_entry(view, width) for view in views), NOTHING]


def _entry(view: RequestView, width: int) -> Content:
    words, style = _SAID[view.state]
    head = row(
        own("  "),
        own(words, style).truncate(_STATE_CELLS, pad=True),
        literal(view.capsule, QUIET, limit=_CAPSULE_CELLS).truncate(_CAPSULE_CELLS, pad=True),
        own("  "),
    )
    tail = _tail(view)
    room = width - head.cell_length - tail.cell_length - 4
    return spread(row(head, _glimpse(view, room)), row(tail, own("  ")), width)


def _tail(view: RequestView) -> Content:
    if view.state is RequestState.DONE and view.exit_code is not None:
        style = QUIET if view.exit_code == 0 else CAREFUL
        return row(own("exit status ", style), number(view.exit_code, style))
    return literal(view.outcome, QUIET, limit=28) if view.outcome else NOTHING


def _glimpse(view: RequestView, room: int) -> Content:
    items = items_of(view)
    parts: list[Content] = []
    for item in items[:_ITEMS_SHOWN]:
        parts += [own(" ") if parts else NOTHING, literal(item, limit=40)]
    line = row(*parts)
    if len(items) <= _ITEMS_SHOWN and line.cell_length <= room:
        return line
    return row(line.truncate(max(0, room - 2)), own(" …", QUIET))
