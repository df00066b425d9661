"""The desk: the requests that wait for the operator, and what may become of each.

It refuses to know sockets, clocks and futures: time is passed in as monotonic seconds, changes
come back as return values. Invariants: first in, first out; ids cannot be guessed; a state is
left only along `TRANSITIONS`; expiry is enforced where a decision lands; one decision, one run.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import msgspec

from .errors import DenialCode, JackinError, Refusal
from .grants.ledger import Basis
from .operator_views import (
    FINAL_STATES,
    ONCE,
    GrantKind,
    GrantTerm,
    RequestState,
    RequestView,
    still_of,
)
from .rate import TokenBucket

# 96 bits: no agent guesses another request's id, and it still fits a line.
ID_BYTES: Final = 12
# A popup that was closed by hand and opens again should not cost a denial (DESIGN §7).
OPERATOR_GRACE_S: Final = 10.0
# A prompt of this size costs a token more: every change of a request is sent whole to every
# operator's client, and who floods them with bytes keeps the operator from answering.
TOKEN_BYTES: Final = 64 * 1024
# What one capsule's requests may take in all: two of the longest, thousands of ordinary ones,
# and with those of other capsules still one message (OPERATOR_MESSAGE_MAX_BYTES).
OPEN_MAX_BYTES: Final = 8 * 1024 * 1024

TRANSITIONS: Final[dict[RequestState, frozenset[RequestState]]] = {
    RequestState.WAITING: frozenset(
        {
            RequestState.APPROVED,
            RequestState.DENIED,
            RequestState.EXPIRED,
            RequestState.CANCELLED,
        }
    ),
    RequestState.APPROVED: frozenset(
        {RequestState.RESOLVING, RequestState.DENIED, RequestState.CANCELLED}
    ),
    RequestState.RESOLVING: frozenset(
        {RequestState.RUNNING, RequestState.DENIED, RequestState.CANCELLED}
    ),
    RequestState.RUNNING: frozenset({RequestState.DONE}),
    RequestState.DONE: frozenset(),
    RequestState.DENIED: frozenset(),
    RequestState.EXPIRED: frozenset(),
    RequestState.CANCELLED: frozenset(),
}


class DecisionFault(str, Enum):
    """Why a decision was not taken."""

    UNKNOWN_REQUEST = "unknown_request"
    ALREADY_DECIDED = "already_decided"
    EXPIRED = "expired"
    CHANGED = "changed"
    UNKNOWN_BINDING = "unknown_binding"
    NOT_OFFERED = "not_offered"


class DecisionRefused(JackinError):
    """The operator's decision was late, repeated, stale or named what was not shown."""

    def __init__(self, fault: DecisionFault, message: str) -> None:
        super().__init__(message)
        self.fault: Final = fault


class Decision(msgspec.Struct, frozen=True):
    """What the operator said. `digest` names what was displayed to them."""

    id: str
    digest: str
    approve: bool
    bindings: tuple[str, ...] = ()
    reason: str = ""
    grant: GrantTerm = ONCE


class DeskLimits(msgspec.Struct, frozen=True):
    """How much may wait. Units: seconds; `ask_per_s` refills the bucket of `ask_burst`."""

    approve_s: float
    waiting_per_capsule: int
    ask_burst: int
    ask_per_s: float


@dataclass
class Entry:
    """One request on the desk. Only the desk changes it."""

    view: RequestView
    asked_at: float
    expires_at: float
    state: RequestState = RequestState.WAITING
    decision: Decision | None = None
    outcome: str = ""
    exit_code: int | None = None
    digest: str = ""
    size_bytes: int = 0
    basis: Basis | None = None  # what an approval may be stored from; None where nothing may
    decided_by: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    is_stopped: bool = False  # approved, and to be ended before it begins

    @property
    def id(self) -> str:
        return self.view.id

    def running_s(self, now: float) -> float:
        """For how long it runs, or ran."""
        if self.started_at is None:
            return 0.0
        return (now if self.ended_at is None else self.ended_at) - self.started_at


@dataclass
class Desk:
    """The queue. `expire` and `decide` are told the time."""

    limits: DeskLimits
    _entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    _buckets: dict[str, TokenBucket] = field(default_factory=dict[str, TokenBucket])
    _inquiries: dict[str, TokenBucket] = field(default_factory=dict[str, TokenBucket])
    _attached: int = 0
    _left_at: float | None = None

    # --- who is there -------------------------------------------------------------------

    @property
    def operators(self) -> int:
        """How many operators' clients are attached now."""
        return self._attached

    def attach(self) -> None:
        """An operator's client is there."""
        self._attached += 1

    def detach(self, now: float) -> None:
        """It left."""
        self._attached -= 1
        self._left_at = now

    def met(self, now: float) -> None:
        """Nobody is attached, but an operator can be shown a request."""
        self._left_at = now

    def has_operator(self, now: float) -> bool:
        """Whether anyone is attached, or was within OPERATOR_GRACE_S."""
        if self._attached > 0:
            return True
        return self._left_at is not None and now - self._left_at <= OPERATOR_GRACE_S

    # --- the queue ----------------------------------------------------------------------

    def new_id(self) -> str:
        """An id that nobody can guess and that is not on the desk."""
        return secrets.token_hex(ID_BYTES)

    def charge(self, capsule: str, now: float) -> None:
        """Take one token of this capsule's bucket and check that there is room to wait.

        Raises: Refusal(TOO_MANY_PENDING). Cancelled requests have paid too.
        """
        waiting = sum(1 for entry in self.waiting() if entry.view.capsule == capsule)
        is_full = waiting >= self.limits.waiting_per_capsule
        if is_full or not self._bucket(self._buckets, capsule).take(now):
            raise Refusal(
                DenialCode.TOO_MANY_PENDING,
                f"capsule {capsule} asks too often: {waiting} of its requests wait already",
                hint="wait for the answers to the requests that are open",
            )

    def charge_inquiry(self, capsule: str, now: float) -> None:
        """Take one token for an `Ask`; they have a bucket of their own.

        Raises: Refusal(TOO_MANY_PENDING).
        """
        if not self._bucket(self._inquiries, capsule).take(now):
            raise Refusal(
                DenialCode.TOO_MANY_PENDING,
                f"capsule {capsule} inquires too often",
                hint="wait a second between two inquiries",
            )

    def _bucket(self, buckets: dict[str, TokenBucket], capsule: str) -> TokenBucket:
        bucket = buckets.get(capsule)
        if bucket is None:
            bucket = buckets[capsule] = TokenBucket(0, 0)
        bucket.burst, bucket.per_s = self.limits.ask_burst, self.limits.ask_per_s
        return bucket

    def submit(self, view: RequestView, now: float, basis: Basis | None = None) -> Entry:
        """Put a request that must be asked at the end of the queue.

        Raises: Refusal(TOO_MANY_PENDING) when it is longer than there is room for.
        """
        still = still_of(view)
        self._charge_length(view.capsule, len(still), now)
        digest = hashlib.sha256(still).hexdigest()
        expires_at = now + self.limits.approve_s
        entry = Entry(view, now, expires_at, digest=digest, size_bytes=len(still), basis=basis)
        self._entries[view.id] = entry
        return entry

    def _charge_length(self, capsule: str, size: int, now: float) -> None:
        entries = self._entries.values()
        held = sum(entry.size_bytes for entry in entries if entry.view.capsule == capsule)
        bucket = self._bucket(self._buckets, capsule)
        # At most a full bucket less the token of `charge`, so that the longest can be asked.
        cost = min(size // TOKEN_BYTES, self.limits.ask_burst - 1)
        if (held and held + size > OPEN_MAX_BYTES) or not bucket.take(now, cost):
            raise Refusal(
                DenialCode.TOO_MANY_PENDING,
                f"capsule {capsule} asks at too great length",
                hint="give long input on stdin or in a file, or wait and try again",
            )

    def admit(
        self, view: RequestView, decision: Decision, now: float, *, by: str = "rule"
    ) -> Entry:
        """Put a request that a rule or a grant allowed on the desk: approved, never waiting.

        Raises: Refusal(TOO_MANY_PENDING) when it is longer than there is room for.
        """
        entry = self.submit(view, now)
        entry.decision, entry.decided_by = decision, by
        entry.state = RequestState.APPROVED
        return entry

    def decide(self, decision: Decision, now: float) -> Entry:
        """Take the operator's decision.

        Raises: DecisionRefused; the request is then what it was, or expired.
        """
        entry = self._entries.get(decision.id)
        if entry is None:
            raise DecisionRefused(
                DecisionFault.UNKNOWN_REQUEST, "no request of that id is on the desk"
            )
        if entry.state is not RequestState.WAITING:
            raise DecisionRefused(
                DecisionFault.ALREADY_DECIDED, f"the request is {entry.state.value} already"
            )
        if now >= entry.expires_at:
            self.move(entry, RequestState.EXPIRED)
            raise DecisionRefused(DecisionFault.EXPIRED, "the request expired before the decision")
        if not secrets.compare_digest(decision.digest, entry.digest):
            raise DecisionRefused(
                DecisionFault.CHANGED, "the decision was made on something else than is asked now"
            )
        unknown = set(decision.bindings) - {row.name for row in entry.view.bindings}
        if unknown:
            raise DecisionRefused(
                DecisionFault.UNKNOWN_BINDING,
                f"binding {sorted(unknown)[0]} was not offered for this request",
            )
        _check_grant(entry.view, decision)
        entry.decision, entry.decided_by = decision, "operator"
        self.move(entry, RequestState.APPROVED if decision.approve else RequestState.DENIED)
        return entry

    def expire(self, now: float) -> list[Entry]:
        """Move what is overdue to expired; returns it, oldest first."""
        overdue = [entry for entry in self.waiting() if now >= entry.expires_at]
        for entry in overdue:
            self.move(entry, RequestState.EXPIRED)
        return overdue

    def next_expiry(self) -> float | None:
        """When the next waiting request expires, or None."""
        return min((entry.expires_at for entry in self.waiting()), default=None)

    def move(self, entry: Entry, state: RequestState) -> None:
        """Change a state along `TRANSITIONS`.

        Raises: ValueError for a step that is not there: our bug.
        """
        if state not in TRANSITIONS[entry.state]:
            raise ValueError(f"a request cannot go from {entry.state.value} to {state.value}")
        entry.state = state

    def note_time(self, entry: Entry, now: float) -> None:
        """Remember when it began to run, and when it ended."""
        if entry.state is RequestState.RUNNING and entry.started_at is None:
            entry.started_at = now
        if entry.state in FINAL_STATES and entry.ended_at is None:
            entry.ended_at = now

    def remove(self, entry: Entry) -> None:
        """Take an ended request off the desk."""
        if entry.state not in FINAL_STATES:
            raise ValueError("a request that has not ended stays on the desk")
        self._entries.pop(entry.id, None)

    # --- looking ------------------------------------------------------------------------

    def entry(self, request_id: str) -> Entry | None:
        """The request of that id, if it is on the desk."""
        return self._entries.get(request_id)

    def waiting(self) -> list[Entry]:
        """What waits, oldest first."""
        return [e for e in self._entries.values() if e.state is RequestState.WAITING]

    def running(self) -> list[Entry]:
        """What was approved and has not ended, oldest first."""
        busy = {RequestState.APPROVED, RequestState.RESOLVING, RequestState.RUNNING}
        return [e for e in self._entries.values() if e.state in busy]

    def position(self, entry: Entry) -> int:
        """The place in the queue, from 1; 0 for what does not wait."""
        for place, other in enumerate(self.waiting(), start=1):
            if other is entry:
                return place
        return 0

    def views(self, now: float) -> tuple[RequestView, ...]:
        """Everything on the desk as an operator sees it, oldest first."""
        places = {entry.id: place for place, entry in enumerate(self.waiting(), start=1)}
        return tuple(
            self._view(entry, places.get(entry.id, 0), now) for entry in self._entries.values()
        )

    def view_of(self, entry: Entry, now: float) -> RequestView:
        """One request as an operator sees it now."""
        return self._view(entry, self.position(entry), now)

    def _view(self, entry: Entry, position: int, now: float) -> RequestView:
        waiting = entry.state is RequestState.WAITING
        is_lent = entry.state not in FINAL_STATES or entry.started_at is not None
        return msgspec.structs.replace(
            entry.view,
            state=entry.state,
            position=position,
            expires_in_s=round(max(0.0, entry.expires_at - now), 1) if waiting else 0,
            outcome=entry.outcome,
            exit_code=entry.exit_code,
            running_s=round(entry.running_s(now), 1),
            decided_by=entry.decided_by,
            lent=entry.decision.bindings if entry.decision and is_lent else (),
        )


def _check_grant(view: RequestView, decision: Decision) -> None:
    """Return when the term is one that was offered with this answer.

    Raises: DecisionRefused.
    """
    term = decision.grant
    if term.kind is GrantKind.ONCE:
        return
    offered = {(offer.term.kind, offer.approve) for offer in view.offers}
    if (term.kind, decision.approve) not in offered:
        answer = "approved" if decision.approve else "denied"
        raise DecisionRefused(
            DecisionFault.NOT_OFFERED, f"this request may be {answer} once, not {term.kind.value}"
        )
    outside = set(view.want) - set(decision.bindings)
    if term.kind is GrantKind.ALWAYS and decision.approve and outside:
        raise DecisionRefused(
            DecisionFault.NOT_OFFERED,
            f"the agent wants {min(outside)}, and a rule that does not lend it would ask again",
        )
