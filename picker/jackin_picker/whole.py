"""All of a request as lines: nothing in it is clipped.

It refuses to know screens. Invariants: every line of the agent's text stands right of the gutter;
lines are made as they are reached, so that a megabyte begins as fast as a word.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from textual.content import Content

from jackin_broker.display import show_lines
from jackin_broker.operator_protocol import RequestView
from jackin_broker.protocol import StdinKind, Text

from .command import items_of
from .facts import fact_lines, facts_of, notices_of
from .text import LABEL, NOTHING, QUIET, STRONG, drawn, literal, number, own, row

# No text that fits a message has more lines than this; `facts_of` folds to a depth.
DEPTH_WHOLE: Final = 100_000


def request_lines(view: RequestView, width: int) -> Iterator[Content]:
    """Every line that there is to read about the request."""
    yield NOTHING
    items = items_of(view)
    for index, item in enumerate(items):
        yield from _numbered(index, len(str(len(items) - 1)), item, width)
    yield NOTHING
    for notice in notices_of(view, width - 4, depth=DEPTH_WHOLE):
        yield row(own("  "), notice)
    for line in fact_lines(facts_of(view, width - 16, depth=DEPTH_WHOLE)):
        yield row(own("  "), line)
    yield from _digests(view, width)
    if view.stdin.kind is StdinKind.CLOSED and view.stdin.preview:
        yield NOTHING
        yield own("  What it will read on stdin, from the start:", LABEL)
        yield from _guttered(view.stdin.preview, own("  │ ", QUIET), width)
    for binding in view.bindings:
        yield NOTHING
        yield row(own("  credential ", LABEL), literal(binding.name, STRONG))
        for said in (binding.label, binding.source, binding.delivery, *binding.warnings):
            if said:
                yield from _guttered(said, own("    "), width)
    yield NOTHING


def _digests(view: RequestView, width: int) -> Iterator[Content]:
    if view.stdin.sha256:
        yield row(own("  stdin sha256 ", LABEL), literal(view.stdin.sha256, QUIET, limit=64))
    for file in view.files:
        yield row(own("  file sha256  ", LABEL), literal(file.sha256, QUIET, limit=64))


def _numbered(index: int, index_width: int, item: Text, width: int) -> Iterator[Content]:
    gutter = row(own("  "), own("│", QUIET).right(index_width), own("  "))
    head = row(own("  "), number(index, QUIET).right(index_width), own("  "))
    for turn, line in enumerate(_guttered(item, NOTHING, width - gutter.cell_length)):
        yield row(gutter if turn else head, line)


def _guttered(text: Text | bytes, gutter: Content, width: int) -> Iterator[Content]:
    room = width - gutter.cell_length - 1
    rest = NOTHING
    for shown in show_lines(text):
        *whole, rest = row(rest, drawn(shown)).fold(room)
        yield from (row(gutter, line) for line in whole)
        if shown.ends_line:
            yield row(gutter, rest)
            rest = NOTHING
    if rest:
        yield row(gutter, rest)
