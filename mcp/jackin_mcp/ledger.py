"""The requests of one agent's session, by their ids.

An id means something in the session that made it and nowhere else: every session has a server
process, and so a ledger, of its own. It refuses to know MCP. Invariant: a request that has not
settled is never dropped; of the settled ones the newest are kept.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final

from .request import Request

# Results that can still be collected; an agent that waits for more has lost count.
KEPT_RESULTS: Final = 100
_ID_BYTES: Final = 16


class Ledger:
    """Requests in the order in which they came to be known by an id."""

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._requests.values()))

    def keep(self, request: Request) -> None:
        """From now on the request can be asked for by its id."""
        if not request.id:  # the broker has not come to it yet
            request.id = secrets.token_hex(_ID_BYTES)
        self._requests[request.id] = request
        settled = [one for one in self if one.is_settled]
        for old in settled[: max(0, len(settled) - KEPT_RESULTS)]:
            del self._requests[old.id]
            old.forget()

    def get(self, request_id: str) -> Request | None:
        """The request of this session with that id."""
        return self._requests.get(request_id)
