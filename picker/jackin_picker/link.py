"""The picker's connection to the broker, made again when it breaks.

It refuses to know screens. Invariants: one connection at a time; after a loss it tries again,
each time after a longer pause, up to PAUSE_MAX_S, for as long as the picker is open.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, Protocol

from jackin_broker.errors import BrokerUnreachable
from jackin_broker.operator_client import OperatorClient
from jackin_broker.operator_protocol import (
    OPERATOR_PROTOCOL_VERSION,
    Attach,
    Attached,
    Call,
    Push,
    Reply,
)

# A broker that restarts is back within a second; one that was stopped costs nothing at this pace.
PAUSE_MIN_S: Final = 0.25
PAUSE_MAX_S: Final = 5.0
# A thousand arrive at once where an agent floods; this many take a few milliseconds.
PUSHES_AT_ONCE: Final = 20


class Desk(Protocol):
    """What is told of the connection."""

    def attached(self, reply: Attached) -> None: ...

    def pushed(self, push: Push) -> None: ...

    def lost(self, reason: str) -> None: ...


class Link:
    """Run it as a task; call through it."""

    def __init__(self, path: Path, kind: str = "picker") -> None:
        """`kind`: what the broker is told that this client is."""
        self._path = path
        self._kind = kind
        self._client: OperatorClient | None = None

    async def run(self, desk: Desk) -> None:
        """Attach, pass on what comes, attach again; until cancelled.

        Raises: JackinError when the broker answers and refuses to be attached to.
        """
        pause_s = PAUSE_MIN_S
        while True:
            try:
                await self._session(desk)
                pause_s = PAUSE_MIN_S
            except BrokerUnreachable as error:
                desk.lost(str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, pause_s * 2)

    async def call(self, message: Call) -> Reply:
        """The broker's reply. Raises: BrokerUnreachable, Refusal, JackinError."""
        if self._client is None:
            raise BrokerUnreachable("not connected to the broker")
        return await self._client.call(message)

    async def _session(self, desk: Desk) -> None:
        client = await OperatorClient.connect(self._path)
        try:
            hello = await client.call(Attach(0, OPERATOR_PROTOCOL_VERSION, self._kind))
            if not isinstance(hello, Attached):
                raise BrokerUnreachable("the broker answered in another way than was asked")
            self._client = client
            desk.attached(hello)
            count = 0
            async for push in client:
                desk.pushed(push)
                count += 1
                if count % PUSHES_AT_ONCE == 0:
                    await asyncio.sleep(0)  # a key that was pressed meanwhile comes first
            desk.lost(client.ended_because)
        finally:
            self._client = None
            await client.close()
