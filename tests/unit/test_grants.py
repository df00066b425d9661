"""Grants: one key a command, two clocks, nothing decorative (DESIGN §6)."""

from __future__ import annotations

from datetime import date

import msgspec
import pytest

from jackin_broker.errors import JackinError
from jackin_broker.grants.ledger import (
    GRANTS_MAX,
    Basis,
    Grant,
    Ledger,
    Moment,
    check_term,
    key_of,
)
from jackin_broker.operator_views import GrantKind, GrantTerm
from jackin_broker.policy import ApprovedFile, Permit, Shape
from jackin_broker.protocol import StdinKind, Target

NOW = Moment(1_800_000_000.0, 5_000.0)
SHAPE = Shape(
    capsule="web",
    argv=(b"gh", b"pr", b"list"),
    cwd=b"/src/app",
    is_cwd_writable=True,
    available=frozenset({"GH_TOKEN", "OTHER"}),
    binary_sha256="b" * 64,
)
TRAITS = {"": "confined", "GH_TOKEN": "keyring github", "OTHER": "file"}


def shape(**changes: object) -> Shape:
    return msgspec.structs.replace(SHAPE, **changes)


def a_grant(**changes: object) -> Grant:
    usual = Grant(
        id="g1",
        capsule="web",
        command="gh",
        session_id="s1",
        key_sha256=key_of(SHAPE, "s1"),
        want=(),
        bindings=("GH_TOKEN",),
        traits={"": "confined", "GH_TOKEN": "keyring github"},
        text="",
        made_at=NOW.wall_s,
        expires_at=NOW.wall_s + 60,
        steady_end_s=NOW.steady_s + 60,
    )
    return msgspec.structs.replace(usual, **changes)


def find(ledger: Ledger, request: Shape = SHAPE, now: Moment = NOW) -> Permit | None:
    return ledger.find(key_of(request, "s1"), request.want, TRAITS, now)


def ledger_with(*grants: Grant) -> Ledger:
    ledger = Ledger()
    for grant in grants:
        ledger.add(grant, NOW)
    return ledger


def later(seconds: float) -> Moment:
    return Moment(NOW.wall_s + seconds, NOW.steady_s + seconds)


@pytest.mark.parametrize(
    "changed",
    [
        {"argv": (b"gh", b"pr", b"list", b"")},
        {"argv": (b"gh", b"pr list")},
        {"argv": (b"gh", b"prlist")},
        {"capsule": "lab"},
        {"cwd": b"/src/app2"},
        {"stdin": StdinKind.CLOSED, "stdin_sha256": "a" * 64},
        {"has_tty": True},
        {"target": Target.CAPSULE},
        {"binary_sha256": "c" * 64},
        {"files": (ApprovedFile(b"list", "d" * 64),)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_whatever_would_run_differently_has_another_key(changed: dict[str, object]) -> None:
    """CASES 3d: key = argv + cwd + files + stdin + terminal + capsule + target + binary."""
    assert key_of(shape(**changed), "s1") not in ("", key_of(SHAPE, "s1"))


def test_another_session_of_the_capsule_has_another_key() -> None:
    """CASES 3c: grants belong to our session id."""
    assert key_of(SHAPE, "s1") != key_of(SHAPE, "s2")


@pytest.mark.parametrize(
    "decorative",
    [
        {"want": ("GH_TOKEN",)},
        {"available": frozenset[str]()},
        {"is_cwd_writable": False},
        {"suspended": frozenset({"OTHER"})},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_nothing_decorative_is_part_of_a_key(decorative: dict[str, object]) -> None:
    assert key_of(shape(**decorative), "s1") == key_of(SHAPE, "s1")


@pytest.mark.parametrize(
    "odd",
    [
        {"stdin": StdinKind.LIVE},
        {"files": None},
        {"is_binary_changed": True},
        {"binary_sha256": ""},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_cannot_be_fixed_is_approved_once_alone(odd: dict[str, object]) -> None:
    """DESIGN §6: a live stdin is never granted beyond once; a changed program is always asked."""
    basis = Basis(shape(**odd), "s1", "r-1", date(2026, 11, 30), {})
    assert basis.key_sha256 == ""
    assert find(ledger_with(a_grant(key_sha256="")), shape(**odd)) is None


def test_a_live_grant_permits_the_very_command_with_the_ticked_bindings() -> None:
    assert find(ledger_with(a_grant())) == Permit("g1", ("GH_TOKEN",))


@pytest.mark.parametrize(
    ("wanted", "is_permitted"), [((), True), (("GH_TOKEN",), True), (("OTHER",), False)]
)
def test_wanting_more_than_the_grant_gives_is_asked(
    wanted: tuple[str, ...], is_permitted: bool
) -> None:
    assert bool(find(ledger_with(a_grant()), shape(want=wanted))) == is_permitted


def test_a_wish_that_the_operator_saw_and_did_not_tick_is_still_theirs_to_know() -> None:
    ledger = ledger_with(a_grant(bindings=(), traits={"": "confined"}, want=("OTHER",)))
    assert find(ledger, shape(want=("OTHER",))) == Permit("g1", ())
    assert find(ledger, shape(want=("OTHER", "GH_TOKEN"))) is None


@pytest.mark.parametrize("changed", [{"GH_TOKEN": "keyring admin"}, {"": "unconfined"}])
def test_another_source_or_confinement_ends_what_was_granted(changed: dict[str, str]) -> None:
    ledger = ledger_with(a_grant())
    assert ledger.find(key_of(SHAPE, "s1"), (), TRAITS | changed, NOW) is None


@pytest.mark.parametrize(
    "now",
    [
        Moment(NOW.wall_s + 60, NOW.steady_s + 1),  # the machine slept
        Moment(NOW.wall_s - 9_999, NOW.steady_s + 60),  # somebody set the clock back
    ],
)
def test_an_expired_grant_is_ignored_whichever_clock_says_so(now: Moment) -> None:
    """CASES 3d: expired is ignored."""
    ledger = ledger_with(a_grant())
    assert find(ledger, now=later(59)) is not None
    assert find(ledger, now=now) is None
    assert ledger.live(now) == ()


def test_counted_uses_end_with_the_last() -> None:
    ledger = ledger_with(a_grant(uses_left=2))
    for left in (1, 0):
        permit = find(ledger)
        assert permit is not None
        ledger.use(permit.grant_id, NOW)
        assert [one.uses_left for one in ledger.live(NOW)] == ([left] if left else [])
    assert find(ledger) is None


def test_a_use_is_noted() -> None:
    ledger = ledger_with(a_grant())
    assert ledger.live(NOW)[0].last_used_at is None
    ledger.use("g1", later(5))
    assert ledger.live(later(5))[0].last_used_at == NOW.wall_s + 5


def test_revoked_is_gone_one_by_one_or_all_at_once() -> None:
    ledger = ledger_with(a_grant(), a_grant(id="g2"), a_grant(id="g3"))
    assert ledger.revoke("g1")
    assert not ledger.revoke("g1")
    assert [one.id for one in ledger.live(NOW)] == ["g2", "g3"]
    assert ledger.revoke_all() == 2
    assert find(ledger) is None


def test_a_session_that_ended_takes_its_grants_along() -> None:
    ledger = ledger_with(a_grant(), a_grant(id="g2", session_id="s2"), a_grant(id="g3"))
    ledger.end_session("web", "s1")
    assert [one.id for one in ledger.live(NOW)] == ["g2"]


def test_there_are_never_more_grants_than_somebody_reviews() -> None:
    ledger = ledger_with(*(a_grant(id=f"g{number}") for number in range(GRANTS_MAX)))
    with pytest.raises(JackinError, match="in force already"):
        ledger.add(a_grant(id="more"), NOW)
    ledger.add(a_grant(id="more", expires_at=NOW.wall_s + 999), later(61))


@pytest.mark.parametrize("kind", [GrantKind.MINUTES, GrantKind.USES, GrantKind.ALWAYS])
@pytest.mark.parametrize("amount", [-1, 0, 10_000])
def test_every_grant_has_an_end_within_reason(kind: GrantKind, amount: int) -> None:
    """CASES 3d: every stored grant has an expiry."""
    check_term(GrantTerm(kind, 1))
    with pytest.raises(JackinError):
        check_term(GrantTerm(kind, amount))
