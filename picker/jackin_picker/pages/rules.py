"""The rules that are in force, as they are configured: to read, with what is unwise about them.

It refuses to know how a rule matches; `jackin-broker config check --explain` does. Nothing can be
changed here: a rule is changed where its comment stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, LiteralString

from textual.content import Content

from jackin_broker.operator_protocol import ListRules, Rules, RuleView

from ..listing import Entry
from ..reader import ReaderScreen
from ..stage import Stage
from ..tabs import Page
from ..terms import ends_words, stored_glimpse, text_lines
from ..text import (
    BAD,
    CAREFUL,
    GOOD,
    LABEL,
    NOTHING,
    PLAIN,
    QUIET,
    fitted,
    literal,
    number,
    own,
    row,
    span,
    spread,
)
from .page import PageScreen

_ACTIONS: Final[dict[str, LiteralString]] = {"allow": GOOD, "ask": CAREFUL, "deny": BAD}
_ACTION_CELLS: Final = 6
_MARKS: Final = (own("! ", CAREFUL), own("  "))


class RulesPage(PageScreen):
    """In the configuration's order; deny comes first whatever the order."""

    page = Page.RULES
    title_words = "of the configuration: deny first, then ask, then allow"
    empty_words = "there is no rule: every command is asked about"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._rules: dict[str, RuleView] = {}

    async def load(self) -> None:
        reply = await self.ask(ListRules(seq=0))
        if isinstance(reply, Rules):
            self._rules = {str(rule.number): rule for rule in reply.rules}

    def entries(self) -> list[Entry]:
        return [
            Entry(number, partial(_words, rule), partial(self._draw, rule))
            for number, rule in self._rules.items()
        ]

    def _draw(self, rule: RuleView, width: int) -> list[Content]:
        action = literal(rule.action, _ACTIONS.get(rule.action, PLAIN), limit=_ACTION_CELLS)
        head = row(number(rule.number, QUIET).right(3), own("  "), action.truncate(7, pad=True))
        tail = ends_words(rule)
        if rule.warnings:
            tail = row(own("! ", CAREFUL), tail)
        room = max(0, width - head.cell_length - tail.cell_length - 2)
        command = stored_glimpse(rule.text).truncate(room, ellipsis=True)
        return [spread(row(head, command), row(tail, own(" ")), width)]

    def detail(self, width: int) -> list[Content]:
        rule = self._rules.get(self.listing.selected or "")
        if rule is None:
            return []
        lines: list[Content] = []
        for warning in rule.warnings:
            folded = fitted(warning, width - 2, 3, CAREFUL)
            lines += [row(_MARKS[turn > 0], x) for turn, x in enumerate(folded)]
        if rule.last_used_at is not None:
            ago = span(self.stage.clock.wall_s() - rule.last_used_at)
            lines.append(row(own("last used ", LABEL), ago, own(" ago")))
        return [*lines, *text_lines(rule.text, width)]

    def keys(self) -> list[tuple[Content, Content]]:
        return [(own("Enter"), own("read"))] if self.listing.total else []

    def act(self, key: str) -> None:
        rule = self._rules.get(self.listing.selected or "")
        if key == "enter" and rule is not None:
            self.stage.put_over(ReaderScreen("All of the rule", partial(_all_of, rule)))


def _all_of(rule: RuleView, width: int) -> Iterator[Content]:
    yield NOTHING
    for line in text_lines(rule.text, width - 4):
        yield row(own("  "), line)


def _words(rule: RuleView) -> str:
    return " ".join((rule.action, rule.text, rule.ends, *rule.warnings))
