"""The operator's calls about requests, grants and rules: what each does, and its reply.

It refuses to know sockets and who calls. Invariants: a decision is taken before anything is
stored with it; what cannot be stored is refused before the decision, where that can be known.
"""

from __future__ import annotations

from typing import Final

from . import operator_protocol as op
from .desk import Decision
from .errors import DenialCode, Refusal
from .grants.granting import Granting, Kept
from .services import Services

# What an agent reads of a denial is a sentence.
REASON_MAX_CHARS: Final = 2000


class OperatorDesk:
    """Answers for every operator's client; one a broker."""

    def __init__(self, services: Services, granting: Granting) -> None:
        self._approvals: Final = services.approvals
        self._granting: Final = granting

    def stop(self, request_id: str) -> bool:
        """End what was approved and does not run yet; whether there was that."""
        entry = self._approvals.desk.entry(request_id)
        return entry is not None and self._approvals.stop(entry)

    async def answer(self, call: op.Call) -> op.Reply:
        """The reply to one call.

        Raises: DecisionRefused, JackinError; Refusal for a call that is not answered here.
        """
        approvals, granting = self._approvals, self._granting
        match call:
            case op.ListRequests(seq):
                return op.Requests(seq, approvals.desk.views(approvals.now()))
            case op.ListHistory(seq, limit):
                return op.Requests(seq, approvals.history.newest(limit))
            case op.Decide():
                return await self._decide(call)
            case op.DenyAll(seq, capsule, reason):
                count = approvals.deny_all(capsule, reason[:REASON_MAX_CHARS])
                return op.Done(seq, (f"denied {count} {'request' if count == 1 else 'requests'}",))
            case op.ListGrants(seq):
                return op.Grants(seq, await granting.grants())
            case op.RevokeGrant(seq, grant_id):
                await granting.revoke(grant_id)
                return op.Done(seq)
            case op.RevokeAll(seq, kill):
                return op.Done(seq, await granting.revoke_all(kill=kill))
            case op.ListRules(seq):
                return op.Rules(seq, granting.rules())
            case op.ListCredentials(seq):
                return op.Credentials(seq, granting.credentials())
            case _:
                raise Refusal(DenialCode.BAD_REQUEST, "this broker does not know that call")

    async def _decide(self, call: op.Decide) -> op.Decided:
        decision = Decision(
            call.id,
            call.digest,
            call.approve,
            tuple(dict.fromkeys(call.bindings)),  # ticked twice is ticked
            call.reason[:REASON_MAX_CHARS],
            call.grant,
        )
        keeping = self._granting.prepare(decision, self._approvals.desk.entry(call.id))
        self._approvals.decide(decision)
        kept = Kept() if keeping is None else await self._granting.keep(keeping)
        return op.Decided(call.seq, call.id, True, kept.code, kept.reason, kept.grant_id)
