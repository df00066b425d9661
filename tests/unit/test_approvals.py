"""The desk's asynchronous side: who waits, who is told, what ends a wait."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from jackin_broker.approvals import Approvals
from jackin_broker.bindings import Redact
from jackin_broker.desk import Decision, DecisionRefused, Desk, DeskLimits
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.operator_protocol import (
    GrantKind,
    GrantOffer,
    GrantTerm,
    RequestState,
    RequestView,
    view_digest,
)
from jackin_broker.redact.needles import build
from support.operator_playbook import a_request

LIMITS = DeskLimits(approve_s=300, waiting_per_capsule=32, ask_burst=40, ask_per_s=1)


def answer(one: RequestView, *, approve: bool = True, reason: str = "") -> Decision:
    return Decision(one.id, view_digest(one), approve=approve, reason=reason)


def play(scene: Callable[[Approvals], Awaitable[None]], *, limits: DeskLimits = LIMITS) -> None:
    async def go() -> None:
        approvals = Approvals(Desk(limits), wait_without_operator=False)
        async with asyncio.timeout(10):
            await scene(approvals)

    asyncio.run(go())


def told(approvals: Approvals) -> list[tuple[str, str, str]]:
    """Attach an operator; what it is told, as (id, state, outcome)."""
    heard: list[tuple[str, str, str]] = []
    approvals.listen(lambda one: heard.append((one.id, one.state.value, one.outcome)), counts=True)
    return heard


def test_nobody_attached_is_a_fast_and_distinct_denial() -> None:
    """CASES 3c: a prompt that was never shown blocked for 25 minutes (claude-code#56764)."""

    async def scene(approvals: Approvals) -> None:
        with pytest.raises(Refusal) as refused:
            approvals.ask(a_request("a"))
        assert refused.value.code is DenialCode.NO_OPERATOR
        assert approvals.desk.waiting() == []

    play(scene)


def test_with_wait_a_request_stays_until_someone_comes() -> None:
    async def scene(approvals: Approvals) -> None:
        approvals.wait_without_operator = True
        entry = approvals.ask(a_request("a"))
        waiter = asyncio.ensure_future(approvals.answer(entry))
        told(approvals)
        approvals.decide(answer(entry.view))
        assert (await waiter).approve

    play(scene)


def test_an_approval_reaches_its_waiter_and_every_listener() -> None:
    async def scene(approvals: Approvals) -> None:
        heard = told(approvals)
        entry = approvals.ask(a_request("a"))
        waiter = asyncio.ensure_future(approvals.answer(entry))
        await asyncio.sleep(0)
        approvals.decide(answer(entry.view))
        assert (await waiter).id == "a"
        for state in (RequestState.RESOLVING, RequestState.RUNNING):
            approvals.advance(entry, state)
        approvals.finish(entry, RequestState.DONE, "exit", 3)
        assert heard == [
            ("a", "waiting", ""),
            ("a", "approved", ""),
            ("a", "resolving", ""),
            ("a", "running", ""),
            ("a", "done", "exit"),
        ]
        assert approvals.desk.entry("a") is None

    play(scene)


def test_a_denial_carries_the_operators_reason_and_tells_not_to_repeat() -> None:
    async def scene(approvals: Approvals) -> None:
        told(approvals)
        entry = approvals.ask(a_request("a"))
        waiter = asyncio.ensure_future(approvals.answer(entry))
        approvals.decide(answer(entry.view, approve=False, reason="use the staging key"))
        with pytest.raises(Refusal, match="staging key") as refused:
            await waiter
        assert refused.value.code is DenialCode.OPERATOR_DENIED
        assert "do not repeat" in refused.value.hint

    play(scene)


def test_expiry_and_denial_are_told_apart() -> None:
    """CASES 3c: timeouts were reported as "denied by user" (even-realities#40)."""

    async def scene(approvals: Approvals) -> None:
        heard = told(approvals)
        entry = approvals.ask(a_request("a"))
        with pytest.raises(Refusal) as refused:
            await approvals.answer(entry)
        assert refused.value.code is DenialCode.EXPIRED
        assert heard[-1] == ("a", "expired", "expired")
        with pytest.raises(DecisionRefused):
            approvals.decide(answer(entry.view))

    play(scene, limits=msgspec.structs.replace(LIMITS, approve_s=0.05))


def test_a_caller_that_goes_away_closes_its_prompt() -> None:
    """CASES 3c: the client was gone and the prompt stayed (lettabot#127)."""

    async def scene(approvals: Approvals) -> None:
        heard = told(approvals)
        entry = approvals.ask(a_request("a"))
        waiter = asyncio.ensure_future(approvals.answer(entry))
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert heard[-1] == ("a", "cancelled", "caller_gone")
        assert approvals.desk.waiting() == []

    play(scene)


def test_a_caller_that_goes_away_as_it_is_answered_leaves_nothing_on_the_desk() -> None:
    """Whoever hangs up in the moment of the answer must not fill the desk with dead requests."""

    async def scene(approvals: Approvals) -> None:
        told(approvals)
        entry = approvals.ask(a_request("a"))
        waiter = asyncio.ensure_future(approvals.answer(entry))
        await asyncio.sleep(0)
        approvals.decide(answer(entry.view, approve=False))
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert approvals.desk.views(approvals.now()) == ()

    play(scene)


def test_two_operators_see_the_same_queue_and_the_first_decision_wins() -> None:
    async def scene(approvals: Approvals) -> None:
        one, other = told(approvals), told(approvals)
        entry = approvals.ask(a_request("a"))
        waiter = asyncio.ensure_future(approvals.answer(entry))
        approvals.decide(answer(entry.view))
        with pytest.raises(DecisionRefused, match="already"):
            approvals.decide(answer(entry.view, approve=False))
        assert (await waiter).approve
        assert one == other

    play(scene)


def test_one_decision_runs_one_of_two_identical_requests() -> None:
    async def scene(approvals: Approvals) -> None:
        told(approvals)
        first, second = approvals.ask(a_request("a")), approvals.ask(a_request("b"))
        waiters = [asyncio.ensure_future(approvals.answer(entry)) for entry in (first, second)]
        approvals.decide(answer(first.view))
        done, pending = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(pending)) == (1, 1)
        assert second.state is RequestState.WAITING
        for waiter in pending:
            waiter.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    play(scene)


def test_a_thousand_requests_leave_at_most_the_limit_and_the_rest_is_told_at_once() -> None:
    """CASES 3c: a looping model flooded the approver (posthog#67967)."""

    async def scene(approvals: Approvals) -> None:
        told(approvals)
        for number in range(32):
            approvals.ask(a_request(str(number)))
        for number in range(32, 1000):
            with pytest.raises(Refusal) as refused:
                approvals.ask(a_request(str(number)))
            assert refused.value.code is DenialCode.TOO_MANY_PENDING
        assert len(approvals.desk.waiting()) == 32

    play(scene)


def test_when_the_last_operator_leaves_for_good_what_waits_is_denied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jackin_broker.approvals.OPERATOR_GRACE_S", 0.05)

    async def scene(approvals: Approvals) -> None:
        leave = approvals.listen(lambda _: None, counts=True)
        entry = approvals.ask(a_request("a"))
        leave()
        with pytest.raises(Refusal) as refused:
            await approvals.answer(entry)
        assert refused.value.code is DenialCode.NO_OPERATOR

    play(scene)


def test_who_can_be_met_counts_as_long_as_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is attached, a popup would be seen (DESIGN §7); then they go away."""
    monkeypatch.setattr("jackin_broker.approvals.OPERATOR_GRACE_S", 0.02)

    async def scene(approvals: Approvals) -> None:
        looks: list[bool] = []

        async def reach() -> bool:
            looks.append(len(looks) < 4)
            return looks[-1]

        approvals.reach = reach
        assert await approvals.find_operator()
        entry = approvals.ask(a_request("a"))
        with pytest.raises(Refusal) as refused:
            await approvals.answer(entry)
        assert refused.value.code is DenialCode.NO_OPERATOR
        assert looks == [True, True, True, True, False]
        assert not await approvals.find_operator()

    play(scene)


def test_an_operator_who_comes_back_in_time_still_has_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jackin_broker.approvals.OPERATOR_GRACE_S", 0.05)

    async def scene(approvals: Approvals) -> None:
        leave = approvals.listen(lambda _: None, counts=True)
        entry = approvals.ask(a_request("a"))
        waiter = asyncio.ensure_future(approvals.answer(entry))
        leave()
        told(approvals)
        await asyncio.sleep(0.2)
        assert not waiter.done()
        approvals.decide(answer(entry.view))
        assert (await waiter).approve

    play(scene)


def test_deny_all_is_about_one_capsule_and_tells_each_why() -> None:
    """DESIGN §6: "deny all from this capsule" is one key."""

    async def scene(approvals: Approvals) -> None:
        heard = told(approvals)
        entries = [approvals.ask(a_request(name, capsule=name[0])) for name in ("a1", "b1", "a2")]
        waiters = [asyncio.ensure_future(approvals.answer(entry)) for entry in entries]
        assert approvals.deny_all("a", "you loop") == 2
        for waiter in (waiters[0], waiters[2]):
            with pytest.raises(Refusal, match="you loop") as refused:
                await waiter
            assert refused.value.code is DenialCode.OPERATOR_DENIED
        assert [entry.id for entry in approvals.desk.waiting()] == ["b1"]
        assert ("a2", "denied", "operator_denied") in heard
        assert approvals.deny_all("", "") == 1
        with pytest.raises(Refusal):
            await waiters[1]

    play(scene)


def test_what_was_approved_and_has_not_begun_can_still_be_ended() -> None:
    async def scene(approvals: Approvals) -> None:
        told(approvals)
        entry = approvals.ask(a_request("a"))
        assert not approvals.stop(entry)
        approvals.decide(answer(entry.view))
        approvals.check_wanted(entry)
        assert approvals.stop(entry)
        with pytest.raises(Refusal) as refused:
            approvals.check_wanted(entry)
        assert refused.value.code is DenialCode.OPERATOR_DENIED
        await approvals.answer(entry)

    play(scene)


def test_what_an_ended_request_waits_for_is_not_waited_for_any_more() -> None:
    """A keyring's own window may stay open for ever."""

    async def scene(approvals: Approvals) -> None:
        told(approvals)
        entry = approvals.ask(a_request("a"))
        approvals.decide(answer(entry.view))
        await approvals.answer(entry)
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        begun = asyncio.Event()

        async def window() -> None:
            begun.set()
            await left

        waiting = asyncio.ensure_future(approvals.unless_stopped(entry, window()))
        await begun.wait()
        assert approvals.stop(entry)
        for refused in (waiting, approvals.unless_stopped(entry, window())):
            with pytest.raises(Refusal, match="before it began"):
                await refused
        assert left.cancelled()

    play(scene)


def test_what_ended_is_in_the_history_with_how_long_it_ran() -> None:
    async def scene(approvals: Approvals) -> None:
        told(approvals)
        entry = approvals.ask(a_request("a"))
        approvals.decide(answer(entry.view))
        await approvals.answer(entry)
        approvals.advance(entry, RequestState.RESOLVING)
        approvals.advance(entry, RequestState.RUNNING)
        assert approvals.desk.view_of(entry, approvals.now() + 5).running_s == 5
        approvals.finish(entry, RequestState.DONE, "exit", 3)
        (ended,) = approvals.history.newest()
        assert (ended.state, ended.exit_code, ended.decided_by) == (
            RequestState.DONE,
            3,
            "operator",
        )
        assert approvals.desk.view_of(entry, approvals.now() + 5).running_s < 5

    play(scene)


def test_values_leave_what_is_remembered_of_a_request_too() -> None:
    """An agent may name a value that it got elsewhere."""

    async def scene(approvals: Approvals) -> None:
        told(approvals)
        value = "tok-" + secrets.token_hex(12)
        offer = GrantOffer(GrantTerm(GrantKind.USES, 5), f'argv = ["pr", "{value}"]')
        view = a_request("a", args=("pr", value), offers=(offer,), differences=(value,))
        entry = approvals.ask(view)
        approvals.decide(answer(entry.view))
        await approvals.answer(entry)
        approvals.mask(entry, build([("TOKEN", value.encode(), Redact.ON)]))
        approvals.finish(entry, RequestState.CANCELLED, "caller_gone")
        assert value not in repr(approvals.history.newest())
        assert value not in repr(approvals.precedents.differences(a_request("b", args=("pr", "x"))))

    play(scene)


@pytest.mark.parametrize(
    ("term", "approve", "is_taken"),
    [
        (GrantTerm(GrantKind.ONCE), True, True),
        (GrantTerm(GrantKind.ONCE), False, True),
        (GrantTerm(GrantKind.MINUTES, 5), True, True),
        (GrantTerm(GrantKind.USES, 5), True, False),
        (GrantTerm(GrantKind.MINUTES, 5), False, False),
        (GrantTerm(GrantKind.ALWAYS, 5), False, False),
    ],
)
def test_only_a_term_that_was_offered_with_that_answer_is_taken(
    term: GrantTerm, approve: bool, is_taken: bool
) -> None:
    async def scene(approvals: Approvals) -> None:
        told(approvals)
        offers = tuple(
            GrantOffer(GrantTerm(kind, 15), "") for kind in (GrantKind.MINUTES, GrantKind.ALWAYS)
        )
        entry = approvals.ask(a_request("a", offers=offers))
        decision = Decision("a", view_digest(entry.view), approve=approve, grant=term)
        if is_taken:
            approvals.decide(decision)
            assert entry.state is not RequestState.WAITING
        else:
            with pytest.raises(DecisionRefused):
                approvals.decide(decision)
            assert entry.state is RequestState.WAITING

    play(scene)


def test_an_always_that_would_not_lend_what_is_wanted_is_no_answer() -> None:
    async def scene(approvals: Approvals) -> None:
        told(approvals)
        always = GrantTerm(GrantKind.ALWAYS, 90)
        entry = approvals.ask(a_request("a", offers=(GrantOffer(always, ""),)))
        digest = view_digest(entry.view)
        with pytest.raises(DecisionRefused, match="wants GH_TOKEN"):
            approvals.decide(Decision("a", digest, approve=True, grant=always))
        approvals.decide(Decision("a", digest, True, ("GH_TOKEN",), grant=always))

    play(scene)


def test_denying_all_passes_over_what_expires_at_that_moment() -> None:
    """A loop that is busy comes late to its timer: the rest is denied, whatever expired first."""

    async def scene(approvals: Approvals) -> None:
        approvals.wait_without_operator = True
        for name in "ab":
            approvals.ask(a_request(name))
        late, denied = approvals.desk.waiting()
        late.expires_at = approvals.now()
        assert approvals.deny_all("", "enough") == 1
        assert (late.state, denied.state) == (RequestState.EXPIRED, RequestState.DENIED)

    play(scene)
