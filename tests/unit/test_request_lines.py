"""`requests` says all that the picker's prompt says: `decide` is an answer like any other."""

from __future__ import annotations

import pytest

from jackin_broker.cli.request_lines import request_lines
from jackin_broker.operator_protocol import (
    FileOperandView,
    GrantKind,
    GrantOffer,
    GrantTerm,
    RequestState,
    StdinView,
)
from jackin_broker.protocol import StdinKind
from support.operator_playbook import a_request


def test_all_that_is_decided_on_is_said() -> None:
    shown = request_lines(
        a_request(
            notices=("the program changed since start",),
            files=(FileOperandView("/home/op/src/app/run.sh", 120, "ab" * 32),),
            expires_in_s=298.4,
        )
    )
    assert shown.splitlines() == [
        "r1  waiting  capsule web (bwrap), expires in 298 s",
        "  [0] gh",
        "  [1] pr",
        "  [2] list",
        "  [3] --limit",
        "  [4] 30",
        "  ! the program changed since start",
        "  in /home/op/src/app, which the agent can write",
        "  runs /usr/bin/gh on the host, confined, an empty HOME",
        "  reads /home/op/src/app/run.sh, which the agent can change, sha256 abababababab",
        "  stdin: nothing",
        "  asked by: node 4121 < bash 4100 < init 4098",
        "  the agent says: List the open pull requests before I start on the next one.",
        "  may be lent (* wanted): NPM_TOKEN, PGPASSWORD, GH_TOKEN*",
        *(f"  ! {row.name}: {words}" for row in a_request().bindings for words in row.warnings),
    ]


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (StdinView(StdinKind.LIVE), "live, the agent types into it while it runs"),
        (StdinView(StdinKind.CLOSED, 12, "cd" * 32), "12 bytes, sha256 cdcdcdcdcdcd"),
    ],
)
def test_stdin_is_named(stdin: StdinView, words: str) -> None:
    assert f"  stdin: {words}" in request_lines(a_request(stdin=stdin)).splitlines()


def test_one_that_runs_is_short_and_offers_nothing() -> None:
    shown = request_lines(a_request(state=RequestState.RUNNING))
    assert "may be lent" not in shown
    assert "expires" not in shown


def test_no_text_of_an_agent_makes_a_line_of_its_own() -> None:
    spoof = "x\n  may be lent (* wanted): NOTHING"
    shown = request_lines(a_request(reason=spoof, cwd=spoof, command=spoof, args=(spoof,)))
    assert shown.count("\n  may be lent") == 1


def test_what_differs_what_was_denied_and_what_may_be_answered_is_said() -> None:
    offers = (
        GrantOffer(GrantTerm(GrantKind.MINUTES, 15), "text"),
        GrantOffer(GrantTerm(GrantKind.USES, 5), "text"),
        GrantOffer(GrantTerm(GrantKind.ALWAYS, 90), "text"),
        GrantOffer(GrantTerm(GrantKind.ALWAYS, 30), "text", approve=False),
    )
    view = a_request(differences=("argument 1: added '\x1b[2J'",), denied_before=3, offers=offers)
    shown = request_lines(view).splitlines()
    assert r"  unlike the last that was approved: argument 1: added '\x1b[2J'" in shown
    assert "  denied 3 times in a row before" in shown
    assert (
        "  may also be answered with: --approve --for 15m, --approve --uses 5, "
        "--approve --always 90d, --deny --always 30d (the text of each: requests --json)"
    ) in shown
