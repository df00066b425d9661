"""The desk's asynchronous side: who waits for which answer, when it expires, who is told.

The rules are in `desk.py`; here are the futures, the timer and the listeners. It refuses to know
sockets. Invariants: every change of a request reaches every listener once, in order; a request
whose waiter went away is cancelled at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from .desk import OPERATOR_GRACE_S, Decision, Desk, Entry
from .errors import DenialCode, Refusal
from .operator_protocol import FINAL_STATES, RequestState, RequestView
from .redact.needles import NeedleSet
from .redact.stream import redact_parts
from .texts import bytes_from_text, text_from_bytes

Listener = Callable[[RequestView], None]

_NO_OPERATOR_HINT: Final = "ask the operator to run: jackin-broker attach"


class Approvals:
    """Asks the operator and waits; one instance a broker, used from its loop alone."""

    def __init__(self, desk: Desk, *, wait_without_operator: bool) -> None:
        self.desk: Final = desk
        self.wait_without_operator = wait_without_operator
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Future[Entry]] = {}
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None
        self._unattended: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """The loop's monotonic seconds."""
        return self._loop.time()

    # --- asking -------------------------------------------------------------------------

    def ask(self, view: RequestView) -> Entry:
        """Put a request on the desk; `answer` waits for what becomes of it.

        Raises: Refusal(NO_OPERATOR, TOO_MANY_PENDING).
        """
        now = self.now()
        if not self.wait_without_operator and not self.desk.has_operator(now):
            raise _no_operator()
        self.desk.charge(view.capsule, now)
        entry = self.desk.submit(view, now)
        self._answers[entry.id] = self._loop.create_future()
        self._set_timer()
        self._tell(entry)
        return entry

    def admit(self, view: RequestView, bindings: tuple[str, ...]) -> Entry:
        """Put a request that a rule allowed on the desk, approved.

        Raises: Refusal(TOO_MANY_PENDING).
        """
        decision = Decision(view.id, "", approve=True, bindings=bindings)
        entry = self.desk.admit(view, decision, self.now())
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
        self._tell(entry)
        return entry

    # --- what became of it --------------------------------------------------------------

    def advance(self, entry: Entry, state: RequestState) -> None:
        """An approved request moves on towards its run."""
        self.desk.move(entry, state)
        self._tell(entry)

    def mask(self, entry: Entry, needles: NeedleSet) -> None:
        """From now on the request is shown without these values in its arguments."""
        view = entry.view
        parts = [bytes_from_text(part) for part in (view.command, *view.args)]
        command, *args = (text_from_bytes(part) for part in redact_parts(needles, parts))
        entry.view = msgspec.structs.replace(view, command=command, args=tuple(args))

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
        self._tell(entry)
        self.desk.remove(entry)
        self._set_timer()

    # --- who is told --------------------------------------------------------------------

    def listen(self, listener: Listener, *, counts: bool) -> Callable[[], None]:
        """Call `listener` on every change; returns what ends it.

        `counts`: this listener is an operator who can answer.
        """
        self._listeners.append(listener)
        if counts:
            self.desk.attach()
            if self._unattended is not None:
                self._unattended.cancel()

        def leave() -> None:
            self._listeners.remove(listener)
            if counts:
                self.desk.detach(self.now())
                if self.desk.operators == 0:
                    self._unattended = self._loop.call_later(OPERATOR_GRACE_S, self._abandon)

        return leave

    def _tell(self, entry: Entry) -> None:
        view = self.desk.view_of(entry, self.now())
        for listener in list(self._listeners):
            listener(view)

    def _abandon(self) -> None:
        """Nobody came back: what waits is denied, unless it may wait without an operator."""
        if self.wait_without_operator:
            return
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
