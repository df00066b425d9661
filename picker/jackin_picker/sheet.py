"""The prompt as lines: one request, the choices made so far and the guard's state, for one size.

It refuses to know keys, clocks and widgets. Invariants: every line has exactly the sheet's width;
header, credentials, *Run*, *Deny* and the keys that work are always there; the command gets the
room that is left, and what of it is not shown is counted; text of the agent never stands in the
margin or in the column of the labels.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from textual.content import Content

from jackin_broker.operator_protocol import GrantOffer, RequestView

from .choices import Choices, Place
from .command import Legibility, command_lines
from .credentials import button_line, credential_lines
from .editor import LineEditor
from .facts import LABEL_CELLS, fact_lines, facts_of, notices_of
from .terms import term_words
from .text import (
    BAR,
    CAREFUL,
    CURSOR,
    GOOD,
    LABEL,
    NOTHING,
    QUIET,
    STRONG,
    clock,
    fitted,
    flush,
    key_line,
    number,
    own,
    row,
    rule,
    spread,
    typed,
)

# Below this the prompt would have to leave out what an operator must see; DESIGN §7 promises
# 80×24.
WIDTH_MIN: Final = 60
HEIGHT_MIN: Final = 20
# Longer lines are hard to follow; a wider terminal gets a wider margin at the right.
WIDTH_MAX: Final = 132
# Header, rule, status and keys.
_FRAME_LINES: Final = 4
# With these the header fits 80 columns, a thousand requests waiting.
_NAME_CELLS: Final = 18
_KIND_CELLS: Final = 8
_MARGIN: Final = 2
# The command's own share before anything else gets a second line.
_COMMAND_LINES_MIN: Final = 4
# With fewer credentials a filter only takes room among the keys; it works all the same.
FILTER_LISTED_FROM: Final = 5
_DEPTHS: Final = (4, 3, 2, 1)


CLEAR: Final = Legibility(is_literal=True, is_short=True)


@dataclass(frozen=True, slots=True)
class Spot:
    """Something on the sheet that a click can move the cursor to."""

    place: Place
    row: int
    x: range
    y: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that the sheet depends on. `sweeping`: how many a denial of all would deny."""

    view: RequestView
    choices: Choices
    waiting: int
    expires_in_s: float
    legibility: Legibility = CLEAR
    is_armed: bool = False
    may_run: bool = False
    note: Content = NOTHING
    filtering: LineEditor | None = None
    explaining: LineEditor | None = None
    sweeping: int = 0
    offer: GrantOffer | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """The lines and where a click goes. `is_complete`: nothing of the request was left out."""

    lines: tuple[Content, ...]
    spots: tuple[Spot, ...] = ()
    can_decide: bool = True


def prompt_sheet(prompt: Prompt, width: int, height: int) -> Sheet:
    """The prompt in exactly `height` lines of `width` cells."""
    if width < WIDTH_MIN or height < HEIGHT_MIN:
        return _too_small(width, height)
    wide = min(width, WIDTH_MAX)
    room = height - _FRAME_LINES
    rows, list_spots = credential_lines(
        prompt.choices, prompt.filtering, wide, room // 3, _holds(prompt)
    )
    buttons, button_spots = button_line(
        prompt.choices, may_run=prompt.may_run, denies_on=_denies_on(prompt)
    )
    upper = _upper(prompt, wide, room - len(rows) - 1)
    spare = room - len(rows) - 1 - len(upper)
    gap = [NOTHING] if spare > 0 else []
    lines = [*upper, rule(width), *rows, *gap, buttons]
    first_row = 1 + len(upper) + 1
    spots = [Spot(Place.ROW, index, range(wide), first_row + y) for y, index in list_spots]
    spots += [Spot(place, 0, x, len(lines)) for place, x in button_spots]
    lines += [NOTHING] * (height - 3 - len(lines))
    lines = [_header(prompt, width), *lines, _status(prompt, wide), _keys(prompt, wide)]
    return Sheet(tuple(flush(line, width) for line in lines), tuple(spots))


def _too_small(width: int, height: int) -> Sheet:
    words = [
        own("A request waits for you.", STRONG),
        own("This terminal is too small to show it whole:", QUIET),
        row(
            own("it takes ", QUIET),
            number(WIDTH_MIN),
            own(" columns and ", QUIET),
            number(HEIGHT_MIN),
            own(" rows.", QUIET),
        ),
        own("Nothing can be decided here until then.", QUIET),
    ]
    lines = [*words, *[NOTHING] * height][:height]
    return Sheet(tuple(flush(line, width) for line in lines), can_decide=False)


def _header(prompt: Prompt, width: int) -> Content:
    view = prompt.view
    left = row(
        own("  "),
        fitted(view.capsule, _NAME_CELLS, 1, STRONG)[0],
        own("  "),
        fitted(view.capsule_kind, _KIND_CELLS, 1, QUIET)[0],
        own("  asks to run"),
    )
    right = row(
        number(prompt.waiting, STRONG),
        own(" waiting", QUIET),
        own("   answer within ", QUIET),
        clock(prompt.expires_in_s, STRONG),
        own("  "),
    )
    return spread(left, right, width, BAR)


def _upper(prompt: Prompt, width: int, height: int) -> list[Content]:
    """Command, notices and facts in at most `height` lines, with gaps where there is room."""
    view, text_width = prompt.view, width - _MARGIN - LABEL_CELLS - 1
    wish = len(command_lines(view, text_width, height).lines) + 1
    told: list[Content] = []
    for depth in _DEPTHS:
        told = _margined(notices_of(view, width - 2 * _MARGIN, depth=depth))
        told += _margined(fact_lines(facts_of(view, text_width, depth=depth)))
        if len(told) + min(wish, height // 2) <= height:
            break
    told = _shortened(told, height - _COMMAND_LINES_MIN)
    command = _command(prompt, text_width, height - len(told))
    spare = height - len(command) - len(told)
    above = [NOTHING] if spare > 1 else []
    between = [NOTHING] if spare > 0 else []
    return [*above, *command, *between, *told]


def _command(prompt: Prompt, width: int, height: int) -> list[Content]:
    """The command, and a line that says so where it is not what it seems."""
    command = command_lines(prompt.view, width, height)
    warning = NOTHING
    if not prompt.legibility.is_literal:
        warning = own("! escapes mark what is not plain text: look twice, v shows all", CAREFUL)
    elif command.is_cut:
        warning = own("! cut above: v shows all", CAREFUL)
    if warning:
        command = command_lines(prompt.view, width, height - 1)
    here = prompt.choices.place is Place.COMMAND
    mark = own("› ", CURSOR) if here else own("  ")
    label = own("command", CURSOR if here else LABEL).truncate(LABEL_CELLS + 1, pad=True)
    indent = own("").truncate(_MARGIN + LABEL_CELLS + 1, pad=True)
    lines = [row(indent if turn else row(mark, label), x) for turn, x in enumerate(command.lines)]
    return [*lines, row(indent, warning)] if warning else lines


def _margined(lines: list[Content]) -> list[Content]:
    return [row(own("  "), line) for line in lines]


def _shortened(lines: list[Content], room: int) -> list[Content]:
    """The lines, or as many as there is room for and how many more there are."""
    if len(lines) <= room:
        return lines
    kept = lines[: room - 1]
    more = row(own("  ! ", CAREFUL), number(len(lines) - len(kept), CAREFUL))
    return [*kept, row(more, own(" more lines about this request: v shows them", CAREFUL))]


def _holds(prompt: Prompt) -> Content:
    """For how long a yes holds."""
    if prompt.offer is None or not prompt.offer.approve:
        return own("for this one command", QUIET)
    return row(own("a yes holds ", CAREFUL), term_words(prompt.offer.term).stylize(CAREFUL))


def _denies_on(prompt: Prompt) -> bool:
    return prompt.offer is not None and not prompt.offer.approve


def _status(prompt: Prompt, width: int) -> Content:
    if prompt.explaining is not None and prompt.is_armed:
        asked = own("  deny, because: ", STRONG)
        if prompt.sweeping:
            asked = row(
                own("  deny all ", STRONG),
                number(prompt.sweeping, STRONG),
                own(" from this capsule, because: ", STRONG),
            )
        return row(asked, typed(prompt.explaining, width - asked.cell_length - 2))
    if not prompt.is_armed:
        state = own("  ○ not ready  ", QUIET)
        words = own("keys do nothing until you pause for a moment", QUIET)
        return row(state, prompt.note or words)
    return row(own("  ● ready  ", GOOD), prompt.note or _next_step(prompt))


def _next_step(prompt: Prompt) -> Content:
    if prompt.choices.place is Place.DENY:
        return own("Enter denies it", STRONG)
    if prompt.may_run:
        return row(own("Enter runs it ", STRONG), _with_what(prompt.choices))
    if prompt.choices.ticked or not prompt.choices.total:
        return own("move to Run; then Enter runs it")
    return own("tick a credential, or move to Run; then Enter runs it")


def _with_what(choices: Choices) -> Content:
    count = len(choices.ticked)
    if not count:
        return own("without credentials")
    noun = own(" credential") if count == 1 else own(" credentials")
    return row(own("with "), number(count, STRONG), noun)


def _keys(prompt: Prompt, width: int) -> Content:
    if prompt.explaining is not None:
        return key_line(
            [(own("Enter"), own("send the denial")), (own("Esc"), own("back"))], is_live=True
        )
    if prompt.filtering is not None:
        return key_line(
            [(own("Enter"), own("keep the filter")), (own("Esc"), own("drop it"))], is_live=True
        )
    has_rows, is_long = prompt.choices.total > 0, prompt.choices.total > FILTER_LISTED_FROM
    pairs = [
        *([(own("Space"), own("tick"))] if has_rows else []),
        (own("↑↓"), own("move")),
        *([(own("/"), own("filter"))] if is_long else []),
        (own("Enter"), own("run")),
        (own("Esc"), own("deny")),
        (own("d"), own("why")),
        (own("g"), own("again")),
        (own("v"), own("all")),
        (own("?"), own("help")),
    ]
    # Where there is room; `?` and `:` tell of them everywhere.
    for pair in ((own(":"), own("more")), (own("D"), own("deny all")), (own("q"), own("quit"))):
        if key_line([*pairs, pair], is_live=True).cell_length <= width:
            pairs.append(pair)
    while (line := key_line(pairs, is_live=prompt.is_armed)).cell_length > width:
        pairs.pop(1)
    return line
