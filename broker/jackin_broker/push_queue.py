"""The pushes that an operator's client has not read yet, in order and bounded.

It refuses to know sockets and who reads. Invariants: of a request only its newest state is
kept; no other push but old output is ever dropped, and what was dropped is counted.
Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from .operator_protocol import Output, Push, RequestChanged

# Live output that a picker has not drawn yet; older pieces are dropped, the command never waits.
OUTPUT_BACKLOG_MAX_BYTES: Final = 4 * 1024 * 1024


class PushQueue:
    """The pushes that wait to be read, in order; never more than is useful.

    A newer state of a request replaces the one that nobody has read yet.
    """

    def __init__(self) -> None:
        self._order: deque[Push | str] = deque()
        self._states: dict[str, RequestChanged] = {}
        self._output_bytes = 0
        self.dropped_bytes = 0

    def __len__(self) -> int:
        return len(self._order)

    def put(self, push: Push) -> None:
        if isinstance(push, RequestChanged):
            if push.request.id not in self._states:
                self._order.append(push.request.id)
            self._states[push.request.id] = push
            return
        self._order.append(push)
        if isinstance(push, Output):
            self._output_bytes += len(push.data)
            self._drop_old_output()

    def get(self) -> Push:
        """The oldest. Raises: IndexError when there is none."""
        item = self._order.popleft()
        if isinstance(item, str):
            return self._states.pop(item)
        if isinstance(item, Output):
            self._output_bytes -= len(item.data)
        return item

    def _drop_old_output(self) -> None:
        while self._output_bytes > OUTPUT_BACKLOG_MAX_BYTES:
            oldest = next(item for item in self._order if isinstance(item, Output))
            self._order.remove(oldest)
            self._output_bytes -= len(oldest.data)
            self.dropped_bytes += len(oldest.data)
