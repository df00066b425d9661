"""What plain mode says, as lines: the prompt's own facts, one below the other.

It refuses to know the terminal and what is typed. Invariants: all that the prompt shows is said,
in the same words; a line that begins at the margin is ours, text from outside stands behind a
label or is indented, folded here so that no terminal wraps it to the margin; nothing depends on
colour, and nothing moves a cursor.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from textual.content import Content

from jackin_broker.operator_protocol import (
    FINAL_STATES,
    BindingView,
    GrantKind,
    GrantOffer,
    RequestView,
)

from .command import GLANCE_CHARS, GLANCE_ITEMS, items_of, legibility_of
from .ends import end_words
from .facts import facts_of, notices_of
from .glimpse import command_line
from .terms import Offer, term_words
from .text import (
    NOTHING,
    clock,
    fitted,
    literal,
    number,
    own,
    process_id,
    row,
)

# The widest label, and what is indented below it.
_LABEL_CELLS: Final = 14
_INDENT: Final = own("    ")
# Of each text at first; `read` says all of it.
_DEPTH: Final = 4

HELP: Final = (
    own("What you can type. Each line ends with Enter, and Enter alone does nothing."),
    own("  tick 1 3      lend these credentials; untick 1 takes one back"),
    own("  run 123       run the command with what is ticked; 123 stands for the number shown"),
    own("  deny 123      deny it; what you type behind the number is the reason"),
    own("  deny all 123  deny all that waits from this capsule; a reason may follow"),
    own("  terms         for how long a yes can hold, and term 2 to choose the second"),
    own("  read          all of the request, nothing cut"),
    own("  again         say the request once more"),
    own("  next          leave it for later, go to the next one"),
    own("  list          what waits and what runs; kill 456 ends what runs under that number"),
    own("  output 456    what it writes, as it writes it; silent stops that"),
    own("  history       what ended, and how; history 2 says all of the second"),
    own("  grants        what may run again unasked; revoke 789 takes one back,"),
    own("                revoke all 789 takes all back and ends all that runs"),
    own("  rules         the configured rules; rules 2 says all of the second"),
    own("  credentials   what can be lent, and where it comes from; no values"),
    own("  unlock        unlock the vault, its passphrase is asked for and not shown"),
    own("  quit          leave; what waits goes on waiting, what runs goes on running"),
    own("A request is ready after 0.4 seconds without a key, what you type before is dropped."),
    own("The numbers are new each time, so that no text from elsewhere answers anything."),
    own("A backslash marks what could not be shown as it is; a real one is doubled."),
)


def request_lines(view: RequestView, width: int, *, waiting: int, left_s: float) -> list[Content]:
    """All that is decided on, but for the credentials."""
    room = width - _LABEL_CELLS
    lines = [
        row(
            own("Request: capsule "),
            literal(view.capsule, limit=40),
            own(", "),
            literal(view.capsule_kind, limit=12),
            own(", asks to run"),
        ),
        *_command(view, width - 8),
        *notices_of(view, width, depth=_DEPTH),
    ]
    for fact in facts_of(view, room, depth=_DEPTH):
        label = row(own(fact.label), own(": ")) if fact.label else _INDENT
        lines += [row(_INDENT if turn else label, line) for turn, line in enumerate(fact.lines)]
    others = row(own(", "), number(waiting - 1), own(" more wait")) if waiting > 1 else NOTHING
    return [*lines, row(own("Answer within "), clock(left_s), own(" minutes"), others)]


def _command(view: RequestView, room: int) -> Iterator[Content]:
    """One numbered line an argument; what goes on below it is indented further."""
    items = items_of(view)
    for index, item in enumerate(items[:GLANCE_ITEMS]):
        folded = fitted(item, room, max(_DEPTH, GLANCE_CHARS // room))
        for turn, line in enumerate(folded):
            head = own("        ") if turn else row(own("  "), number(index), own("  "))
            yield row(head, line)
    if len(items) > GLANCE_ITEMS:
        yield row(own("  ! "), number(len(items) - GLANCE_ITEMS), own(" more arguments: read"))
    legibility = legibility_of(view)
    if not legibility.is_literal:
        yield own("! escapes mark what is not plain text: look twice")
    if not legibility.is_short:
        yield own("! cut: read says all of it")


def credential_lines(
    bindings: tuple[BindingView, ...], ticked: set[str], width: int
) -> Iterator[Content]:
    """A numbered line each, and its warnings below."""
    if not bindings:
        yield own("No credential can be lent to it.")
    for place, binding in enumerate(bindings, start=1):
        state = own(", ticked: ") if binding.name in ticked else own(", not ticked: ")
        wanted = own(", wanted by the agent") if binding.wanted else NOTHING
        head = row(own("Credential "), number(place), state, literal(binding.name, limit=60))
        yield row(head, wanted)
        for said in (binding.label, binding.source, binding.delivery):
            if said:
                yield from (row(_INDENT, line) for line in fitted(said, width - 4, 2))
        for warning in binding.warnings:
            folded = fitted(warning, width - 6, _DEPTH)
            yield from (
                row(own("      ") if turn else own("    ! "), line)
                for turn, line in enumerate(folded)
            )


def ready_line(code: int) -> Content:
    """What can be done now; the number is known from here on."""
    return row(
        own("Ready. tick lends a credential; run "),
        process_id(code),
        own(" runs it, deny "),
        process_id(code),
        own(" denies it; help."),
    )


def ticked_line(ticked: tuple[str, ...], offer: Offer) -> Content:
    """What a yes would lend, and for how long."""
    if not ticked:
        names = own("nothing")
    else:
        names = own(", ").join(literal(name, limit=60) for name in ticked)
    holds = NOTHING if offer is None or not offer.approve else row(own("; it holds "), _term(offer))
    return row(own("A yes lends: "), names, holds)


def term_lines(offers: tuple[Offer, ...], chosen: Offer) -> Iterator[Content]:
    """The numbered terms."""
    for place, offer in enumerate(offers, start=1):
        mark = own(", chosen") if offer == chosen else NOTHING
        yield row(own("Term "), number(place), own(": "), _term(offer), mark)
    yield own("term and a number chooses one and says what would be stored. It answers nothing.")


def terms_of(view: RequestView) -> tuple[Offer, ...]:
    """Once, and what the broker offers besides."""
    return (None, *(one for one in view.offers if one.term.kind is not GrantKind.ONCE))


def _term(offer: GrantOffer | None) -> Content:
    if offer is None:
        return own("only this one run")
    if offer.approve:
        return term_words(offer.term)
    return row(own("deny it from now on, for "), number(offer.term.amount), own(" days"))


def over_line(view: RequestView, width: int) -> Content:
    """What became of a request that is not waiting: over, or approved elsewhere and under way."""
    if view.state in FINAL_STATES:
        head = row(own("Over, "), end_words(view), own(": "))
    else:
        head = own("It was approved elsewhere and goes on: ")
    return row(head, command_line(view, width - head.cell_length))
