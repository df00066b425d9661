"""How each rule stands to one request: which decides, which would, which nearly matches and why.

For people who write rules (`config check --explain`). It refuses to know grants: they are no part
of a configuration. Invariant: the rule that is said to decide is the one that `policy.decide`
names; nothing here decides anything.
Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from enum import Enum
from typing import Final

import msgspec

from .patterns import Parting, compile_argv, compile_name
from .policy import (
    Action,
    Rule,
    Shape,
    Verdict,
    decide,
    describe,
    has_ended,
    names_directory,
    names_target,
    obstacle_to,
)

_ORDER: Final = (Action.DENY, Action.ASK, Action.ALLOW)
_QUOTED_MAX_CHARS: Final = 80


class Standing(str, Enum):
    """What a rule is to one request."""

    DECIDES = "decides"
    OUTRANKED = "outranked"  # it matches, and another comes first
    HINDERED = "hindered"  # it names the command, and something stands in its way
    NEAR = "near"  # it is about this program, and names another command
    OTHER = "other"  # it is about another program


class Finding(msgspec.Struct, frozen=True):
    """How one rule stands. `words` say why, empty for the one that decides."""

    rule: Rule
    standing: Standing
    words: str = ""


def explain(
    shape: Shape, rules: Sequence[Rule], *, today: date
) -> tuple[Verdict, tuple[Finding, ...]]:
    """What the rules say of this request, and how each stands to it, in the order of reading."""
    verdict = decide(shape, rules, today=today)
    ordered = sorted(rules, key=lambda rule: _ORDER.index(rule.action))
    return verdict, tuple(_finding(rule, shape, verdict, today) for rule in ordered)


def _finding(rule: Rule, shape: Shape, verdict: Verdict, today: date) -> Finding:
    if rule is verdict.rule:
        return Finding(rule, Standing.DECIDES)
    parted = tuple(_differences(rule, shape))
    if parted:
        standing = Standing.NEAR if _is_about(rule, shape) else Standing.OTHER
        return Finding(rule, standing, "; ".join(parted))
    if rule.action is Action.ALLOW:
        hindrance = obstacle_to(rule, shape, today)
    else:
        hindrance = "it has ended" if has_ended(rule.expires, today) else ""
    if hindrance:
        return Finding(rule, Standing.HINDERED, hindrance)
    if verdict.rule is None:  # whatever the rules say, this program is asked
        return Finding(rule, Standing.HINDERED, verdict.reason)
    return Finding(rule, Standing.OUTRANKED, f"{describe(verdict.rule)} comes first")


def _is_about(rule: Rule, shape: Shape) -> bool:
    """Whether the rule names this program, whatever follows."""
    first = compile_argv(rule.argv).elements[:1]
    return not first or (bool(shape.argv) and first[0].matches(shape.argv[0], with_options=True))


def _differences(rule: Rule, shape: Shape) -> Iterator[str]:
    """Why a rule does not name this command."""
    if not compile_name(rule.capsule).matches(shape.capsule.encode(), with_options=True):
        yield f"it is about capsule {rule.capsule}"
    if words := _parting(rule, shape):
        yield words
    if not names_target(rule, shape.target):
        target = "host" if rule.target is None else rule.target.value
        yield f"it is about target {target}"
    if not names_directory(rule.cwd, shape.cwd):
        yield f"it is about directory {rule.cwd}"


def _parting(rule: Rule, shape: Shape) -> str:
    """Where the command's arguments leave the rule's, or empty."""
    pattern = compile_argv(rule.argv)
    mismatch = pattern.mismatch(shape.argv, with_options=rule.action is not Action.ALLOW)
    if mismatch is None:
        return ""
    place = f"argument {mismatch.index}" if mismatch.index else "the command"
    match mismatch.parting:
        case Parting.TOO_SHORT:
            return f"the command ends before {_quoted(rule.argv[mismatch.index])}"
        case Parting.TOO_LONG:
            more = len(shape.argv) - mismatch.index
            return f"{more} {'argument' if more == 1 else 'arguments'} more than it names"
        case Parting.OPTION:
            return f"{place} is {_of(shape, mismatch.index)}, and no wildcard admits an option"
        case Parting.OTHER:
            wanted = _quoted(rule.argv[mismatch.index])
            return f"{place} is {_of(shape, mismatch.index)}, not {wanted}"


def _of(shape: Shape, index: int) -> str:
    return _quoted(shape.argv[index].decode("utf-8", "backslashreplace"))


def _quoted(text: str) -> str:
    clipped = text[:_QUOTED_MAX_CHARS] + ("…" if len(text) > _QUOTED_MAX_CHARS else "")
    return f"'{clipped}'"
