"""A response that sends one outlet of a call as it fills.

It refuses to know what the bytes are. Invariants: the head leaves at once; a peer that goes away is
reported to the call, whatever it is doing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.types import Receive, Scope, Send

from .http_channel import HttpChannel, Outlet


class OutletResponse:
    """A response that sends one outlet as it fills; a disconnect ends the call."""

    def __init__(self, channel: HttpChannel, outlet: Outlet, media_type: str = "") -> None:
        self._channel = channel
        self._outlet = outlet
        self._media_type = media_type or "application/octet-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.ensure_future(self.watch(receive))
        try:
            await self.send_all(send)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def watch(self, receive: Receive) -> None:
        """Wait for the other end to go away, and say so."""
        await until_gone(receive)
        self._channel.peer_gone()

    async def send_all(self, send: Send) -> None:
        """The head at once, then all that comes."""
        headers = [
            (b"content-type", self._media_type.encode()),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # The head leaves at once: whoever waits for an answer sees that there will be one.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        while data := await self._outlet.take():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(receive: Callable[[], Coroutine[Any, Any, Any]] | Receive) -> None:
    """Return when the other end has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
