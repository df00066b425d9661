"""A broker's side with something on every page of the picker: for tests, snapshots, pictures."""

from __future__ import annotations

from typing import Final

from jackin_broker.operator_protocol import (
    CredentialView,
    GrantKind,
    GrantOffer,
    GrantTerm,
    GrantView,
    RequestState,
    RequestView,
    RuleView,
)

from .operator_playbook import OperatorPlaybook, a_request

# When the pilot's clock starts.
WALL_START_S: Final = 1_800_000_000.0
_DAY_S: Final = 86_400

STORED: Final = """\
capsule = "web"
argv = ["gh", "pr", "list", "--limit", "30"]
cwd = "/home/op/src/app"
target = "host"
bindings = []
stdin = "none"
tty = false
trust_cwd = true"""
RULE: Final = (
    """\
# approved in the picker on 2027-01-15
[[rules]]
id = "a-4f6d2c"
action = "allow"
expires = 2027-04-15
"""
    + STORED
)
DENY_RULE: Final = """\
# denied in the picker on 2027-01-15
[[rules]]
id = "d-4f6d2c"
action = "deny"
expires = 2027-02-14
capsule = "web"
argv = ["gh", "pr", "list", "--limit", "30"]"""
OFFERS: Final = (
    GrantOffer(
        GrantTerm(GrantKind.MINUTES, 15), "# this again, unasked, for 15 minutes\n" + STORED
    ),
    GrantOffer(GrantTerm(GrantKind.USES, 5), "# this again, unasked, 5 times\n" + STORED),
    GrantOffer(GrantTerm(GrantKind.ALWAYS, 90), RULE),
    GrantOffer(GrantTerm(GrantKind.ALWAYS, 30), DENY_RULE, approve=False),
)
CHANGED: Final = a_request(
    offers=OFFERS, differences=("argument 4: was '10', is '30'",), denied_before=3
)


def fill(broker: OperatorPlaybook) -> None:
    """Something runs, something ended, there are grants, rules and credentials."""
    broker.ask(
        a_request(
            "u1",
            state=RequestState.RUNNING,
            running_s=72,
            lent=("GH_TOKEN",),
            decided_by="operator",
        ),
        a_request("u2", command="npm", args=("publish",), state=RequestState.RESOLVING),
    )
    broker.history = _history()
    broker.grants = _grants()
    broker.rules = _rules()
    broker.credentials = (
        CredentialView("GH_TOKEN", "keyring github/me", "env", "GitHub, read only"),
        CredentialView("ADMIN_KEY", "1Password Work/Admin/key", "env", on_demand=False),
        CredentialView("PGPASSWORD", "keyring db/prod", "prompt", capsule="web"),
    )


def _history() -> tuple[RequestView, ...]:
    ends = (
        (RequestState.DONE, 0, "exit", "operator"),
        (RequestState.DONE, 2, "exit", "rule"),
        (RequestState.DONE, 143, "operator", "operator"),
        (RequestState.DENIED, None, "operator_denied", "operator"),
        (RequestState.EXPIRED, None, "expired", ""),
        (RequestState.CANCELLED, None, "caller_gone", ""),
    )
    return tuple(
        a_request(
            f"h{number}",
            state=state,
            exit_code=exit_code,
            outcome=outcome,
            decided_by=decided_by,
            running_s=3 * number,
            lent=("GH_TOKEN",) if state is RequestState.DONE else (),
        )
        for number, (state, exit_code, outcome, decided_by) in enumerate(ends)
    )


def _grants() -> tuple[GrantView, ...]:
    start = WALL_START_S
    return (
        GrantView("g1", "web", STORED, start - 30, start + 890, None, start - 5, ("GH_TOKEN",)),
        GrantView("g2", "web", STORED.replace("30", "100"), start - 60, None, 3),
        GrantView(
            "g3",
            "web",
            RULE,
            start - _DAY_S,
            start + 88 * _DAY_S - 60,
            last_used_at=start - 3 * _DAY_S,
            is_rule=True,
        ),
    )


def _rules() -> tuple[RuleView, ...]:
    listed = 'argv = ["gh", "pr", "list", "--limit", "*"]\ncapsule = "web"\nbindings = ["GH_TOKEN"]'
    return (
        RuleView(1, "deny", 'argv = ["gh", "repo", "delete", "..."]\ncapsule = "*"'),
        RuleView(
            2,
            "allow",
            listed,
            "2027-06-30",
            ("argv: a wildcard stands where a path may",),
            WALL_START_S - 7200,
        ),
        RuleView(3, "ask", 'argv = ["psql", "..."]\ncapsule = "web"', "2026-01-01", has_ended=True),
    )
