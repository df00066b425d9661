"""An operator of a real broker without a screen: the same calls, without a program for each.

For tests that answer many requests. It refuses to know the agent's side. Every wait is bounded.
"""

from __future__ import annotations

from typing import Final, TypeVar

from jackin_broker import operator_protocol as op
from jackin_broker.operator_client import ask_broker

from .broker import Broker
from .real import wait_until

R = TypeVar("R")


class OperatorAtDesk:
    """Answers what one broker asks."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker

    def call(self, message: op.Call, kind: type[R]) -> R:
        """The reply to one call on a connection of its own."""
        reply = ask_broker(self._broker.runtime_dir / "operator.sock", message)
        assert isinstance(reply, kind), reply
        return reply

    def waiting(self) -> tuple[op.RequestView, ...]:
        """What waits, oldest first."""
        views = self.call(op.ListRequests(0), op.Requests).requests
        return tuple(view for view in views if view.state is op.RequestState.WAITING)

    def wait(self, count: int = 1) -> op.RequestView:
        """The oldest request, once `count` wait."""
        wait_until(lambda: len(self.waiting()) >= count, f"{count} request(s) wait on the desk")
        return self.waiting()[0]

    def decide(
        self,
        view: op.RequestView,
        *bindings: str,
        approve: bool = True,
        grant: op.GrantTerm = op.ONCE,
    ) -> op.Decided:
        """Answer a request as it was displayed."""
        digest = op.view_digest(view)
        call = op.Decide(0, view.id, digest, approve, bindings, grant=grant)
        return self.call(call, op.Decided)

    def grants(self) -> tuple[op.GrantView, ...]:
        """What may run again unasked."""
        return self.call(op.ListGrants(0), op.Grants).grants
