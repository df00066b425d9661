"""Policy over many rules and requests: what must hold whatever they are."""

from __future__ import annotations

from datetime import date

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.patterns import compile_argv
from jackin_broker.policy import Action, ApprovedFile, Rule, Shape, decide
from jackin_broker.protocol import Outcome, StdinKind, Target
from jackin_broker.rule_standing import Standing, explain

DAY = date(2026, 11, 30)
WORDS = st.sampled_from(["gh", "git", "-f", "--x=1", "a", "", "*", "-*", "a*"])
BINDINGS = st.lists(st.sampled_from(["A", "B"]), unique=True, max_size=2).map(tuple)
FILES = (ApprovedFile(b"a", "d"),)
RULES = st.builds(
    Rule,
    action=st.sampled_from(Action),
    argv=st.tuples(
        st.lists(WORDS, min_size=1, max_size=3), st.sampled_from([[], ["**"], ["..."]])
    ).map(lambda parts: tuple(parts[0] + parts[1])),
    capsule=st.sampled_from(["*", "web", "lab"]),
    cwd=st.sampled_from(["", "/a", "/a/**"]),
    bindings=BINDINGS,
    target=st.sampled_from([None, *Target]),
    stdin=st.sampled_from(StdinKind),
    tty=st.booleans(),
    trust_cwd=st.booleans(),
    expires=st.sampled_from([None, date(2026, 1, 1), date(2027, 1, 1)]),
    id=st.sampled_from(["", "r-1"]),
    binary_sha256=st.sampled_from(["", "a"]),
    stdin_sha256=st.sampled_from(["", "b"]),
    files=st.sampled_from([None, (), FILES]),
)
SHAPES = st.builds(
    Shape,
    capsule=st.sampled_from(["web", "lab"]),
    argv=st.lists(WORDS.map(str.encode), min_size=1, max_size=4).map(tuple),
    cwd=st.sampled_from([b"/a", b"/a/b", b"/b"]),
    is_cwd_writable=st.booleans(),
    available=BINDINGS.map(frozenset),
    want=BINDINGS,
    target=st.sampled_from(Target),
    stdin=st.sampled_from(StdinKind),
    has_tty=st.booleans(),
    has_writable_files=st.booleans(),
    is_binary_changed=st.booleans(),
    suspended=BINDINGS.map(frozenset),
    binary_sha256=st.sampled_from(["", "a", "c"]),
    stdin_sha256=st.sampled_from(["", "b"]),
    files=st.sampled_from([None, (), FILES]),
    are_values_readable=st.booleans(),
)
RULE_LISTS = st.lists(RULES, max_size=5)


@given(SHAPES, RULE_LISTS)
def test_allowed_only_by_a_rule_that_names_the_argv(shape: Shape, rules: list[Rule]) -> None:
    """DESIGN §6: no rule is satisfied by an argv that it does not name element by element."""
    verdict = decide(shape, rules, today=DAY)
    if verdict.outcome is not Outcome.ALLOW:
        assert verdict.bindings == ()
        return
    rule = verdict.rule
    assert rule is not None
    assert compile_argv(rule.argv).matches(shape.argv)
    assert set(shape.want) <= set(verdict.bindings) <= shape.available
    assert verdict.bindings == rule.bindings
    assert not shape.is_binary_changed
    assert not shape.suspended.intersection(verdict.bindings)
    assert not (verdict.bindings and shape.are_values_readable)
    assert rule.binary_sha256 in ("", shape.binary_sha256)
    assert rule.files in (None, shape.files)
    if verdict.bindings and not rule.trust_cwd:
        assert not shape.is_cwd_writable
        assert not shape.has_writable_files


@given(SHAPES, RULE_LISTS, st.integers(0, 5))
def test_deny_always_wins(shape: Shape, rules: list[Rule], place: int) -> None:
    """DESIGN §6: a deny rule that names the command decides, wherever it stands."""
    argv = tuple(
        "\\*" if word == b"*" else word.decode().replace("*", "\\*") for word in shape.argv
    )
    rules.insert(place, Rule(Action.DENY, argv))
    assert decide(shape, rules, today=DAY).outcome is Outcome.DENY


@given(SHAPES, RULE_LISTS)
def test_restricting_rules_only_restrict(shape: Shape, rules: list[Rule]) -> None:
    """Taking deny and ask rules away never takes an allowance away."""
    allow_only = [rule for rule in rules if rule.action is Action.ALLOW]
    if decide(shape, rules, today=DAY).outcome is Outcome.ALLOW:
        assert decide(shape, allow_only, today=DAY).outcome is Outcome.ALLOW


@given(SHAPES, RULE_LISTS)
def test_nothing_that_the_agent_adds_turns_a_denial(shape: Shape, rules: list[Rule]) -> None:
    """stdin, terminal and wanted bindings are the agent's to choose."""
    if decide(shape, rules, today=DAY).outcome is not Outcome.DENY:
        return
    for stdin in StdinKind:
        for has_tty in (False, True):
            other = msgspec.structs.replace(shape, stdin=stdin, has_tty=has_tty, want=())
            assert decide(other, rules, today=DAY).outcome is Outcome.DENY


@given(SHAPES, RULE_LISTS)
def test_no_wildcard_admits_an_option(shape: Shape, rules: list[Rule]) -> None:
    """DESIGN §6: `*` and `**` never take what begins with a dash; `...` says that it does."""
    rule = decide(shape, rules, today=DAY).rule
    if rule is None or rule.action is not Action.ALLOW or rule.argv[-1] == "...":
        return
    options = [word for word in shape.argv if word.startswith(b"-")]
    named = [pattern for pattern in rule.argv if pattern.startswith("-")]
    assert len(options) <= len(named)


@given(SHAPES, RULE_LISTS)
def test_the_rule_that_is_said_to_decide_is_the_one_that_does(
    shape: Shape, rules: list[Rule]
) -> None:
    """`config check --explain` cannot drift from what is decided."""
    rules = [msgspec.structs.replace(rule, number=number) for number, rule in enumerate(rules, 1)]
    verdict, findings = explain(shape, rules, today=DAY)
    assert verdict == decide(shape, rules, today=DAY)
    deciding = [one.rule for one in findings if one.standing is Standing.DECIDES]
    assert deciding == ([verdict.rule] if verdict.rule is not None else [])
    assert len(findings) == len(rules)
    assert all(one.words for one in findings if one.standing is not Standing.DECIDES)


@given(SHAPES, RULE_LISTS, st.booleans())
def test_a_pattern_parts_from_an_argv_where_it_does_not_match(
    shape: Shape, rules: list[Rule], with_options: bool
) -> None:
    for rule in rules:
        pattern = compile_argv(rule.argv)
        parted = pattern.mismatch(shape.argv, with_options=with_options)
        assert (parted is None) == pattern.matches(shape.argv, with_options=with_options)
