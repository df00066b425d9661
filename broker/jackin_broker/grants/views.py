"""Grants and rules as the operator sees them: names, ends and last uses, nothing that is secret.

Texts are raw here; `display.py` says what may be shown of them.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from typing import Final

from ..operator_views import GrantView, RuleView
from ..policy import Action, Rule, has_ended, instant_of
from .book import RuleUse
from .ledger import Grant

# The last day of the calendar, less one: whoever shows it may stand in another zone.
_LATEST_S: Final = datetime(9999, 12, 30, tzinfo=UTC).timestamp()


def grant_view(grant: Grant) -> GrantView:
    """A grant for minutes or uses."""
    return GrantView(
        id=grant.id,
        capsule=grant.capsule,
        text=grant.text,
        made_at=grant.made_at,
        expires_at=grant.expires_at,
        uses_left=grant.uses_left,
        last_used_at=grant.last_used_at,
        bindings=grant.bindings,
    )


def always_view(rule: Rule, use: RuleUse, text: str, now: datetime) -> GrantView:
    """A rule that an approval wrote; `text` is how it stands in the file, empty if it is not."""
    return GrantView(
        id=rule.id,
        capsule=rule.capsule,
        text=text or rule_lines(rule),
        made_at=use.made_at,
        expires_at=_end_of(rule.expires),
        last_used_at=use.last_used_at,
        bindings=rule.bindings,
        is_rule=True,
        note="it has ended" if has_ended(rule.expires, now) else "",
    )


def rule_view(rule: Rule, use: RuleUse, warnings: tuple[str, ...], now: datetime) -> RuleView:
    """Any rule."""
    return RuleView(
        number=rule.number,
        id=rule.id,
        action=rule.action.value,
        text=rule_lines(rule),
        ends=str(rule.expires or ""),
        warnings=warnings,
        last_used_at=use.last_used_at,
        has_ended=has_ended(rule.expires, now),
    )


def rule_lines(rule: Rule) -> str:
    """What a rule names, in the configuration's words, a line each."""
    lines = [f"argv = {_quoted(list(rule.argv))}", f"capsule = {_quoted(rule.capsule)}"]
    if rule.cwd:
        lines.append(f"cwd = {_quoted(rule.cwd)}")
    if rule.target is not None:
        lines.append(f"target = {_quoted(rule.target.value)}")
    if rule.bindings:
        lines.append(f"bindings = {_quoted(list(rule.bindings))}")
    if rule.action is Action.ALLOW:
        lines.append(f"stdin = {_quoted(rule.stdin.value)}")
        lines += ["tty = true"] * rule.tty + ["trust_cwd = true"] * rule.trust_cwd
    return "\n".join(lines)


def _quoted(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _end_of(expires: date | datetime | None) -> float | None:
    """When a rule ends, in seconds since the epoch: a date is the last day on which it holds."""
    if expires is None:
        return None
    if not isinstance(expires, datetime):
        expires = datetime.combine(expires, time.max)
    return min(max(0.0, instant_of(expires).timestamp()), _LATEST_S)
