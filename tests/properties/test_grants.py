"""Grants and offers over many requests: nothing but the very same request is let through."""

from __future__ import annotations

import string
from datetime import date

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from jackin_broker.config import parse
from jackin_broker.config.rule_edits import append_rule, remove_rules, rule_texts
from jackin_broker.grants.ledger import Basis, key_of
from jackin_broker.grants.offers import offers_of
from jackin_broker.operator_views import GrantKind, stored_text
from jackin_broker.patterns import compile_argv
from jackin_broker.policy import ApprovedFile, Permit, Rule, Shape, decide
from jackin_broker.protocol import Outcome, StdinKind, Target

DAY = date(2026, 11, 30)
HEAD = """schema = 1
[env]
A = { value = "$A", on_demand = true }
B = { value = "$B", on_demand = true }
[capsules.web]
kind = "none"
[capsules.lab]
kind = "none"
"""
DIGESTS = st.sampled_from(["a" * 64, "b" * 64])
# Words that mean something to patterns and to TOML, and any bytes an argument can hold.
ELEMENTS = st.one_of(
    st.sampled_from([b"gh", b"-f", b"", b"*", b"**", b"...", b"\\", b'"', b"\n", b"a*", b"'"]),
    st.binary(max_size=6).filter(lambda raw: b"\0" not in raw),
    st.text(max_size=4).map(lambda text: text.replace("\0", "").encode("utf-8", "replace")),
)
PATHS = st.text(string.ascii_letters + " *.é'\"\\-", min_size=1, max_size=6)
SHAPES = st.builds(
    Shape,
    capsule=st.sampled_from(["web", "lab"]),
    argv=st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple),
    cwd=PATHS.map(lambda path: b"/src/" + path.encode()),
    is_cwd_writable=st.booleans(),
    available=st.just(frozenset({"A", "B"})),
    target=st.just(Target.HOST),
    stdin=st.sampled_from([StdinKind.NONE, StdinKind.CLOSED]),
    has_tty=st.booleans(),
    has_writable_files=st.booleans(),
    binary_sha256=DIGESTS,
    stdin_sha256=st.sampled_from(["", "c" * 64]),
    files=st.lists(st.builds(ApprovedFile, ELEMENTS, DIGESTS), max_size=2).map(tuple),
)
TICKED = st.sampled_from([(), ("A",), ("A", "B")])


def always_of(shape: Shape) -> str:
    offers = offers_of(Basis(shape, "s", "r-1", DAY, {}), denied_before=0)
    return next((one.text for one in offers if one.term.kind is GrantKind.ALWAYS), "")


def rule_of(text: str) -> Rule:
    return parse(text, origin="").rules[-1]


def without_decoration(shape: Shape) -> Shape:
    """What an always is about: trust and writability only say whether it would be offered."""
    return msgspec.structs.replace(shape, is_cwd_writable=False, has_writable_files=False)


@given(SHAPES, TICKED)
def test_what_is_offered_allows_the_request_and_is_stored_to_the_byte(
    shape: Shape, ticked: tuple[str, ...]
) -> None:
    """CASES 3d: offer text is the rule, verbatim."""
    text = always_of(shape)
    assume(text)
    stored = stored_text(text, ticked)
    config = append_rule(HEAD, stored)
    assert stored in config
    assert rule_texts(config)["r-1"] == stored
    assert remove_rules(config, {"r-1"}).split() == HEAD.split()
    verdict = decide(shape, [rule_of(config)], today=DAY)
    assert (verdict.outcome, set(verdict.bindings)) == (Outcome.ALLOW, set(ticked))


@given(SHAPES, SHAPES, st.sets(st.sampled_from(Shape.__struct_fields__)), TICKED)
def test_an_always_is_one_request_and_no_other(
    shape: Shape, other: Shape, taken: set[str], ticked: tuple[str, ...]
) -> None:
    """CASES 3d: not one byte more."""
    other = msgspec.structs.replace(shape, **{name: getattr(other, name) for name in taken})
    text = always_of(shape)
    assume(text)
    rule = rule_of(append_rule(HEAD, stored_text(text, ticked)))
    if decide(other, [rule], today=DAY).outcome is Outcome.ALLOW:
        assert key_of(other, "s") == key_of(shape, "s")
        assert without_decoration(other) == without_decoration(shape)


@given(SHAPES)
def test_no_wildcard_is_ever_offered(shape: Shape) -> None:
    text = always_of(shape)
    assume(text)
    pattern = compile_argv(rule_of(f"{HEAD}{text}\n").argv)
    assert all(element.is_literal for element in pattern.elements)
    assert [element.segments[0] for element in pattern.elements] == list(shape.argv)


@given(SHAPES, SHAPES, st.sets(st.sampled_from(Shape.__struct_fields__)))
def test_two_requests_have_one_key_only_if_they_are_the_same(
    one: Shape, other: Shape, taken: set[str]
) -> None:
    other = msgspec.structs.replace(one, **{name: getattr(other, name) for name in taken})
    same = without_decoration(one) == without_decoration(other)
    assert (key_of(one, "s") == key_of(other, "s")) == same


@given(SHAPES, st.lists(st.sampled_from(["deny", "ask"]), max_size=2), TICKED)
def test_a_grant_never_steps_over_a_rule_that_restricts(
    shape: Shape, actions: list[str], ticked: tuple[str, ...]
) -> None:
    """DESIGN §6: deny rules, ask rules, live grants, allow rules."""
    rules = parse(
        "schema = 1\n"
        + "".join(f'[[rules]]\naction = "{one}"\nargv = ["..."]\n' for one in actions),
        origin="",
    ).rules
    verdict = decide(shape, rules, today=DAY, permit=Permit("g1", ticked))
    if "deny" in actions:
        assert verdict.outcome is Outcome.DENY
    elif actions:
        assert verdict.outcome is Outcome.ASK
    else:
        assert (verdict.grant_id, verdict.bindings) == ("g1", ticked)
        changed = msgspec.structs.replace(shape, is_binary_changed=True)
        assert decide(changed, rules, today=DAY, permit=Permit("g1", ticked)).outcome is Outcome.ASK
