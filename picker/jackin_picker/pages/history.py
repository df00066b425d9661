"""What ended since the broker started: how, with which credentials, by whose word.

It refuses to know the record, which has all of it and longer: `jackin-broker audit show`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from textual.content import Content

from jackin_broker.operator_protocol import ListHistory, Requests, RequestView

from ..facts import fact_lines, facts_of
from ..glimpse import request_line, words_of
from ..listing import Entries, Entry
from ..reader import read_request
from ..stage import Stage
from ..tabs import Page
from ..text import own
from .page import PageScreen
from .running import lent_line

# More is in the record, with filters.
HISTORY_MAX: Final = 500


class HistoryPage(PageScreen):
    """Ended, newest first."""

    page = Page.HISTORY
    title_words = "since the broker started, newest first"
    empty_words = "nothing has ended yet"
    follows_desk = True

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._views: dict[str, RequestView] = {}
        self._order: list[RequestView] = []
        self._entries = Entries(_entry)

    async def load(self) -> None:
        reply = await self.ask(ListHistory(seq=0, limit=HISTORY_MAX))
        if isinstance(reply, Requests):
            self._views = {view.id: view for view in reply.requests}
            self._order = list(self._views.values())

    def entries(self) -> list[Entry]:
        return self._entries.of(self._order)

    def detail(self, width: int) -> list[Content]:
        view = self._views.get(self.listing.selected or "")
        if view is None:
            return []
        facts = fact_lines(facts_of(view, width - 13, depth=1))
        return [lent_line(view, width), *facts]

    def keys(self) -> list[tuple[Content, Content]]:
        return [(own("Enter"), own("read all of it"))] if self.listing.total else []

    def act(self, key: str) -> None:
        view = self._views.get(self.listing.selected or "")
        if view is not None and key in {"enter", "v"}:
            self.stage.put_over(read_request(view))


def _entry(view: RequestView) -> Entry:
    return Entry(view.id, partial(words_of, view), partial(_draw, view))


def _draw(view: RequestView, width: int) -> list[Content]:
    return [request_line(view, width, lasted_s=0)]
