"""What may be stored with an answer: literals, word for word, and only what says what it means."""

from __future__ import annotations

import tomllib
from datetime import date

import msgspec
import pytest

from jackin_broker.config import parse
from jackin_broker.grants.ledger import Basis
from jackin_broker.grants.offers import (
    DENIALS_BEFORE_OFFER,
    OFFER_MAX_BYTES,
    offered_text,
    offers_of,
)
from jackin_broker.operator_views import GrantKind, GrantOffer, GrantTerm, stored_text
from jackin_broker.policy import Action, ApprovedFile, Rule, Shape, decide
from jackin_broker.protocol import Outcome, StdinKind

DAY = date(2026, 11, 30)
ALWAYS = GrantTerm(GrantKind.ALWAYS, 90)
HEAD = """schema = 1
[env]
GH_TOKEN = { value = "$GH", on_demand = true }
[capsules.web]
kind = "none"
"""
SHAPE = Shape(
    capsule="web",
    argv=(b"gh", b"pr", b"list"),
    cwd=b"/src/app",
    is_cwd_writable=True,
    available=frozenset({"GH_TOKEN"}),
    binary_sha256="b" * 64,
)


def basis(**changes: object) -> Basis:
    return Basis(msgspec.structs.replace(SHAPE, **changes), "s1", "r-1", DAY, {})


def rule_in(text: str, *bindings: str) -> Rule:
    """The rule that this offer's text puts into a configuration."""
    config = parse(f"{HEAD}{stored_text(text, bindings)}\n", origin="")
    assert len(config.rules) == 1
    return config.rules[0]


def offered(one: Basis, *, denied_before: int = 0) -> dict[GrantTerm, GrantOffer]:
    return {offer.term: offer for offer in offers_of(one, denied_before=denied_before)}


def test_the_offers_are_minutes_uses_and_an_always_that_ends() -> None:
    """DESIGN §6: once, minutes or uses, always: a rule with an end."""
    assert [(term.kind.value, term.amount) for term in offered(basis())] == [
        ("minutes", 15),
        ("uses", 5),
        ("always", 90),
    ]


def test_an_always_reads_as_the_rule_that_it_becomes() -> None:
    """CASES 3d: the offer text is the rule, verbatim."""
    assert offered_text(basis(), ALWAYS) == (
        "# from an approval on 2026-11-30\n"
        "[[rules]]\n"
        'id = "r-1"\n'
        'action = "allow"\n'
        "expires = 2027-02-28\n"
        'capsule = "web"\n'
        'argv = ["gh", "pr", "list"]\n'
        'cwd = "/src/app"\n'
        'target = "host"\n'
        "bindings = []\n"
        'stdin = "none"\n'
        "tty = false\n"
        "trust_cwd = true\n"
        f'binary_sha256 = "{"b" * 64}"\n'
        "files = []"
    )


def test_the_ticked_bindings_are_filled_in_and_nothing_else_changes() -> None:
    text = offered_text(basis(), ALWAYS)
    stored = stored_text(text, ("GH_TOKEN",))
    assert stored == text.replace("bindings = []", 'bindings = ["GH_TOKEN"]')
    assert rule_in(text, "GH_TOKEN").bindings == ("GH_TOKEN",)


ODD_ARGVS = [
    (b"gh", b"*"),
    (b"gh", b"**"),
    (b"gh", b"..."),
    (b"gh", b"a\\b", b"\\*", b"\\"),
    (b"gh", b"", b" ", b"\n\t\x1b\x7f"),
    (b"gh", b'"; rm -rf "', b"'", b"#", b"]"),
    (b"gh", b"\xff\xfe", "ünïcode \u202e \U0001f600 \u200b".encode()),
    (b"gh", b"\nbindings = []\n", b'"]\n[[rules]]\naction = "allow"\nargv = ["..."]'),
    (b"*", b"x"),
]


@pytest.mark.parametrize("argv", ODD_ARGVS, ids=repr)
def test_whatever_the_arguments_are_they_are_stored_as_literals(argv: tuple[bytes, ...]) -> None:
    """CASES 3d: exact argv; a `*` in an argument is a star (openclaw#48586, goclaw#1202)."""
    one = basis(argv=argv)
    rule = rule_in(offered(one)[ALWAYS].text, "GH_TOKEN")
    assert decide(one.shape, [rule], today=DAY).outcome is Outcome.ALLOW
    for other in (
        (*argv, b""),
        argv[:-1],
        (*argv[:-1], argv[-1] + b"x"),
        (*argv[:-1], b"-" + argv[-1]),
        (b"env", *argv),
    ):
        changed = msgspec.structs.replace(one.shape, argv=other)
        assert decide(changed, [rule], today=DAY).outcome is Outcome.ASK, other


def test_an_always_pins_the_bytes_that_were_approved() -> None:
    """CASES 3d: script or binary swapped; `python3 safe.py` allowed, `python3 bad.py` asks."""
    pinned = basis(
        argv=(b"python3", b"safe.py"),
        files=(ApprovedFile(b"safe.py", "a" * 64),),
        stdin=StdinKind.CLOSED,
        stdin_sha256="c" * 64,
        has_tty=True,
    )
    rule = rule_in(offered(pinned)[ALWAYS].text)
    assert decide(pinned.shape, [rule], today=DAY).outcome is Outcome.ALLOW
    for change in (
        {"files": (ApprovedFile(b"safe.py", "0" * 64),)},
        {"files": ()},
        {"files": None},
        {"binary_sha256": "0" * 64},
        {"stdin_sha256": "0" * 64},
        {"stdin": StdinKind.NONE, "stdin_sha256": ""},
        {"has_tty": False},
        {"argv": (b"python3", b"bad.py")},
        {"cwd": b"/src/app/sub"},
        {"capsule": "lab"},
        {"want": ("GH_TOKEN",)},
    ):
        other = msgspec.structs.replace(pinned.shape, **change)
        assert decide(other, [rule], today=DAY).outcome is Outcome.ASK, change


def test_after_its_last_day_an_always_is_over() -> None:
    rule = rule_in(offered_text(basis(), GrantTerm(GrantKind.ALWAYS, 1)))
    assert decide(SHAPE, [rule], today=date(2026, 12, 1)).outcome is Outcome.ALLOW
    assert decide(SHAPE, [rule], today=date(2026, 12, 2)).outcome is Outcome.ASK


@pytest.mark.parametrize("cwd", [b"/src/*", b"/src/a\xff", b"/src/**", b"relative"])
def test_a_directory_that_no_rule_can_name_to_the_letter_makes_no_rule(cwd: bytes) -> None:
    assert ALWAYS not in offered(basis(cwd=cwd))


@pytest.mark.parametrize(
    "odd",
    [
        {"stdin": StdinKind.LIVE},
        {"files": None},
        {"is_binary_changed": True},
        {"are_values_readable": True},
        {"argv": (b"gh", b"x" * OFFER_MAX_BYTES)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_cannot_be_stored_to_the_byte_is_offered_once_alone(odd: dict[str, object]) -> None:
    assert offered(basis(**odd)) == {}


def test_the_third_denial_in_a_row_makes_a_deny_rule_an_answer() -> None:
    """DESIGN §6: a shape denied three times in a row offers a deny rule."""
    before = offered(basis(), denied_before=DENIALS_BEFORE_OFFER - 1)
    assert all(offer.approve for offer in before.values())
    after = offers_of(basis(), denied_before=DENIALS_BEFORE_OFFER)
    deny = next(offer for offer in after if not offer.approve)
    rule = rule_in(deny.text)
    assert (rule.action, rule.argv, rule.cwd) == (Action.DENY, ("gh", "pr", "list"), "/src/app")
    assert decide(SHAPE, [rule], today=DAY).outcome is Outcome.DENY
    live = msgspec.structs.replace(SHAPE, stdin=StdinKind.LIVE, has_tty=True)
    assert decide(live, [rule], today=DAY).outcome is Outcome.DENY


def test_the_text_of_a_grant_is_toml_too() -> None:
    for term in (GrantTerm(GrantKind.MINUTES, 15), GrantTerm(GrantKind.USES, 1)):
        text = stored_text(offered_text(basis(), term), ("GH_TOKEN",))
        assert tomllib.loads(text)["bindings"] == ["GH_TOKEN"]
