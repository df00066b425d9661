"""What ended since the broker started, newest first, within bounds; the record has all of it.

It refuses to know why anything ended. Invariant: no more entries and bytes than the limits say.
Pure: no I/O.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from .operator_views import RequestView

# More than an operator scrolls through; the audit's own view goes further back.
HISTORY_MAX: Final = 200
# An agent chooses how long its arguments are: an hour's worth of ordinary ones is far below.
HISTORY_MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass
class History:
    """The last requests that ended."""

    _ended: deque[tuple[RequestView, int]] = field(default_factory=deque[tuple[RequestView, int]])
    _size_bytes: int = 0

    def add(self, view: RequestView, size_bytes: int) -> None:
        """Remember one; `size_bytes` is about what it takes."""
        self._ended.appendleft((view, size_bytes))
        self._size_bytes += size_bytes
        while self._ended and (
            len(self._ended) > HISTORY_MAX or self._size_bytes > HISTORY_MAX_BYTES
        ):
            self._size_bytes -= self._ended.pop()[1]

    def newest(self, limit: int = 0) -> tuple[RequestView, ...]:
        """The newest so many, or all of them."""
        views = tuple(view for view, _ in self._ended)
        return views[:limit] if limit > 0 else views
