"""For how long an answer holds: the offers of the broker, and what each would store.

It refuses to know how a grant is matched and stored. Invariant: the text is the one that the
broker stores, with the ticked credentials in it, to the letter.
Pure.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec
from textual.content import Content

from jackin_broker.display import show
from jackin_broker.operator_protocol import (
    GrantKind,
    GrantOffer,
    GrantTerm,
    GrantView,
    RuleView,
    stored_text,
)

from .text import CAREFUL, LABEL, NOTHING, QUIET, drawn, literal, number, own, row, span

_ARGV: Final = "argv = "
# Enough to know a command again; the whole text stands below the list.
_ITEMS: Final = 12
_ITEM_CHARS: Final = 60
_ENDS_CHARS: Final = 24
# None: once, nothing is stored.
Offer = GrantOffer | None


def term_words(term: GrantTerm) -> Content:
    """How long, in words for *yes*."""
    amount = number(term.amount)
    match term.kind:
        case GrantKind.ONCE:
            return own("once")
        case GrantKind.MINUTES:
            unit = own(" minute") if term.amount == 1 else own(" minutes")
            return row(own("for "), amount, unit)
        case GrantKind.USES:
            unit = own(" more run") if term.amount == 1 else own(" more runs")
            return row(own("for "), amount, unit)
        case GrantKind.ALWAYS:
            unit = own(" day") if term.amount == 1 else own(" days")
            return row(own("always, for "), amount, unit)


def text_lines(text: str, width: int) -> list[Content]:
    """What is stored, line by line, each folded and none cut."""
    lines: list[Content] = []
    for line in text.split("\n"):
        folded = drawn(show(line)).fold(max(8, width - 2)) if line else [NOTHING]
        lines += [row(own("│ ", QUIET), part) for part in folded]
    return lines


def stored_glimpse(text: str) -> Content:
    """The command that a stored text names, on one line, for a list."""
    for line in text.split("\n"):
        if line.startswith(_ARGV):
            with suppress(msgspec.DecodeError):
                items = msgspec.json.decode(line.removeprefix(_ARGV), type=list[str])
                shown = (literal(item, limit=_ITEM_CHARS) for item in items[:_ITEMS])
                more = own(" …", QUIET) if len(items) > _ITEMS else NOTHING
                return row(own(" ").join(shown), more)
    return literal(text)


def no_offer_lines() -> list[Content]:
    """Why there is nothing to choose."""
    return [
        own("A yes holds longer only where all that counts can be compared the next time:", LABEL),
        own("not with a live stdin, a pipe or a changed program, nor in the capsule.", LABEL),
    ]


def offer_lines(offer: Offer, ticked: tuple[str, ...], width: int) -> list[Content]:
    """What would be stored if this were chosen and answered."""
    if offer is None:
        return [own("Nothing is stored: the next time you are asked again.", LABEL)]
    lines = [own("This would be stored, to the letter:", LABEL)]
    if offer.approve and not ticked:
        lines.append(own("! no credential is ticked yet: it would be for none", CAREFUL))
    return [*lines, *text_lines(stored_text(offer.text, ticked), width)]


def left_words(grant: GrantView, now_s: float) -> Content:
    """How much of a grant is left."""
    parts: list[Content] = []
    if grant.uses_left is not None:
        uses = own(" use left") if grant.uses_left == 1 else own(" uses left")
        parts.append(row(number(grant.uses_left), uses))
    if grant.expires_at is not None:
        parts.append(row(span(grant.expires_at - now_s), own(" left")))
    if not parts:
        return own("no end", CAREFUL)
    return row(parts[0], own(", "), parts[1]) if len(parts) > 1 else parts[0]


def used_words(thing: GrantView | RuleView, now_s: float) -> Content:
    """When it was used last."""
    if thing.last_used_at is None:
        return own("never used", QUIET)
    return row(own("used ", QUIET), span(now_s - thing.last_used_at, QUIET), own(" ago", QUIET))


def ends_words(rule: RuleView) -> Content:
    """When a rule ends, or that it has."""
    if rule.has_ended:
        return own("has ended", CAREFUL)
    if not rule.ends:
        return own("no end", QUIET)
    return row(own("until ", QUIET), literal(rule.ends, QUIET, limit=_ENDS_CHARS))
