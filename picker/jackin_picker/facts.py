"""A request as labelled lines: what an operator is told beside the command itself.

It refuses to know heights, keys and ticks. Invariants: every field of a `RequestView` that says
something about the command is here; text of the agent never stands in the column of the labels;
what limits trust comes in the same line as the thing that is to be trusted.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, LiteralString

from textual.content import Content

from jackin_broker.operator_protocol import RequestView
from jackin_broker.protocol import StdinKind, Target

from .text import (
    CAREFUL,
    LABEL,
    NOTHING,
    PLAIN,
    QUIET,
    fitted,
    literal,
    number,
    own,
    process_id,
    row,
    size,
)

# Less of a closed stdin says nothing; the reader shows all that was sent along.
STDIN_GLIMPSE_MIN_CELLS: Final = 12
# Enough to compare by eye; the reader shows all of it.
DIGEST_SHOWN_CHARS: Final = 12
# The broker's own words for a command that could do more than usual.
CAREFUL_WORDS: Final = ("unconfined", "your own logins", "agent can read")
# A label and a space.
LABEL_CELLS: Final = 12
# The kernel's own names of processes have at most 15.
NAME_SHOWN_CHARS: Final = 24


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and its lines, already folded to the width that was asked for."""

    label: LiteralString
    lines: tuple[Content, ...]


def facts_of(view: RequestView, width: int, *, depth: int) -> list[Fact]:
    """What stands below the command, each text in at most `depth` lines of `width` cells."""
    facts = [
        Fact("program", tuple(fitted(view.binary_path, width, depth))),
        _folder(view, width, depth),
        *_files(view, width, depth),
        _stdin(view, width),
        _place(view, width, depth),
        _caller(view, width),
    ]
    if view.reason:
        facts.append(_claim(view, width, depth))
    return facts


def fact_lines(facts: list[Fact]) -> list[Content]:
    """The facts one below the other, their labels in a column of their own."""
    blank = own("").truncate(LABEL_CELLS + 1, pad=True)
    return [
        row(blank if turn else own(fact.label, LABEL).truncate(LABEL_CELLS + 1, pad=True), line)
        for fact in facts
        for turn, line in enumerate(fact.lines)
    ]


def notices_of(view: RequestView, width: int, *, depth: int) -> list[Content]:
    """What to be careful of, a sign before each: warnings, what is new, what was denied."""
    lines: list[Content] = []
    for notice in view.notices:
        lines += _signed(own("! ", CAREFUL), notice, width, depth, at_words=True)
    for difference in view.differences:
        lines += _signed(own("≠ changed  ", CAREFUL), difference, width, depth)
    if view.denied_before:
        times = own(" time in a row") if view.denied_before == 1 else own(" times in a row")
        line = row(own("! ", CAREFUL), own("you denied this "), number(view.denied_before), times)
        can_last = any(not offer.approve for offer in view.offers)
        lines.append(row(line, own("; g can deny it from now on")) if can_last else line)
    return lines


def _signed(
    sign: Content, text: str, width: int, depth: int, *, at_words: bool = False
) -> list[Content]:
    folded = fitted(text, max(1, width - sign.cell_length), depth, at_words=at_words)
    blank = own("").truncate(sign.cell_length, pad=True)
    return [row(blank if turn else sign, line) for turn, line in enumerate(folded)]


def _folder(view: RequestView, width: int, depth: int) -> Fact:
    note = own("  the agent can write here", CAREFUL) if view.cwd_writable else NOTHING
    lines = _with_note(fitted(view.cwd, width, depth), note, width)
    if view.capsule_cwd and view.capsule_cwd != view.cwd:
        inside = own("in the capsule: ", QUIET)
        room = width - inside.cell_length
        lines += [row(inside, line) for line in fitted(view.capsule_cwd, room, 1, QUIET)]
    return Fact("folder", tuple(lines))


def _with_note(lines: list[Content], note: Content, width: int) -> list[Content]:
    """The lines with a note behind the last, or below it where there is no room."""
    if lines[-1].cell_length + note.cell_length <= width:
        return [*lines[:-1], row(lines[-1], note)]
    return [*lines, note.truncate(width)]


def _files(view: RequestView, width: int, depth: int) -> list[Fact]:
    facts: list[Fact] = []
    for index, file in enumerate(view.files):
        note = row(
            own("  the agent can change it", CAREFUL),
            own("  sha256 ", QUIET),
            literal(file.sha256[:DIGEST_SHOWN_CHARS], QUIET),
            own("  "),
            size(file.size_bytes, QUIET),
        )
        lines = _with_note(fitted(file.path, width, depth), note, width)
        facts.append(Fact("reads" if index == 0 else "", tuple(lines)))
    return facts


def _stdin(view: RequestView, width: int) -> Fact:
    stdin = view.stdin
    if stdin.kind is StdinKind.NONE:
        return Fact("stdin", (own("nothing", QUIET),))
    if stdin.kind is StdinKind.LIVE:
        line = row(own("live", CAREFUL), own("  the agent types into it while it runs"))
        return Fact("stdin", (line.truncate(width),))
    head = row(
        size(stdin.size_bytes),
        own("  sha256 ", QUIET),
        literal(stdin.sha256[:DIGEST_SHOWN_CHARS], QUIET),
        own("  "),
    )
    room = width - head.cell_length
    if not stdin.preview or room < STDIN_GLIMPSE_MIN_CELLS:
        return Fact("stdin", (head.truncate(width),))
    return Fact("stdin", (row(head, fitted(stdin.preview, room, 1)[0]),))


def _place(view: RequestView, width: int, depth: int) -> Fact:
    where = own("in the capsule") if view.target is Target.CAPSULE else own("on this host")
    lines = [where]
    if view.confinement:
        careful = any(word in view.confinement for word in CAREFUL_WORDS)
        head = row(where, own("  "))
        style = CAREFUL if careful else PLAIN
        how = fitted(view.confinement, width - head.cell_length, depth, style, at_words=True)
        indent = own("").truncate(head.cell_length, pad=True)
        lines = [row(indent if turn else head, line) for turn, line in enumerate(how)]
    return Fact("runs", tuple(_with_note(lines, _terminal(view), width)))


def _terminal(view: RequestView) -> Content:
    if view.tty is None:
        return own("  no terminal", QUIET)
    cols, rows = number(view.tty.cols, QUIET), number(view.tty.rows, QUIET)
    return row(own("  terminal ", QUIET), cols, own("×", QUIET), rows)


def _caller(view: RequestView, width: int) -> Fact:
    parts: list[Content] = []
    for process in view.asked_by:
        if parts:
            parts.append(own(" ‹ ", QUIET))
        parts += [
            literal(process.name, limit=NAME_SHOWN_CHARS),
            own(" "),
            process_id(process.pid, QUIET),
        ]
    if not parts:
        parts = [own("unknown", QUIET)]
    line = row(*parts)
    if line.cell_length > width:
        line = row(line.truncate(width - 2), own(" …", QUIET))
    return Fact("asked by", (line,))


def _claim(view: RequestView, width: int, depth: int) -> Fact:
    """The agent's reason, between marks that say whose words these are."""
    lines = fitted(view.reason, width - 2, depth)
    opened = [row(own("“", QUIET) if index == 0 else own(" "), x) for index, x in enumerate(lines)]
    return Fact("agent says", (*opened[:-1], row(opened[-1], own("”", QUIET))))
