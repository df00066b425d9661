"""What waits for an answer: look, pick the one to answer next, or deny a whole capsule's.

It refuses to know prompts. Invariant: nothing is approved here; Enter only shows the prompt.
"""

from __future__ import annotations

from functools import partial

from textual.content import Content

from jackin_broker.operator_protocol import RequestView

from ..facts import fact_lines, facts_of
from ..glimpse import request_line, words_of
from ..listing import Entries, Entry
from ..stage import Stage
from ..tabs import Page
from ..text import own
from .page import PageScreen


class WaitingPage(PageScreen):
    """The queue, oldest first."""

    page = Page.WAITING
    title_words = "for your answer, oldest first"
    empty_words = "nothing waits"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._entries = Entries(self._entry)

    def entries(self) -> list[Entry]:
        return self._entries.of(self.stage.inbox.waiting)

    def _entry(self, view: RequestView) -> Entry:
        return Entry(view.id, partial(words_of, view), partial(self._draw, view))

    def _draw(self, view: RequestView, width: int) -> list[Content]:
        left_s = self.stage.inbox.left_s(view, self.stage.clock.now_s())
        return [request_line(view, width, lasted_s=0, left_s=left_s)]

    def _selected(self) -> RequestView | None:
        return self.stage.inbox.find(self.listing.selected or "")

    def detail(self, width: int) -> list[Content]:
        view = self._selected()
        return fact_lines(facts_of(view, width - 13, depth=1)) if view is not None else []

    def keys(self) -> list[tuple[Content, Content]]:
        if not self.listing.total:
            return []
        return [(own("Enter"), own("answer it")), (own("D"), own("deny all of its capsule"))]

    def act(self, key: str) -> None:
        view = self._selected()
        if view is None:
            return
        if key == "enter":
            self.stage.inbox.choose(view.id)
            self.stage.go(Page.DESK)
        elif key == "D":
            self.edit(
                "deny all that waits from this capsule, because",
                partial(self.stage.deny_all, view.capsule),
            )
