"""A request as one line of a list: its state, its capsule, its command, how it went.

It refuses to know which list. Invariant: the state is a word; its colour only repeats it.
Pure.
"""

from __future__ import annotations

from typing import Final, LiteralString

from textual.content import Content

from jackin_broker.operator_protocol import FINAL_STATES, RequestState, RequestView
from jackin_broker.protocol import Text

from .command import items_of
from .ends import end_state, end_tail, end_words
from .text import (
    CAREFUL,
    GOOD,
    NOTHING,
    QUIET,
    clock,
    literal,
    own,
    row,
    span,
    spread,
)

# How a state is said and how it looks; the word alone tells them apart.
_SAID: Final[dict[RequestState, tuple[LiteralString, LiteralString]]] = {
    RequestState.WAITING: ("waiting", CAREFUL),
    RequestState.APPROVED: ("approved", GOOD),
    RequestState.RESOLVING: ("resolving", GOOD),
    RequestState.RUNNING: ("running", GOOD),
}
_STATE_CELLS: Final = 11
_CAPSULE_CELLS: Final = 12
# Enough of a command to know it again; the audit has all of it.
_ITEMS_SHOWN: Final = 12
_ITEM_CHARS: Final = 40
# A look-up that takes longer than this is asking somebody: a keyring's prompt, a password manager.
SLOW_S: Final = 1.0
# Enough for any filter that somebody types.
_WORDS_CHARS: Final = 2000


def request_line(view: RequestView, width: int, *, lasted_s: float, left_s: float = 0) -> Content:
    """The request in one line of `width` cells."""
    head = row(
        _state(view).truncate(_STATE_CELLS, pad=True),
        literal(view.capsule, QUIET, limit=_CAPSULE_CELLS).truncate(_CAPSULE_CELLS, pad=True),
        own("  "),
    )
    tail = _tail(view, lasted_s, left_s)
    room = width - head.cell_length - tail.cell_length - 2
    return spread(row(head, command_line(view, room)), row(own(" "), tail, own(" ")), width)


def command_line(view: RequestView, room: int) -> Content:
    """The command in one line, for a list: cut where it is long."""
    items = items_of(view)
    parts: list[Content] = []
    for item in items[:_ITEMS_SHOWN]:
        parts += [own(" ") if parts else NOTHING, literal(item, limit=_ITEM_CHARS)]
    line = row(*parts)
    if len(items) <= _ITEMS_SHOWN and line.cell_length <= room:
        return line
    return row(line.truncate(max(0, room - 2)), own(" …", QUIET))


def words_of(view: RequestView) -> str:
    """What a filter looks for a request in."""
    ended = end_words(view).plain if view.state in FINAL_STATES else ""
    known = (view.capsule, view.state.value, view.outcome, ended)
    return " ".join(_plain(text) for text in (*known, *items_of(view)[:_ITEMS_SHOWN]))


def resolving_words(view: RequestView, lasted_s: float) -> Content:
    """What an approved request waits for, once that takes a while."""
    if view.state not in {RequestState.APPROVED, RequestState.RESOLVING} or lasted_s < SLOW_S:
        return NOTHING
    return row(own("getting its credentials, ", CAREFUL), span(lasted_s, CAREFUL))


def _state(view: RequestView) -> Content:
    if view.state in FINAL_STATES:
        return end_state(view)
    words, style = _SAID[view.state]
    return own(words, style)


def _tail(view: RequestView, lasted_s: float, left_s: float) -> Content:
    match view.state:
        case RequestState.WAITING:
            return row(clock(left_s), own(" left", QUIET))
        case RequestState.APPROVED | RequestState.RESOLVING:
            return resolving_words(view, lasted_s)
        case RequestState.RUNNING:
            return clock(lasted_s)
        case _:
            return end_tail(view)


def _plain(text: Text) -> str:
    return text[:_WORDS_CHARS] if isinstance(text, str) else ""
