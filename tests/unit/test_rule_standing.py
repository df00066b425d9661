"""Why a rule decides on a command, or why it does not."""

from __future__ import annotations

from datetime import date

import msgspec
import pytest

from jackin_broker.policy import Action, Rule, Shape
from jackin_broker.protocol import StdinKind, Target
from jackin_broker.rule_standing import Finding, Standing, explain

DAY = date(2026, 11, 30)
SHAPE = Shape(
    capsule="web",
    argv=(b"gh", b"pr", b"list", b"--limit", b"30"),
    cwd=b"/src/app",
    is_cwd_writable=False,
    available=frozenset({"GH_TOKEN"}),
)
OPTION = "argument 3 is '--limit', and no wildcard admits an option"
EXACT = ("gh", "pr", "list", "--limit", "30")


def standing(rule: Rule, request: Shape = SHAPE) -> tuple[Standing, str]:
    finding = explain(request, [rule], today=DAY)[1][0]
    return finding.standing, finding.words


def allow(*argv: str, **changes: object) -> Rule:
    return msgspec.structs.replace(Rule(Action.ALLOW, argv or EXACT, number=1), **changes)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("gh", "pr", "list", "*", "30"), OPTION),
        (("gh", "pr", "**"), OPTION),
        (("gh", "pr", "view", "..."), "argument 2 is 'list', not 'view'"),
        (("gh", "pr", "list"), "2 arguments more than it names"),
        ((*EXACT, "--json"), "the command ends before '--json'"),
        ((*EXACT[:4], "5*"), "argument 4 is '30', not '5*'"),
    ],
)  # fmt: skip
def test_a_rule_that_nearly_matches_says_where_it_parts(argv: tuple[str, ...], words: str) -> None:
    assert standing(allow(*argv)) == (Standing.NEAR, words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capsule": "lab"}, "it is about capsule lab"),
        ({"cwd": "/src/**"}, ""),
        ({"cwd": "/src"}, "it is about directory /src"),
        ({"target": Target.CAPSULE}, "it is about target capsule"),
    ],
    ids=str,
)
def test_capsule_directory_and_target_are_named(change: dict[str, object], words: str) -> None:
    expected = (Standing.NEAR, words) if words else (Standing.DECIDES, "")
    assert standing(allow(**change)) == expected


def test_what_stands_in_the_way_is_named() -> None:
    assert standing(allow(expires=date(2026, 1, 1))) == (Standing.HINDERED, "it has ended")
    live = msgspec.structs.replace(SHAPE, stdin=StdinKind.LIVE)
    assert standing(allow(), live) == (Standing.HINDERED, "stdin is live and it admits none")
    lent = allow(bindings=("GH_TOKEN",))
    writable = msgspec.structs.replace(SHAPE, is_cwd_writable=True)
    assert "trust_cwd" in standing(lent, writable)[1]
    guessed = msgspec.structs.replace(SHAPE, suspended=frozenset({"GH_TOKEN"}))
    assert standing(lent, guessed)[1] == "somebody guesses at GH_TOKEN, until it is approved again"
    changed = msgspec.structs.replace(SHAPE, is_binary_changed=True)
    assert standing(allow(), changed)[1] == "the program has changed since the broker started"


def test_another_programs_rule_is_only_that() -> None:
    assert standing(allow("git", "*"))[0] is Standing.OTHER


def test_the_first_in_the_order_of_reading_decides_and_the_others_say_so() -> None:
    rules = [
        allow(number=1),
        Rule(Action.ASK, ("gh", "..."), number=2),
        Rule(Action.DENY, ("gh", "pr", "..."), number=3),
        Rule(Action.DENY, ("gh", "..."), number=4),
    ]
    verdict, findings = explain(SHAPE, rules, today=DAY)
    assert verdict.rule is rules[2]
    first = "rule 3 (deny gh pr ...) comes first"
    assert findings == (
        Finding(rules[2], Standing.DECIDES),
        Finding(rules[3], Standing.OUTRANKED, first),
        Finding(rules[1], Standing.OUTRANKED, first),
        Finding(rules[0], Standing.OUTRANKED, first),
    )
