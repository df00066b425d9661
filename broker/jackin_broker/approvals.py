"""The desk's asynchronous side: who waits for which answer, when it expires, who is told.

The rules are in `desk.py`; here are the futures, the timer and the listeners. It refuses to know
sockets. Invariants: every change of a request reaches every listener once, in order; a request
whose waiter went away is cancelled at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from .desk import OPERATOR_GRACE_S, Decision, DecisionRefused, Desk, Entry
from .errors import DenialCode, Refusal
from .grants.ledger import Basis
from .history import History
from .operator_protocol import FINAL_STATES, RequestState, RequestView
from .precedents import Precedents
from .redact.needles import NeedleSet
from .redact.stream import redact_parts
from .texts import bytes_from_text, text_from_bytes

T = TypeVar("T")
Listener = Callable[[RequestView], None]

_NO_OPERATOR_HINT: Final = "ask the operator to run: jackin-broker attach"


class Approvals:
    """Asks the operator and waits; one instance a broker, used from its loop alone."""

    def __init__(self, desk: Desk, *, wait_without_operator: bool) -> None:
        self.desk: Final = desk
        self.history: Final = History()
        self.precedents: Final = Precedents()
        self.wait_without_operator = wait_without_operator
        self.reach: Callable[[], Awaitable[bool]] | None = None  # can one be met who is not here?
        self.pickers = 0  # attached now, and ever: what they show needs no popup
        self.pickers_ever = 0
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Future[Entry]] = {}
        self._stoppable: dict[str, asyncio.Future[Any]] = {}
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None
        self._unattended: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def now(self) -> float:
        """The loop's monotonic seconds."""
        return self._loop.time()

    # --- asking -------------------------------------------------------------------------

    def ask(self, view: RequestView, basis: Basis | None = None) -> Entry:
        """Put a request on the desk; `answer` waits for what becomes of it.

        Raises: Refusal(NO_OPERATOR, TOO_MANY_PENDING).
        """
        now = self.now()
        if not self.wait_without_operator and not self.desk.has_operator(now):
            raise _no_operator()
        self.desk.charge(view.capsule, now)
        entry = self.desk.submit(view, now, basis)
        self._answers[entry.id] = self._loop.create_future()
        self._set_timer()
        self._tell(entry)
        return entry

    async def find_operator(self) -> bool:
        """Whether somebody who is not attached can be met; then they may be asked for a while."""
        if self.reach is None or not await self.reach():
            return False
        self.desk.met(self.now())
        self._watch_attendance()
        return True

    def admit(self, view: RequestView, bindings: tuple[str, ...], *, by: str = "rule") -> Entry:
        """Put a request that a rule or a grant allowed on the desk, approved.

        Raises: Refusal(TOO_MANY_PENDING).
        """
        decision = Decision(view.id, "", approve=True, bindings=bindings)
        entry = self.desk.admit(view, decision, self.now(), by=by)
        self._tell(entry)
        return entry

    async def answer(self, entry: Entry) -> Decision:
        """The operator's approval.

        Raises: Refusal(OPERATOR_DENIED, EXPIRED, NO_OPERATOR, BROKER_STOPPING);
        asyncio.CancelledError leaves the request cancelled.
        """
        future = self._answers[entry.id]
        try:
            await future
        except asyncio.CancelledError:
            if entry.state is RequestState.WAITING:
                self.finish(entry, RequestState.CANCELLED, "caller_gone")
            elif entry.state in FINAL_STATES:  # answered at that very moment: off the desk too
                self._end(entry, entry.state.value)
            raise
        finally:
            self._answers.pop(entry.id, None)
        if entry.state is RequestState.EXPIRED:
            self._end(entry, DenialCode.EXPIRED.value)
            raise Refusal(
                DenialCode.EXPIRED,
                f"nobody answered within {self.desk.limits.approve_s:g} seconds",
                hint="ask again when the operator is there",
            )
        if entry.state is RequestState.DENIED and entry.decision is None:
            self._end(entry, DenialCode.NO_OPERATOR.value)
            raise _no_operator()
        if entry.state is RequestState.DENIED or entry.decision is None:
            self._end(entry, DenialCode.OPERATOR_DENIED.value)
            reason = entry.decision.reason if entry.decision else ""
            raise Refusal(
                DenialCode.OPERATOR_DENIED,
                "the operator said no" + (f": {reason}" if reason else ""),
                hint="do not repeat the request; ask the operator what they would accept",
            )
        return entry.decision

    def decide(self, decision: Decision) -> Entry:
        """Take a decision.

        Raises: DecisionRefused.
        """
        try:
            entry = self.desk.decide(decision, self.now())
        finally:
            self._wake()
        if decision.approve:
            self.precedents.note_approved(entry.view)
        else:
            self.precedents.note_denied(entry.view)
        self._tell(entry)
        return entry

    def deny_all(self, capsule: str, reason: str) -> int:
        """Deny what waits of a capsule, or of every one; how many there were."""
        count = 0
        for entry in self.desk.waiting():
            if capsule in ("", entry.view.capsule):
                with suppress(DecisionRefused):  # it expired before the timer said so
                    self.decide(Decision(entry.id, entry.digest, approve=False, reason=reason))
                    count += 1
        return count

    def stop(self, entry: Entry) -> bool:
        """See to it that an approved request does not begin; whether it had not yet.

        Whatever its credentials wait for, a keyring's prompt, is not waited for any more.
        """
        if entry.state not in (RequestState.APPROVED, RequestState.RESOLVING):
            return False
        entry.is_stopped = True
        job = self._stoppable.get(entry.id)
        if job is not None:
            job.cancel()
        return True

    async def unless_stopped(self, entry: Entry, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, unless the operator ends the request first: then it is cancelled.

        Raises: Refusal(OPERATOR_DENIED), and whatever `work` raises.
        """
        if entry.is_stopped:
            work.close()
        self.check_wanted(entry)
        job: asyncio.Future[T] = asyncio.ensure_future(work)
        self._stoppable[entry.id] = job
        try:
            return await job
        except asyncio.CancelledError:
            self.check_wanted(entry)
            raise
        finally:
            del self._stoppable[entry.id]

    def check_wanted(self, entry: Entry) -> None:
        """Return unless the operator has ended this request before it began.

        Raises: Refusal(OPERATOR_DENIED).
        """
        if entry.is_stopped:
            raise Refusal(
                DenialCode.OPERATOR_DENIED,
                "the operator ended it before it began",
                hint="ask the operator before you repeat the request",
            )

    # --- what became of it --------------------------------------------------------------

    def advance(self, entry: Entry, state: RequestState) -> None:
        """An approved request moves on towards its run."""
        self.desk.move(entry, state)
        self.desk.note_time(entry, self.now())
        self._tell(entry)

    def mask(self, entry: Entry, needles: NeedleSet) -> None:
        """From now on the request is shown without these values in its arguments."""
        view = entry.view
        parts = [bytes_from_text(part) for part in (view.command, *view.args)]
        command, *args = (text_from_bytes(part) for part in redact_parts(needles, parts))
        # What was offered and what differed were for the decision, and quote arguments.
        entry.view = msgspec.structs.replace(
            view, command=command, args=tuple(args), offers=(), differences=()
        )
        self.precedents.mask(view, entry.view)

    def finish(
        self, entry: Entry, state: RequestState, outcome: str, exit_code: int | None = None
    ) -> None:
        """A request ended; it leaves the desk."""
        if entry.state not in FINAL_STATES:
            self.desk.move(entry, state)
        entry.exit_code = exit_code
        self._end(entry, outcome)

    def _end(self, entry: Entry, outcome: str) -> None:
        self._answers.pop(entry.id, None)
        if self.desk.entry(entry.id) is None:
            return
        entry.outcome = outcome
        now = self.now()
        self.desk.note_time(entry, now)
        self._tell(entry)
        self.desk.remove(entry)
        self.history.add(self.desk.view_of(entry, now), entry.size_bytes)
        self._set_timer()

    # --- who is told --------------------------------------------------------------------

    def listen(
        self, listener: Listener, *, counts: bool, shows: bool = False
    ) -> Callable[[], None]:
        """Call `listener` on every change; returns what ends it.

        `counts`: this listener is an operator who can answer; `shows`: who has the request on
        the screen, too.
        """
        self._listeners.append(listener)
        self.pickers += shows
        self.pickers_ever += shows
        if counts:
            self.desk.attach()
            if self._unattended is not None:
                self._unattended.cancel()

        def leave() -> None:
            self._listeners.remove(listener)
            self.pickers -= shows
            if counts:
                self.desk.detach(self.now())
                if self.desk.operators == 0:
                    self._watch_attendance()

        return leave

    def _tell(self, entry: Entry) -> None:
        view = self.desk.view_of(entry, self.now())
        for listener in list(self._listeners):
            listener(view)

    def _watch_attendance(self) -> None:
        """See after a while whether somebody is there for what waits."""
        if self._unattended is not None:
            self._unattended.cancel()
        self._unattended = self._loop.call_later(OPERATOR_GRACE_S, self._abandon)

    def _abandon(self) -> None:
        """Nobody came back: what waits is denied, unless somebody can be met, or it may wait."""
        if self.wait_without_operator or self.desk.operators or not self.desk.waiting():
            return
        if self.reach is None:
            self._deny_waiting()
        else:
            self._looking = self._loop.create_task(self._look_again(), name="attendance")

    async def _look_again(self) -> None:
        if not await self.find_operator() and not self.desk.operators:
            self._deny_waiting()

    def _deny_waiting(self) -> None:
        for entry in self.desk.waiting():
            self.desk.move(entry, RequestState.DENIED)
        self._wake()

    # --- expiry -------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.desk.next_expiry()
        if due is not None:
            self._timer = self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        self.desk.expire(self.now())
        self._wake()
        self._set_timer()

    def _wake(self) -> None:
        """Let every waiter whose request left the waiting state go on."""
        for request_id, future in list(self._answers.items()):
            entry = self.desk.entry(request_id)
            if (entry is None or entry.state is not RequestState.WAITING) and not future.done():
                if entry is None:
                    future.cancel()
                else:
                    future.set_result(entry)


def _no_operator() -> Refusal:
    return Refusal(
        DenialCode.NO_OPERATOR, "no operator is attached to answer", hint=_NO_OPERATOR_HINT
    )
