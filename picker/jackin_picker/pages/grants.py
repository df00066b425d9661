"""What may run again without being asked, and how to take it back.

It refuses to know how a grant is matched. Invariants: the text is the one that is stored, shown
by `display.py` and nothing else; revoking all and ending all asks again first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from textual.content import Content

from jackin_broker.operator_protocol import (
    Grants,
    GrantView,
    ListGrants,
    RevokeAll,
    RevokeGrant,
)

from ..confirm import ConfirmScreen
from ..listing import Entry
from ..reader import ReaderScreen
from ..stage import Stage
from ..tabs import Page
from ..terms import left_words, stored_glimpse, text_lines, used_words
from ..text import (
    CAREFUL,
    LABEL,
    NOTHING,
    QUIET,
    literal,
    own,
    row,
    spread,
)
from .page import PageScreen

_CAPSULE_CELLS: Final = 12
_LEFT_CELLS: Final = 13
_USED_CELLS: Final = 15


class GrantsPage(PageScreen):
    """Live grants, and every "always" that stands in the configuration."""

    page = Page.GRANTS
    title_words = "what may run again without being asked"
    empty_words = "every command is asked about: there is no grant"
    follows_desk = True

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._grants: dict[str, GrantView] = {}

    async def load(self) -> None:
        reply = await self.ask(ListGrants(seq=0))
        if isinstance(reply, Grants):
            self._grants = {grant.id: grant for grant in reply.grants}

    def entries(self) -> list[Entry]:
        return [
            Entry(grant.id, partial(_words, grant), partial(self._draw, grant))
            for grant in self._grants.values()
        ]

    def _draw(self, grant: GrantView, width: int) -> list[Content]:
        now_s = self.stage.clock.wall_s()
        left, used = left_words(grant, now_s), used_words(grant, now_s)
        tail = row(left.right(_LEFT_CELLS), own("  "), used.right(_USED_CELLS), own(" "))
        head = row(
            literal(grant.capsule, QUIET, limit=_CAPSULE_CELLS).truncate(_CAPSULE_CELLS, pad=True),
            own("  "),
        )
        room = max(0, width - head.cell_length - tail.cell_length - 2)
        command = stored_glimpse(grant.text).truncate(room, ellipsis=True)
        return [spread(row(head, command), tail, width)]

    def detail(self, width: int) -> list[Content]:
        grant = self._grants.get(self.listing.selected or "")
        if grant is None:
            return []
        kind = own("a rule in the configuration, to the letter", LABEL)
        if not grant.is_rule:
            kind = own("it is kept as, to the letter", LABEL)
        note = [literal(grant.note, CAREFUL, limit=width)] if grant.note else []
        return [kind, *note, *text_lines(grant.text, width)]

    def keys(self) -> list[tuple[Content, Content]]:
        if not self.listing.total:
            return []
        return [
            (own("Enter"), own("read")),
            (own("x"), own("revoke")),
            (own("X"), own("revoke all and end what runs")),
        ]

    def act(self, key: str) -> None:
        grant = self._grants.get(self.listing.selected or "")
        if key == "enter" and grant is not None:
            self.stage.put_over(ReaderScreen("All of the grant", partial(_all_of, grant)))
        elif key == "x" and grant is not None:
            self.stage.put_over(
                ConfirmScreen(
                    self.stage, partial(_one_lines, grant), partial(self._revoke, grant.id)
                )
            )
        elif key == "X":
            self.stage.put_over(ConfirmScreen(self.stage, _all_lines, self._revoke_all))

    async def _revoke(self, grant_id: str) -> Content:
        await self.ask(RevokeGrant(seq=0, id=grant_id))
        await self.load()
        return own("revoked: it will be asked about again")

    async def _revoke_all(self) -> Content:
        await self.ask(RevokeAll(seq=0, kill=True))
        await self.load()
        return own("every grant is revoked, and what ran is being ended")


def _all_of(grant: GrantView, width: int) -> Iterator[Content]:
    yield NOTHING
    for line in text_lines(grant.text, width - 4):
        yield row(own("  "), line)


def _one_lines(grant: GrantView, width: int, height: int) -> list[Content]:
    return [
        own("Revoke this? What it allowed will be asked about again."),
        own("What runs now goes on running.", QUIET),
        NOTHING,
        *text_lines(grant.text, width)[: max(1, height - 3)],
    ]


def _all_lines(width: int, height: int) -> list[Content]:
    return [
        own("Revoke every grant, and end every command that was approved?"),
        own("Grants that stand in the configuration are taken out of it.", QUIET),
        own("What the commands did so far stays done.", QUIET),
    ]


def _words(grant: GrantView) -> str:
    return " ".join((grant.capsule, grant.text, *grant.bindings))
