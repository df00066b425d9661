"""What the rules say of one request."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import msgspec
import pytest

from jackin_broker.errors import DenialCode
from jackin_broker.grants.book import RuleUse
from jackin_broker.grants.views import always_view
from jackin_broker.policy import Action, Permit, Rule, Shape, decide, has_ended
from jackin_broker.protocol import Outcome, StdinKind, Target

DAY = date(2026, 11, 30)
LIST = Shape(
    capsule="web",
    argv=(b"gh", b"pr", b"list"),
    cwd=b"/src/app",
    is_cwd_writable=False,
    available=frozenset({"GH_TOKEN", "OTHER"}),
)
ALLOW = Rule(Action.ALLOW, ("gh", "pr", "list"), number=1)


def shape(**changes: object) -> Shape:
    return msgspec.structs.replace(LIST, **changes)


def rule(**changes: object) -> Rule:
    return msgspec.structs.replace(ALLOW, **changes)


def outcome(request: Shape, *rules: Rule, today: date = DAY) -> Outcome:
    return decide(request, rules, today=today).outcome


def test_without_a_rule_the_operator_is_asked() -> None:
    """DESIGN §6: else ask."""
    verdict = decide(LIST, [], today=DAY)
    assert (verdict.outcome, verdict.reason) == (Outcome.ASK, "no rule names this command")


def test_allow_rule_delivers_its_bindings_and_is_named() -> None:
    """DESIGN §6: the bindings that it delivers, all of them."""
    verdict = decide(LIST, [rule(bindings=("GH_TOKEN", "OTHER"), number=4)], today=DAY)
    assert verdict.outcome is Outcome.ALLOW
    assert verdict.bindings == ("GH_TOKEN", "OTHER")
    assert verdict.rule is not None
    assert verdict.rule.number == 4
    assert verdict.reason == "rule 4 (allow gh pr list) allows it"


def test_deny_before_ask_before_allow_whatever_the_order_in_the_file() -> None:
    """DESIGN §6: order."""
    allow, ask, deny = rule(), rule(action=Action.ASK), rule(action=Action.DENY)
    assert outcome(LIST, allow, ask, deny) is Outcome.DENY
    assert outcome(LIST, allow, ask) is Outcome.ASK
    assert decide(LIST, [allow, deny], today=DAY).code is DenialCode.RULE_DENIED


def test_first_rule_of_a_kind_that_matches_decides() -> None:
    """DESIGN §14: the first of its kind that matches."""
    verdict = decide(
        LIST,
        [rule(stdin=StdinKind.LIVE, tty=True, argv=("gh", "x")), rule(number=2), rule(number=3)],
        today=DAY,
    )
    assert verdict.rule is not None
    assert verdict.rule.number == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"capsule": "we"},
        {"capsule": "web?"},
        {"argv": ("gh", "pr")},
        {"cwd": "/src"},
        {"cwd": "/src/ap"},
        {"cwd": "/src/app/**/x"},
        {"cwd": "/src/ap/**"},
        {"target": Target.CAPSULE},
    ],
)
def test_allow_rule_that_names_something_else_does_not_match(changes: dict[str, object]) -> None:
    """DESIGN §6: a rule names capsule, argv, cwd, target."""
    assert outcome(LIST, rule(**changes)) is Outcome.ASK


@pytest.mark.parametrize(
    "changes",
    [
        {"capsule": "w*"},
        {"argv": ("gh", "*", "*")},
        {"cwd": "/src/app"},
        {"cwd": "/src/**"},
        {"cwd": "/src/app/**"},
        {"cwd": "/**"},
        {"target": Target.HOST},
    ],
)
def test_allow_rule_that_names_it_matches(changes: dict[str, object]) -> None:
    """DESIGN §6."""
    assert outcome(LIST, rule(**changes)) is Outcome.ALLOW


def test_want_outside_the_rules_bindings_asks() -> None:
    """DESIGN §6: a `want` outside makes it ask."""
    with_token = rule(bindings=("GH_TOKEN",))
    assert outcome(shape(want=("GH_TOKEN",)), with_token) is Outcome.ALLOW
    assert outcome(shape(want=("GH_TOKEN", "OTHER")), with_token) is Outcome.ASK
    assert outcome(shape(want=("GH_TOKEN",)), rule()) is Outcome.ASK


def test_binding_that_the_capsule_does_not_have_is_never_delivered() -> None:
    """A rule for every capsule does not lend one capsule's binding to another."""
    assert outcome(shape(available=frozenset({"OTHER"})), rule(bindings=("GH_TOKEN",))) is (
        Outcome.ASK
    )


@pytest.mark.parametrize("changed", [{"is_cwd_writable": True}, {"has_writable_files": True}])
def test_credentials_are_not_lent_where_the_agent_can_write(changed: dict[str, object]) -> None:
    """DESIGN §6: unless it says `trust_cwd = true`; a rule without bindings lends nothing."""
    there = shape(**changed)
    with_token = rule(bindings=("GH_TOKEN",))
    assert outcome(there, with_token) is Outcome.ASK
    assert "trust_cwd" in decide(there, [with_token], today=DAY).reason
    assert outcome(there, msgspec.structs.replace(with_token, trust_cwd=True)) is Outcome.ALLOW
    assert outcome(there, rule()) is Outcome.ALLOW


@pytest.mark.parametrize("admitted", list(StdinKind))
@pytest.mark.parametrize("given", list(StdinKind))
def test_stdin_is_the_most_that_a_rule_admits(admitted: StdinKind, given: StdinKind) -> None:
    """DESIGN §6: none, the default; closed; live."""
    order = [StdinKind.NONE, StdinKind.CLOSED, StdinKind.LIVE]
    expected = order.index(given) <= order.index(admitted)
    assert (outcome(shape(stdin=given), rule(stdin=admitted)) is Outcome.ALLOW) is expected


def test_terminal_is_not_admitted_by_default() -> None:
    """DESIGN §6: `tty` (default no)."""
    assert outcome(shape(has_tty=True), rule()) is Outcome.ASK
    assert outcome(shape(has_tty=True), rule(tty=True)) is Outcome.ALLOW


def test_capsule_target_needs_a_rule_that_says_so() -> None:
    """An allow rule without a target is about the host; a deny rule about both."""
    inside = shape(target=Target.CAPSULE)
    assert outcome(inside, rule()) is Outcome.ASK
    assert outcome(inside, rule(target=Target.CAPSULE)) is Outcome.ALLOW
    assert outcome(inside, rule(action=Action.DENY)) is Outcome.DENY


def test_binary_that_changed_since_start_is_always_asked() -> None:
    """DESIGN §6: changed since start: always asked; a deny rule still denies."""
    changed = shape(is_binary_changed=True)
    assert outcome(changed, rule()) is Outcome.ASK
    assert outcome(changed, rule(), rule(action=Action.DENY)) is Outcome.DENY


@pytest.mark.parametrize("action", [Action.DENY, Action.ASK])
@pytest.mark.parametrize(
    "given",
    [
        {"stdin": StdinKind.LIVE},
        {"has_tty": True},
        {"want": ("OTHER",)},
        {"is_cwd_writable": True},
        {"argv": (b"gh", b"--paginate", b"list")},
        {"argv": (b"gh", b"pr", b"list", b"--web")},
    ],
)
def test_agent_cannot_step_out_of_a_restricting_rule(
    action: Action, given: dict[str, object]
) -> None:
    """Nothing that the agent chooses besides what the rule names narrows deny or ask."""
    restrict = rule(action=action, argv=("gh", "*", "**"), bindings=("GH_TOKEN",), number=2)
    anything = rule(argv=("...",), stdin=StdinKind.LIVE, tty=True)
    assert outcome(shape(want=()), anything) is Outcome.ALLOW
    assert decide(shape(**given), [anything, restrict], today=DAY).rule == restrict


def test_rule_holds_through_its_last_day() -> None:
    """A date is the last day; then a deny rule ends as well as an allow rule."""
    for action, during in ((Action.ALLOW, Outcome.ALLOW), (Action.DENY, Outcome.DENY)):
        ends = rule(action=action, expires=DAY)
        assert outcome(LIST, ends) is during
        assert outcome(LIST, ends, today=DAY + timedelta(days=1)) is Outcome.ASK


def test_end_at_a_time_is_kept_across_offsets_and_a_bare_day_counts_as_over() -> None:
    """A moment is a moment, in whatever offset it is written."""
    end = datetime(2026, 11, 30, 12, tzinfo=UTC)
    before = datetime(2026, 11, 30, 13, 59, tzinfo=timezone(timedelta(hours=2)))
    assert not has_ended(end, before)
    assert has_ended(end, before + timedelta(minutes=1))
    assert has_ended(end, DAY)
    assert not has_ended(end, DAY - timedelta(days=1))
    assert not has_ended(DAY, datetime(2026, 11, 30, 23, 59, tzinfo=UTC))
    local = datetime(2026, 11, 30, 12)  # TOML's local date-time
    assert has_ended(local, local.astimezone())
    assert not has_ended(local, local.astimezone() - timedelta(seconds=1))


def test_reason_says_why_the_nearest_rule_did_not_match() -> None:
    """A person who wrote a rule and is asked anyway reads why."""
    verdict = decide(shape(stdin=StdinKind.LIVE), [rule(number=3)], today=DAY)
    assert verdict.reason == (
        "rule 3 (allow gh pr list) would allow it, but stdin is live and it admits none"
    )
    assert decide(LIST, [rule(expires=date(2026, 1, 1))], today=DAY).reason.endswith(
        "but it has ended"
    )


@pytest.mark.parametrize(
    "argv",
    [
        (b"python3", b"bad.py"),
        (b"env", b"python3", b"safe.py"),
        (b"/usr/bin/python3", b"safe.py"),
        (b"python3", b"-c", b"safe.py"),
        (b"python3", b"safe.py", b"more"),
        (b"python3", b"safe.py;id"),
        (b"python3 safe.py",),
    ],
)
def test_allowed_script_allows_nothing_near_it(argv: tuple[bytes, ...]) -> None:
    """CASES 3d: exact argv; wrappers and interpreters are never generalised."""
    safe = rule(argv=("python3", "safe.py"))
    assert outcome(shape(argv=(b"python3", b"safe.py")), safe) is Outcome.ALLOW
    assert outcome(shape(argv=argv), safe) is Outcome.ASK


def test_a_live_grant_comes_after_ask_rules_and_before_allow_rules() -> None:
    """DESIGN §6: deny rules, ask rules, live grants, allow rules, else ask."""
    permit = Permit("g1", ("GH_TOKEN",))
    verdict = decide(LIST, [rule()], today=DAY, permit=permit)
    assert (verdict.outcome, verdict.grant_id) == (Outcome.ALLOW, "g1")
    assert (verdict.bindings, verdict.reason) == (("GH_TOKEN",), "grant g1 allows it")
    for action, expected in ((Action.DENY, Outcome.DENY), (Action.ASK, Outcome.ASK)):
        restricted = decide(LIST, [rule(action=action)], today=DAY, permit=permit)
        assert (restricted.outcome, restricted.grant_id) == (expected, "")


@pytest.mark.parametrize(
    "changed",
    [
        {"is_binary_changed": True},
        {"suspended": frozenset({"GH_TOKEN"})},
        {"available": frozenset[str]()},
        {"are_values_readable": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_neither_grant_nor_rule_gives_what_may_not_be_given_unasked(
    changed: dict[str, object],
) -> None:
    """DESIGN §6, §9, §10: a changed program, a guessed binding, values that the agent can read."""
    request = shape(**changed)
    lending = rule(bindings=("GH_TOKEN",))
    assert outcome(LIST, lending) is Outcome.ALLOW
    assert outcome(request, lending) is Outcome.ASK
    permit = Permit("g1", ("GH_TOKEN",))
    assert decide(request, [], today=DAY, permit=permit).outcome is Outcome.ASK


def test_a_digest_narrows_a_rule_that_a_person_wrote_too() -> None:
    pinned = rule(binary_sha256="a" * 64, stdin=StdinKind.CLOSED, stdin_sha256="b" * 64)
    right = shape(binary_sha256="a" * 64, stdin=StdinKind.CLOSED, stdin_sha256="b" * 64)
    assert outcome(right, pinned) is Outcome.ALLOW
    assert outcome(LIST, pinned) is Outcome.ASK
    assert outcome(msgspec.structs.replace(right, stdin_sha256="c" * 64), pinned) is Outcome.ASK
    verdict = decide(msgspec.structs.replace(right, binary_sha256=""), [pinned], today=DAY)
    assert "the program is not the one that was approved" in verdict.reason


def test_what_an_approval_wrote_restricts_as_widely_as_any_deny_rule() -> None:
    denied = rule(action=Action.DENY, id="r-1", binary_sha256="a" * 64, files=())
    live = shape(stdin=StdinKind.LIVE, has_tty=True, files=None)
    assert outcome(live, denied) is Outcome.DENY


@pytest.mark.parametrize(
    ("end", "is_over"),
    [
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-12))), False),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12))), True),
        (date(9999, 12, 31), False),
        (date(1, 1, 1), True),
    ],
)
def test_a_rule_may_end_with_the_calendar(end: date, is_over: bool) -> None:
    """A zone leads out of it, and every request of every capsule failed."""
    ends = rule(expires=end, id="r-1")
    now = datetime(2026, 11, 30, tzinfo=UTC)
    assert outcome(LIST, ends, today=now) is (Outcome.ASK if is_over else Outcome.ALLOW)
    view = always_view(ends, RuleUse(), "", now)
    assert view.expires_at is not None
    assert (view.expires_at < now.timestamp()) is is_over
    assert datetime.fromtimestamp(view.expires_at, timezone(timedelta(hours=14)))
