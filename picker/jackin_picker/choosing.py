"""The screen on which the operator chooses for how long an answer holds.

It refuses to know what becomes of the choice. Invariant: choosing decides nothing, and leaving
without choosing changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.content import Content

from jackin_broker.operator_protocol import GrantKind, GrantOffer

from .board import BoardScreen
from .terms import Offer, no_offer_lines, offer_lines, term_words
from .text import (
    BAD,
    BAR,
    CAREFUL,
    CURSOR,
    GOOD,
    NOTHING,
    QUIET,
    STRONG,
    key_line,
    number,
    own,
    row,
    rule,
    spread,
)


class TermsScreen(BoardScreen):
    """`chosen` gets the offer; it is not an answer."""

    def __init__(
        self,
        offers: tuple[GrantOffer, ...],
        ticked: tuple[str, ...],
        now: Offer,
        chosen: Callable[[Offer], None],
    ) -> None:
        super().__init__()
        kept = [offer for offer in offers if offer.term.kind is not GrantKind.ONCE]
        self._offers: list[Offer] = [None, *kept]
        self._ticked = ticked
        self._now = now
        self._chosen = chosen
        self._index = self._offers.index(now) if now in self._offers else 0
        self._top = 0

    def pressed(self, event: events.Key) -> None:
        match event.key:
            case "escape" | "q" | "g" | "ctrl+c":
                self.dismiss()
            case "space" | "enter":
                self._chosen(self._offers[self._index])
                self.dismiss()
            case "down" | "j" | "tab":
                self._move(1)
            case "up" | "k" | "shift+tab":
                self._move(-1)
            case "pagedown":
                self._top += self.size.height // 2
            case "pageup":
                self._top = max(0, self._top - self.size.height // 2)
            case _:
                pass

    def on_click(self, event: events.Click) -> None:
        event.stop()
        index = event.screen_y - 3
        if 0 <= index < len(self._offers):
            self._move(index - self._index)
            self.repaint()

    def _move(self, step: int) -> None:
        self._index = max(0, min(self._index + step, len(self._offers) - 1))
        self._top = 0

    def paint(self, width: int, height: int) -> list[Content]:
        head = [
            spread(own("  How long does your answer hold?", STRONG), NOTHING, width, BAR),
            NOTHING,
            own("  Choosing answers nothing yet.", QUIET),
            *(self._row(index, offer) for index, offer in enumerate(self._offers)),
            rule(width),
        ]
        offer = self._offers[self._index]
        room = max(1, height - len(head) - 2)
        body = offer_lines(offer, self._ticked, width - 4)
        if offer is None and not any(other and other.approve for other in self._offers):
            body += no_offer_lines()
        self._top = max(0, min(self._top, len(body) - room))
        below = len(body) - room - self._top
        body = [row(own("  "), line) for line in body[self._top : self._top + room]]
        body += [NOTHING] * (room - len(body))
        status = NOTHING
        if below > 0:
            noun = own(" more line: PgDn") if below == 1 else own(" more lines: PgDn")
            status = row(own("  ! ", CAREFUL), number(below), noun.stylize(CAREFUL))
        keys = [
            (own("↑↓"), own("move")),
            (own("Enter"), own("choose")),
            (own("Esc"), own("leave it as it was")),
        ]
        return [*head, *body, status, key_line(keys, is_live=True)][:height]

    def _row(self, index: int, offer: Offer) -> Content:
        here = index == self._index
        mark = own("(•) ", GOOD) if offer == self._now else own("( ) ")
        words = own("only this one run")
        if offer is not None:
            words = term_words(offer.term)
            if not offer.approve:
                words = row(own("deny it from now on, for ", BAD), number(offer.term.amount, BAD))
                words = row(words, own(" days", BAD))
        return row(own("  › ", CURSOR) if here else own("    "), mark, words)
