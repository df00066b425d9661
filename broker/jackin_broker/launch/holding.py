"""The capsule as the broker holds it for a launch, opened again when a broker comes back.

It refuses to know kinds and processes. Invariant: as long as this lives, the init that was put on
record once is put on record again with each new broker, by the same launch.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from ..errors import BrokerUnreachable, JackinError
from ..operator_client import BlockingClient
from ..operator_protocol import CapsuleReady, OpenCapsule, RecordInit, Reply
from .run import Watch

# Soon enough for the next command after a broker's restart, rare enough to cost nothing.
REOPEN_EVERY_S: Final = 1.0
# A broker that answers answers at once; keys wait meanwhile.
REOPEN_LIMIT_S: Final = 5.0
# Whether the connection has ended is known without waiting.
_LOOK_S: Final = 0.001


class Holding(Watch):
    """One launch's hold on its capsule."""

    def __init__(self, socket: Path, call: OpenCapsule) -> None:
        self._socket = socket
        self._call = call
        self._client: BlockingClient | None = None
        self._name = call.name
        self._init: tuple[int, str] | None = None
        self._reopen_at = 0.0

    def open(self) -> CapsuleReady:
        """Open the capsule.

        Raises: BrokerUnreachable, or the broker's reason against it.
        """
        client = BlockingClient(self._socket)
        try:
            ready = _ready(client.call(self._call, timeout_s=REOPEN_LIMIT_S))
        except BaseException:
            client.close()
            raise
        self._client, self._name = client, ready.name
        # Whatever is configured by the time of a return, it is this that runs.
        self._call = msgspec.structs.replace(self._call, kind=ready.kind)
        return ready

    def record_init(self, pid: int, container: str = "") -> None:
        """Put the capsule's init on record.

        Raises: BrokerUnreachable, or the broker's reason against it.
        """
        if self._client is None:
            raise BrokerUnreachable("the broker has gone")
        call = RecordInit(0, self._name, pid, container)
        self._client.call(call, timeout_s=REOPEN_LIMIT_S)
        self._init = (pid, container)

    def close(self) -> None:
        """Give the capsule back."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def fileno(self) -> int | None:
        return self._client.fileno() if self._client is not None else None

    def ready(self) -> None:
        """The connection said something; all that matters is whether it ended."""
        try:
            if self._client is not None:
                self._client.next_push(_LOOK_S)
        except JackinError:
            self.close()
            self._reopen_at = time.monotonic() + REOPEN_EVERY_S

    def tick(self) -> float | None:
        if self._client is not None:
            return None
        if time.monotonic() >= self._reopen_at:
            self._reopen()
        return None if self._client is not None else REOPEN_EVERY_S

    def _reopen(self) -> None:
        """The agent works on whether this succeeds or not: its next command says what is wrong."""
        self._reopen_at = time.monotonic() + REOPEN_EVERY_S
        self._call = msgspec.structs.replace(self._call, name=self._name, again=True)
        try:
            self.open()
            if self._init is not None:
                self.record_init(*self._init)
        except JackinError:
            self.close()


def _ready(reply: Reply) -> CapsuleReady:
    if not isinstance(reply, CapsuleReady):
        raise JackinError(
            "the broker gave an answer that does not fit",
            hint="restart it from the installation that this program is of",
        )
    return reply
