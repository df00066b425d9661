"""What the picker knows of the desk: the requests, which one is asked about, what became of others.

It refuses to know the connection and the screen. Invariants: the request that is asked about is
the oldest that waits, and stays it until its state changes; nothing here decides.
Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from jackin_broker.operator_protocol import FINAL_STATES, RequestState, RequestView

# What fits a screen of an operator who looks back for a moment; the audit has the rest.
RECENT_MAX: Final = 50


class Inbox:
    """The desk, as the broker told it."""

    def __init__(self) -> None:
        self._live: dict[str, RequestView] = {}
        self._recent: deque[RequestView] = deque(maxlen=RECENT_MAX)

    def replace(self, requests: tuple[RequestView, ...]) -> None:
        """The desk as it is now, oldest first: after attaching."""
        self._live = {view.id: view for view in requests if view.state not in FINAL_STATES}

    def take(self, view: RequestView) -> None:
        """A request that is new, moved on, or ended."""
        if view.state in FINAL_STATES:
            if self._live.pop(view.id, None) is not None:
                self._recent.appendleft(view)
        else:
            self._live[view.id] = view

    def find(self, request_id: str) -> RequestView | None:
        """The request as it was last heard of, live or recent."""
        if request_id in self._live:
            return self._live[request_id]
        return next((view for view in self._recent if view.id == request_id), None)

    @property
    def waiting(self) -> list[RequestView]:
        """Oldest first."""
        return [view for view in self._live.values() if view.state is RequestState.WAITING]

    @property
    def under_way(self) -> list[RequestView]:
        """Decided and not ended, oldest first."""
        return [view for view in self._live.values() if view.state is not RequestState.WAITING]

    @property
    def recent(self) -> list[RequestView]:
        """What ended while this picker was attached, newest first."""
        return list(self._recent)

    @property
    def current(self) -> RequestView | None:
        """The request to ask about."""
        waiting = self.waiting
        return waiting[0] if waiting else None
