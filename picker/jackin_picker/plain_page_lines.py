"""The picker's pages, as plain mode says them: grants, rules, credentials, what runs, what ended.

It refuses to know the terminal and what is typed. Invariants: the same words as on the pages; the
text of a grant or a rule is the stored one, to the letter; text from outside never begins a line.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from textual.content import Content

from jackin_broker.operator_protocol import CredentialView, GrantView, RequestView, RuleView

from .ends import end_words
from .glimpse import command_line
from .terms import ends_words, left_words, stored_glimpse, used_words
from .text import clock, fitted, literal, number, own, process_id, row

# What is said of a list at once; the record, and the picker, have the rest.
SAID_MAX: Final = 100
HISTORY_SAID: Final = 20
_NAME_CHARS: Final = 60
_CAPSULE_CHARS: Final = 40
_INDENT: Final = own("    ")


def running_line(code: int, view: RequestView, width: int) -> Content:
    """What runs, with the number that ends it."""
    head = row(own("Runs, kill "), process_id(code), own(" ends it: "))
    return row(head, command_line(view, width - head.cell_length))


def waiting_line(view: RequestView, width: int, left_s: float) -> Content:
    """What waits."""
    head = row(own("Waits for "), clock(left_s), own(" more: "))
    return row(head, command_line(view, width - head.cell_length))


def ended_lines(views: Sequence[RequestView], width: int) -> Iterator[Content]:
    """What ended, newest first, numbered."""
    if not views:
        yield own("Nothing has ended since the broker started.")
        return
    for place, view in enumerate(views, start=1):
        capsule = literal(view.capsule, limit=_CAPSULE_CHARS)
        yield row(own("Ended "), number(place), own(", "), end_words(view), own(", "), capsule)
        yield row(_INDENT, command_line(view, width - 4))
    yield own("history and a number says all of one.")


def grant_lines(
    grants: Sequence[GrantView], numbers: Mapping[str, int], now_s: float, width: int
) -> Iterator[Content]:
    """What may run again unasked, each with the number that takes it back."""
    for place, grant in enumerate(grants, start=1):
        capsule = literal(grant.capsule, limit=_CAPSULE_CHARS)
        kind = own(", a rule in the configuration") if grant.is_rule else own("")
        head = row(own("Grant "), number(place), own(", capsule "), capsule, kind)
        left = row(own(", "), left_words(grant, now_s), own(", "), used_words(grant, now_s))
        yield row(head, left)
        yield row(_INDENT, _cut(stored_glimpse(grant.text), width - 4))
        if grant.note:
            yield row(own("    ! "), fitted(grant.note, width - 6, 1)[0])
        if grant.id in numbers:
            code = process_id(numbers[grant.id])
            yield row(own("    revoke "), code, own(" takes it back"))


def revoke_all_line(code: int, grants: int) -> Content:
    """How to end everything that was allowed."""
    head = own("") if grants else own("Every command is asked about: there is no grant. ")
    return row(
        head, own("revoke all "), process_id(code), own(" revokes all and ends all that runs.")
    )


def rule_lines(rules: Sequence[RuleView], width: int) -> Iterator[Content]:
    """The configured rules in their order, and what is unwise about them."""
    if not rules:
        yield own("There is no rule: every command is asked about.")
        return
    for rule in rules:
        action = literal(rule.action, limit=_CAPSULE_CHARS)
        yield row(own("Rule "), number(rule.number), own(", "), action, own(", "), ends_words(rule))
        yield row(_INDENT, _cut(stored_glimpse(rule.text), width - 4))
        for warning in rule.warnings:
            yield row(own("    ! "), fitted(warning, width - 6, 1)[0])
    yield own("rules and a number says all of one.")


def credential_page_lines(credentials: Sequence[CredentialView], width: int) -> Iterator[Content]:
    """Names and sources, no values."""
    if not credentials:
        yield own("No credential is configured.")
    for credential in credentials:
        name = literal(credential.name, limit=_NAME_CHARS)
        capsule = literal(credential.capsule, limit=_CAPSULE_CHARS)
        whose = row(own(", capsule "), capsule) if credential.capsule else own("")
        given = own("") if credential.on_demand else own(", the agent has it")
        yield row(own("Credential "), name, whose, given)
        for said in (credential.label, credential.source, credential.delivery):
            if said:
                yield row(_INDENT, fitted(said, width - 4, 1)[0])
        for warning in credential.warnings:
            yield row(own("    ! "), fitted(warning, width - 6, 1)[0])


def _cut(line: Content, room: int) -> Content:
    if line.cell_length <= room:
        return line
    return row(line.truncate(max(0, room - 2)), own(" …"))
