"""What was approved and has not ended: since when, its output, its end.

It refuses to know processes. Invariant: ending a command asks again first.
"""

from __future__ import annotations

from functools import partial

from textual.content import Content

from jackin_broker.operator_protocol import RequestState, RequestView

from ..facts import fact_lines, facts_of
from ..glimpse import request_line, words_of
from ..listing import Entries, Entry
from ..stage import Stage
from ..tabs import Page
from ..text import LABEL, literal, own, row
from .ending import ask_to_kill
from .output import OutputScreen
from .page import PageScreen


class RunningPage(PageScreen):
    """Under way, oldest first."""

    page = Page.RUNNING
    title_words = "approved and not ended"
    empty_words = "nothing runs"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._entries = Entries(self._entry)

    def entries(self) -> list[Entry]:
        return self._entries.of(self.stage.inbox.under_way)

    def _entry(self, view: RequestView) -> Entry:
        return Entry(view.id, partial(words_of, view), partial(self._draw, view))

    def _draw(self, view: RequestView, width: int) -> list[Content]:
        lasted_s = self.stage.inbox.lasted_s(view, self.stage.clock.now_s())
        return [request_line(view, width, lasted_s=lasted_s)]

    def _selected(self) -> RequestView | None:
        return self.stage.inbox.find(self.listing.selected or "")

    def detail(self, width: int) -> list[Content]:
        view = self._selected()
        if view is None:
            return []
        facts = fact_lines(facts_of(view, width - 13, depth=1))
        return [lent_line(view, width), *facts]

    def keys(self) -> list[tuple[Content, Content]]:
        if not self.listing.total:
            return []
        return [(own("Enter"), own("its output")), (own("x"), own("end it"))]

    def act(self, key: str) -> None:
        view = self._selected()
        if view is None:
            return
        if key == "enter":
            if view.state is RequestState.RUNNING:
                self.stage.put_over(OutputScreen(self.stage, view))
            else:
                self.note = own("it has not started: there is no output yet")
        elif key == "x":
            ask_to_kill(self.stage, view)


def lent_line(view: RequestView, width: int) -> Content:
    """Which credentials the command has, and who let it have them."""
    parts: list[Content] = [own("credentials", LABEL).truncate(13, pad=True)]
    parts += [row(literal(name, limit=40), own("  ")) for name in view.lent]
    if not view.lent:
        parts.append(own("none  "))
    if view.decided_by:
        parts += [own("by "), literal(view.decided_by, limit=20)]
    return row(*parts).truncate(width)
