"""What the picker knows of the desk: the requests, which one is asked about, what became of others.

It refuses to know the connection and the screen; times are passed in, in seconds of one monotonic
clock. Invariants: the request that is asked about is the one the operator chose, else the oldest
that waits, and stays it until its state changes; nothing here decides.
Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from jackin_broker.operator_protocol import FINAL_STATES, RequestState, RequestView

# What fits a screen of an operator who looks back for a moment; the audit has the rest.
RECENT_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class _Heard:
    """A live request: as it is, since when in this state, until when it waits."""

    view: RequestView
    since_s: float
    expires_s: float


class Inbox:
    """The desk, as the broker told it."""

    def __init__(self) -> None:
        self._live: dict[str, _Heard] = {}
        self._recent: deque[RequestView] = deque(maxlen=RECENT_MAX)
        self._chosen = ""
        self._lists: tuple[list[RequestView], list[RequestView]] | None = None

    def replace(self, requests: tuple[RequestView, ...], at_s: float) -> None:
        """The desk as it is now, oldest first: after attaching."""
        known, self._live, self._lists = self._live, {}, None
        for view in requests:
            if view.state not in FINAL_STATES:
                self._live[view.id] = _heard(view, known.get(view.id), at_s)

    def take(self, view: RequestView, at_s: float) -> None:
        """A request that is new, moved on, or ended."""
        self._lists = None
        if view.state in FINAL_STATES:
            if self._live.pop(view.id, None) is not None:
                self._recent.appendleft(view)
        else:
            self._live[view.id] = _heard(view, self._live.get(view.id), at_s)

    def choose(self, request_id: str) -> None:
        """Ask about this one next."""
        self._chosen = request_id

    def find(self, request_id: str) -> RequestView | None:
        """The request as it was last heard of, live or recent."""
        if request_id in self._live:
            return self._live[request_id].view
        return next((view for view in self._recent if view.id == request_id), None)

    @property
    def waiting(self) -> list[RequestView]:
        """Oldest first. The same list, not to be changed, until a request changes."""
        return self._split()[0]

    @property
    def under_way(self) -> list[RequestView]:
        """Decided and not ended, oldest first; a list as `waiting` is."""
        return self._split()[1]

    @property
    def recent(self) -> list[RequestView]:
        """What ended while this picker was attached, newest first."""
        return list(self._recent)

    @property
    def current(self) -> RequestView | None:
        """The request to ask about."""
        chosen = self._live.get(self._chosen)
        if chosen is not None and chosen.view.state is RequestState.WAITING:
            return chosen.view
        views = (heard.view for heard in self._live.values())
        return next((view for view in views if view.state is RequestState.WAITING), None)

    def after(self, request_id: str) -> RequestView | None:
        """The request that waits behind this one; the first where it is the last."""
        waiting = self.waiting
        places = [index for index, view in enumerate(waiting) if view.id == request_id]
        return waiting[(places[0] + 1) % len(waiting)] if places else None

    def left_s(self, view: RequestView, at_s: float) -> float:
        """How long the request still waits."""
        heard = self._live.get(view.id)
        return heard.expires_s - at_s if heard is not None else 0.0

    def lasted_s(self, view: RequestView, at_s: float) -> float:
        """How long the request has been in its state."""
        heard = self._live.get(view.id)
        return at_s - heard.since_s if heard is not None else 0.0

    def _split(self) -> tuple[list[RequestView], list[RequestView]]:
        if self._lists is None:
            views = [heard.view for heard in self._live.values()]
            self._lists = (
                [view for view in views if view.state is RequestState.WAITING],
                [view for view in views if view.state is not RequestState.WAITING],
            )
        return self._lists


def _heard(view: RequestView, before: _Heard | None, at_s: float) -> _Heard:
    is_same = before is not None and before.view.state is view.state
    since_s = before.since_s if before is not None and is_same else at_s
    expires_s = before.expires_s if before is not None else at_s + view.expires_in_s
    return _Heard(view, min(since_s, at_s - view.running_s), expires_s)
