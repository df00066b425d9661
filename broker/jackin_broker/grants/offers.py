"""Offers: the terms that a request may be answered with, each with the very text that is stored.

A text is lines of TOML. An "always" is a rule as it is put into the configuration, byte for byte;
a grant's text is what `grants list` shows. It refuses to know prompts, clocks and files: the day
is passed in. Invariants: everything is a literal, `*` in an argument too (`patterns.escape`); a
rule is offered only if, read back, it names this request and allows it; no wildcard is offered.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, cast

import msgspec

from ..config.problems import InvalidConfig, Problems
from ..config.rule_edits import APPROVED_ON, DENIED_ON
from ..config.rules import read_rules
from ..config.table import Table
from ..operator_views import GrantKind, GrantOffer, GrantTerm
from ..patterns import escape
from ..policy import Action, Rule, Shape, names, obstacle_to
from .ledger import Basis

# What the prompt offers first; any other amount may be typed.
MINUTES_OFFERED: Final = 15
USES_OFFERED: Final = 5
DAYS_OFFERED: Final = 90
DENY_DAYS_OFFERED: Final = 30
# DESIGN §6: a shape denied three times in a row offers a deny rule.
DENIALS_BEFORE_OFFER: Final = 3
# What somebody reads before saying "always"; a longer command is approved once.
OFFER_MAX_BYTES: Final = 4096
# json leaves DEL as it is, TOML does not take it.
_DELETE: Final = {0x7F: "\\u007f"}


def offers_of(basis: Basis, *, denied_before: int) -> tuple[GrantOffer, ...]:
    """Every term that this request may be answered with, but for once; none for most odd ones."""
    found: list[GrantOffer] = []
    if _is_long(basis):
        return ()
    if basis.key_sha256 and not basis.shape.are_values_readable:
        for term in (
            GrantTerm(GrantKind.MINUTES, MINUTES_OFFERED),
            GrantTerm(GrantKind.USES, USES_OFFERED),
            GrantTerm(GrantKind.ALWAYS, DAYS_OFFERED),
        ):
            if text := offered_text(basis, term):
                found.append(GrantOffer(term, text))
    if denied_before >= DENIALS_BEFORE_OFFER:
        term = GrantTerm(GrantKind.ALWAYS, DENY_DAYS_OFFERED)
        if text := offered_text(basis, term, approve=False):
            found.append(GrantOffer(term, text, approve=False))
    return tuple(found)


def offered_text(basis: Basis, term: GrantTerm, *, approve: bool = True) -> str:
    """What would be stored for this term, without the ticked bindings; empty: it is not offered."""
    if _is_long(basis):
        return ""
    try:
        lines = list(_lines(basis, term, approve=approve))
    except UnicodeError:  # a directory that is no UTF-8 text cannot be written into a rule
        return ""
    text = "\n".join(lines)
    if len(text.encode()) > OFFER_MAX_BYTES:
        return ""
    is_rule = term.kind is GrantKind.ALWAYS
    return text if not is_rule or _is_what_it_says(text, basis, approve=approve) else ""


def _is_long(basis: Basis) -> bool:
    """Whether the arguments alone are too long for an offer: known before they are written down."""
    argv = basis.shape.argv
    return sum(map(len, argv)) + len('"", ') * len(argv) > OFFER_MAX_BYTES


def _lines(basis: Basis, term: GrantTerm, *, approve: bool) -> Iterator[str]:
    shape = basis.shape
    if term.kind is GrantKind.MINUTES:
        unit = "minute" if term.amount == 1 else "minutes"
        yield f"# this again, unasked, for {term.amount} {unit}"
    elif term.kind is GrantKind.USES:
        yield f"# this again, unasked, {'once' if term.amount == 1 else f'{term.amount} times'}"
    else:
        yield f"{APPROVED_ON if approve else DENIED_ON}{basis.today:%Y-%m-%d}"
        yield "[[rules]]"
        yield f"id = {_quoted(basis.rule_id)}"
        yield f"action = {_quoted((Action.ALLOW if approve else Action.DENY).value)}"
        yield f"expires = {basis.today + timedelta(days=term.amount):%Y-%m-%d}"
    yield f"capsule = {_quoted(shape.capsule)}"
    yield f"argv = [{', '.join(_quoted(escape(element)) for element in shape.argv)}]"
    yield f"cwd = {_quoted(shape.cwd.decode())}"
    yield f"target = {_quoted(shape.target.value)}"
    if approve:
        yield from _approved(shape)


def _approved(shape: Shape) -> Iterator[str]:
    """What an approval pins and a denial does not."""
    yield "bindings = []"
    yield f"stdin = {_quoted(shape.stdin.value)}"
    if shape.stdin_sha256:
        yield f"stdin_sha256 = {_quoted(shape.stdin_sha256)}"
    yield f"tty = {str(shape.has_tty).lower()}"
    if shape.is_cwd_writable or shape.has_writable_files:
        yield "trust_cwd = true"
    yield f"binary_sha256 = {_quoted(shape.binary_sha256)}"
    files = (
        f"{{ path = {_quoted(escape(file.path))}, sha256 = {_quoted(file.sha256)} }}"
        for file in shape.files or ()
    )
    yield f"files = [{', '.join(files)}]"


def _quoted(text: str) -> str:
    """A TOML basic string of one line.

    Raises: UnicodeError for what is not Unicode text.
    """
    text.encode()
    return json.dumps(text, ensure_ascii=False).translate(_DELETE)


def _is_what_it_says(text: str, basis: Basis, *, approve: bool) -> bool:
    """Whether the rule, read as the configuration is, names this request and no wildcard."""
    if b"*" in basis.shape.cwd:  # a directory of that name, which a rule reads as a wildcard
        return False
    rule = _read_back(text)
    if rule is None or rule.id != basis.rule_id or rule.cwd.encode() != basis.shape.cwd:
        return False
    if not names(rule, basis.shape):
        return False
    shape = msgspec.structs.replace(basis.shape, want=())
    return not approve or not obstacle_to(rule, shape, basis.today)


def _read_back(text: str) -> Rule | None:
    try:
        data = cast("dict[str, object]", tomllib.loads(text))
        problems = Problems()
        rules = read_rules(Table(data, "", problems).tables("rules"), {}, {}, "/")
        problems.raise_any("")
    except (tomllib.TOMLDecodeError, InvalidConfig):
        return None
    return rules[0] if len(rules) == 1 else None
