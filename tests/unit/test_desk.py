"""The desk's rules (DESIGN §7): events in, exact states out, no sockets and no clock."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from jackin_broker.desk import (
    OPEN_MAX_BYTES,
    OPERATOR_GRACE_S,
    TOKEN_BYTES,
    TRANSITIONS,
    Decision,
    DecisionFault,
    DecisionRefused,
    Desk,
    DeskLimits,
    Entry,
)
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.operator_protocol import (
    FINAL_STATES,
    OPERATOR_MESSAGE_MAX_BYTES,
    RequestState,
    RequestView,
    view_digest,
)
from support.operator_playbook import a_request

LIMITS = DeskLimits(approve_s=300, waiting_per_capsule=32, ask_burst=40, ask_per_s=1)


def view_of(desk: Desk, *, capsule: str = "web") -> RequestView:
    return a_request(desk.new_id(), capsule=capsule)


def yes(entry: Entry, *bindings: str) -> Decision:
    return Decision(entry.id, view_digest(entry.view), approve=True, bindings=bindings)


def fault_of(desk: Desk, decision: Decision, now: float) -> DecisionFault:
    with pytest.raises(DecisionRefused) as refused:
        desk.decide(decision, now)
    return refused.value.fault


def test_requests_wait_in_the_order_they_came() -> None:
    desk = Desk(LIMITS)
    entries = [desk.submit(view_of(desk), now) for now in (1.0, 2.0, 3.0)]
    assert [desk.position(entry) for entry in entries] == [1, 2, 3]
    desk.decide(yes(entries[0]), 4.0)
    assert [desk.position(entry) for entry in entries] == [0, 1, 2]


def test_a_decision_names_the_request_the_bindings_and_what_was_displayed() -> None:
    desk = Desk(LIMITS)
    entry = desk.submit(view_of(desk), 0.0)
    desk.decide(yes(entry, "GH_TOKEN"), 1.0)
    assert entry.state is RequestState.APPROVED
    assert entry.decision is not None
    assert entry.decision.bindings == ("GH_TOKEN",)


@pytest.mark.parametrize("digest", ["", "0" * 64])
def test_a_decision_on_something_else_than_was_displayed_is_refused(digest: str) -> None:
    desk = Desk(LIMITS)
    entry = desk.submit(view_of(desk), 0.0)
    stale = msgspec.structs.replace(yes(entry), digest=digest)
    assert fault_of(desk, stale, 1.0) is DecisionFault.CHANGED
    assert entry.state is RequestState.WAITING


def test_a_binding_that_was_not_offered_is_refused() -> None:
    desk = Desk(LIMITS)
    entry = desk.submit(view_of(desk), 0.0)
    assert fault_of(desk, yes(entry, "OTHER"), 1.0) is DecisionFault.UNKNOWN_BINDING
    assert entry.state is RequestState.WAITING


def test_expiry_is_enforced_where_the_decision_lands() -> None:
    """CASES 3c: expired approvals were still accepted (cadis#193)."""
    desk = Desk(LIMITS)
    entry = desk.submit(view_of(desk), 0.0)
    assert fault_of(desk, yes(entry), 300.0) is DecisionFault.EXPIRED
    assert entry.state is RequestState.EXPIRED


def test_a_second_decision_is_refused() -> None:
    desk = Desk(LIMITS)
    entry = desk.submit(view_of(desk), 0.0)
    desk.decide(yes(entry), 1.0)
    no = msgspec.structs.replace(yes(entry), approve=False)
    assert fault_of(desk, no, 2.0) is DecisionFault.ALREADY_DECIDED
    assert entry.state is RequestState.APPROVED


def test_an_unknown_id_is_refused() -> None:
    desk = Desk(LIMITS)
    assert fault_of(desk, Decision("x", "", approve=True), 0.0) is DecisionFault.UNKNOWN_REQUEST


def test_one_decision_releases_one_of_two_identical_requests() -> None:
    """CASES 3c: one click released N identical waiting calls (ha-mcp#2399)."""
    desk = Desk(LIMITS)
    first, second = (desk.submit(view_of(desk), 0.0) for _ in range(2))
    desk.decide(yes(first), 1.0)
    assert (first.state, second.state) == (RequestState.APPROVED, RequestState.WAITING)


def test_only_overdue_requests_expire() -> None:
    desk = Desk(LIMITS)
    old, young = desk.submit(view_of(desk), 0.0), desk.submit(view_of(desk), 100.0)
    assert desk.next_expiry() == 300.0
    assert desk.expire(300.0) == [old]
    assert young.state is RequestState.WAITING
    assert desk.next_expiry() == 400.0


def test_a_full_queue_of_one_capsule_leaves_the_others_alone() -> None:
    desk = Desk(msgspec.structs.replace(LIMITS, waiting_per_capsule=2))
    for _ in range(2):
        desk.charge("web", 0.0)
        desk.submit(view_of(desk), 0.0)
    with pytest.raises(Refusal) as refused:
        desk.charge("web", 0.0)
    assert refused.value.code is DenialCode.TOO_MANY_PENDING
    desk.charge("other", 0.0)


def test_a_flood_that_is_cancelled_each_time_still_pays() -> None:
    desk = Desk(msgspec.structs.replace(LIMITS, ask_burst=3))
    for _ in range(3):
        desk.charge("web", 0.0)
    with pytest.raises(Refusal):
        desk.charge("web", 0.5)
    desk.charge("web", 1.0)


def long_view(desk: Desk, *, capsule: str = "web") -> RequestView:
    """One that takes a whole bucket."""
    args = ("x" * (LIMITS.ask_burst * TOKEN_BYTES),)
    return msgspec.structs.replace(view_of(desk, capsule=capsule), args=args)


def test_requests_of_great_length_cost_more_and_leave_the_others_alone() -> None:
    """An operator's client gets each of them whole with every change: bytes are a flood too."""
    desk = Desk(LIMITS)
    desk.charge("web", 0.0)
    desk.submit(long_view(desk), 0.0)
    with pytest.raises(Refusal) as refused:
        desk.submit(long_view(desk), 37.0)
    assert refused.value.code is DenialCode.TOO_MANY_PENDING
    desk.submit(view_of(desk), 37.0)
    desk.submit(long_view(desk, capsule="other"), 37.0)
    desk.submit(long_view(desk), 40.0)


def test_what_is_open_is_bounded_whoever_allowed_it() -> None:
    """Or all that is on the desk fits into no message, and no operator can attach any more."""
    desk, now = Desk(LIMITS), 0.0
    for _ in range(OPEN_MAX_BYTES // (LIMITS.ask_burst * TOKEN_BYTES)):
        now += 40.0
        desk.submit(long_view(desk), now)
    with pytest.raises(Refusal):
        desk.submit(long_view(desk), now + 40.0)
    with pytest.raises(Refusal):
        desk.admit(long_view(desk), Decision("x", "", approve=True), now + 40.0)
    assert len(msgspec.json.encode(desk.views(now))) < OPERATOR_MESSAGE_MAX_BYTES / 4


def test_nobody_is_there_until_someone_attached_and_for_a_grace_after() -> None:
    desk = Desk(LIMITS)
    assert not desk.has_operator(0.0)
    desk.attach()
    assert desk.has_operator(1000.0)
    desk.detach(1000.0)
    assert desk.has_operator(1000.0 + OPERATOR_GRACE_S)
    assert not desk.has_operator(1000.1 + OPERATOR_GRACE_S)


def test_states_are_left_only_along_the_table() -> None:
    desk = Desk(LIMITS)
    for state, target in itertools.product(RequestState, RequestState):
        entry = desk.submit(view_of(desk), 0.0)
        entry.state = state
        if target in TRANSITIONS[state]:
            desk.move(entry, target)
            assert entry.state is target
        else:
            with pytest.raises(ValueError, match="cannot go"):
                desk.move(entry, target)
    assert {state for state in RequestState if not TRANSITIONS[state]} == FINAL_STATES


def test_a_rule_admits_without_waiting() -> None:
    desk = Desk(LIMITS)
    view = view_of(desk)
    entry = desk.admit(view, Decision(view.id, "", approve=True), 0.0)
    assert entry.state is RequestState.APPROVED
    assert desk.waiting() == []
    assert desk.running() == [entry]


def test_only_what_ended_leaves_the_desk() -> None:
    desk = Desk(LIMITS)
    entry = desk.submit(view_of(desk), 0.0)
    with pytest.raises(ValueError, match="stays"):
        desk.remove(entry)
    desk.move(entry, RequestState.CANCELLED)
    desk.remove(entry)
    assert desk.entry(entry.id) is None


def test_the_digest_covers_all_that_is_displayed_but_what_merely_passes() -> None:
    desk = Desk(LIMITS)
    view = view_of(desk)
    passing = {
        *("state", "position", "expires_in_s", "outcome", "exit_code"),
        *("running_s", "decided_by", "lent"),
    }
    other = msgspec.structs.replace(
        view, state=RequestState.DONE, position=9, expires_in_s=1, outcome="x", exit_code=1,
        running_s=3, decided_by="rule", lent=("A",),
    )  # fmt: skip
    assert view_digest(other) == view_digest(view)
    assert {field.name for field in msgspec.structs.fields(RequestView)} - passing == {
        "id", "capsule", "capsule_kind", "command", "args", "cwd", "capsule_cwd", "cwd_writable",
        "binary_path", "target", "confinement", "stdin", "tty", "reason", "want", "bindings",
        "files", "asked_by", "notices", "differences", "denied_before", "offers",
    }  # fmt: skip
    for changed in (
        msgspec.structs.replace(view, args=("pr", "list ")),
        msgspec.structs.replace(view, cwd="/src2"),
        msgspec.structs.replace(view, notices=("x",)),
        msgspec.structs.replace(view, bindings=()),
    ):
        assert view_digest(changed) != view_digest(view)


def test_other_limits_hold_from_then_on_for_whoever_asked_before() -> None:
    """`reload` takes a changed file; a capsule that asked before is no exception."""
    desk = Desk(msgspec.structs.replace(LIMITS, ask_burst=2))
    desk.charge("web", 0.0)
    desk.limits = msgspec.structs.replace(LIMITS, ask_burst=3, ask_per_s=3)
    for _ in range(3):
        desk.charge("web", 1.0)
    with pytest.raises(Refusal):
        desk.charge("web", 1.0)
