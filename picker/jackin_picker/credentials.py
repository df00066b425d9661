"""The credentials of a prompt as lines to tick, and the two buttons below them.

It refuses to know keys and what a tick leads to. Invariants: `[x]` and `[ ]` say what is ticked,
no colour needed; what is ticked is named on *Run*; when not all rows fit, their numbers say which
are seen.
Pure.
"""

from __future__ import annotations

from typing import Final

from textual.content import Content

from jackin_broker.operator_protocol import BindingView

from .choices import Choices, Place
from .editor import LineEditor
from .text import (
    BUTTON,
    BUTTON_DENY,
    BUTTON_RUN,
    CAREFUL,
    CURSOR,
    GOOD,
    KEY,
    LABEL,
    NOTHING,
    PLAIN,
    QUIET,
    STRONG,
    fitted,
    literal,
    number,
    own,
    row,
    spread,
    typed,
)

# Names are variables' names; longer ones are clipped with a count.
NAME_CELLS_MAX: Final = 24
# In less, a label that has to be cut says little: what was cut is counted in words.
LABEL_CELLS_MIN: Final = 24
# Named on the button; more are counted.
NAMES_ON_BUTTON: Final = 3


def credential_lines(
    choices: Choices, filtering: LineEditor | None, width: int, height: int, holds: Content
) -> tuple[list[Content], list[tuple[int, int]]]:
    """The title and the rows in at most `height` lines. `holds`: for how long a yes holds.

    Shape: also pairs of a line's place among them and the row that it shows.
    """
    if not choices.total:
        none = row(own("  Credentials", STRONG), own("  none are configured", QUIET))
        return [spread(none, row(holds, own("  ")), width)], []
    rows = choices.rows
    blocks = [_block(choices, index, width) for index in range(len(rows))]
    first, last = _window([len(block) for block in blocks], choices, height - 1)
    lines = [_title(choices, filtering, width, first, last, holds)]
    spots: list[tuple[int, int]] = []
    for index in range(first, last):
        spots += [(len(lines) + y, index) for y in range(len(blocks[index]))]
        lines += blocks[index]
    if not rows:
        lines.append(own("      no credential matches the filter", QUIET))
    return lines, spots


def button_line(
    choices: Choices, *, may_run: bool, denies_on: bool
) -> tuple[Content, list[tuple[Place, range]]]:
    """*Run* and *Deny*, and where they are. `denies_on`: a denial holds from now on."""
    at_run, at_deny = choices.place is Place.RUN, choices.place is Place.DENY
    run = _button(_run_words(choices), BUTTON_RUN if at_run or may_run else BUTTON)
    deny = _button(
        own("Deny from now on") if denies_on else own("Deny"), BUTTON_DENY if at_deny else BUTTON
    )
    run_cursor = own("    › ", CURSOR) if at_run else own("      ")
    deny_cursor = own("  › ", CURSOR) if at_deny else own("    ")
    run_x = range(run_cursor.cell_length, run_cursor.cell_length + run.cell_length)
    deny_start = run_x.stop + deny_cursor.cell_length
    deny_x = range(deny_start, deny_start + deny.cell_length)
    line = row(run_cursor, run, deny_cursor, deny)
    return line, [(Place.RUN, run_x), (Place.DENY, deny_x)]


def _title(
    choices: Choices,
    filtering: LineEditor | None,
    width: int,
    first: int,
    last: int,
    holds: Content,
) -> Content:
    left = row(own("  Credentials", STRONG), own("  "), holds)
    if filtering is not None:
        left = row(own("  Credentials", STRONG), own("  / ", KEY), typed(filtering, width // 2))
    elif choices.filter:
        left = row(
            own("  Credentials", STRONG),
            own("  / ", KEY),
            literal(choices.filter, limit=width // 2),
        )
    parts = [number(len(choices.ticked), STRONG), own(" ticked", QUIET)]
    matching = len(choices.rows)
    if last - first < matching:
        span = row(own("   "), number(first + 1), own("-"), number(last), own(" of ", QUIET))
        parts += [span, number(matching)]
    if matching < choices.total:
        parts += [own("   "), number(choices.total - matching), own(" filtered out", QUIET)]
    return spread(left, row(*parts, own("  ")), width)


def _window(heights: list[int], choices: Choices, room: int) -> tuple[int, int]:
    """The rows from first to before last that fit and hold the cursor."""
    cursor = min(choices.row, max(0, len(heights) - 1))
    first = 0
    while first < cursor and sum(heights[first : cursor + 1]) > room:
        first += 1
    last = first
    while last < len(heights) and sum(heights[first : last + 1]) <= room:
        last += 1
    return first, max(last, min(first + 1, len(heights)))


def _block(choices: Choices, index: int, width: int) -> list[Content]:
    binding = choices.rows[index]
    here = choices.place is Place.ROW and choices.row == index
    ticked = choices.is_ticked(binding.name)
    widths = (literal(row.name, limit=NAME_CELLS_MAX).cell_length for row in choices.rows)
    name_cells = min(NAME_CELLS_MAX, max(widths))
    wanted = own("  wanted ", KEY) if binding.wanted else own(" ")
    head = row(
        own("› ", CURSOR) if here else own("  "),
        own("[x] ", GOOD) if ticked else own("[ ] ", PLAIN),
        _name(binding, name_cells, here=here or ticked),
        own("  "),
    )
    room = width - head.cell_length - wanted.cell_length - 2
    line = spread(row(head, _about(binding, room)), row(wanted, own(" ")), width)
    return [line, *_warnings(binding, width)]


def _name(binding: BindingView, cells: int, *, here: bool) -> Content:
    name = fitted(binding.name, cells, 1, STRONG if here else PLAIN)[0]
    return name.truncate(cells, pad=True)


def _about(binding: BindingView, room: int) -> Content:
    """Label, source and delivery; the label gives way."""
    way = row(
        literal(binding.source, QUIET, limit=max(12, room * 2 // 3)),
        own(" → ", QUIET),
        literal(binding.delivery, QUIET, limit=24),
    )
    left = room - way.cell_length - 2
    if not binding.label or left < min(LABEL_CELLS_MIN, literal(binding.label).cell_length):
        return way
    return row(fitted(binding.label, left, 1, LABEL)[0], own("  "), way)


def _warnings(binding: BindingView, width: int) -> list[Content]:
    return [
        row(own("      ! ", CAREFUL), fitted(warning, width - 10, 1, CAREFUL)[0])
        for warning in binding.warnings
    ]


def _run_words(choices: Choices) -> Content:
    names = choices.ticked
    if not names:
        return own("Run without credentials") if choices.total else own("Run")
    parts: list[Content] = []
    for name in names[:NAMES_ON_BUTTON]:
        parts += [own(", ") if parts else NOTHING, literal(name, limit=16)]
    if len(names) > NAMES_ON_BUTTON:
        parts += [own(" and "), number(len(names) - NAMES_ON_BUTTON), own(" more")]
    return row(own("Run with "), *parts)


def _button(words: Content, style: str) -> Content:
    face = row(own("  "), words, own("  "))
    return face.stylize(style)
