"""A capsule's door: accepts on its socket, asks the kernel who is there, starts a session.

It refuses to know requests. Invariants: at most `connections_per_capsule` at once; nobody who is
not identified reaches a session; a refused peer is told so and is on record, counted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from .capsules import Capsule
from .connection import CapsuleConnection
from .errors import DenialCode, Refusal
from .peer import Caller, identify
from .protocol import ExecDenied
from .services import Services
from .session import Session

_log = logging.getLogger(__name__)

# Accepted in one turn of the loop, so that one capsule's flood lets the others' turns come.
ACCEPT_BATCH: Final = 16


class Doorway:
    """One capsule's listening socket, and the sessions that came through it."""

    def __init__(self, services: Services, capsule: Capsule, listener: socket.socket) -> None:
        self._services = services
        self.capsule: Final = capsule
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)

    def stop_listening(self) -> None:
        """Let nobody in any more; what runs goes on."""
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()

    async def close(self) -> None:
        """Stop listening and end every session, each with its own last word."""
        self.stop_listening()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                peer, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors, or the peer left already
                _log.warning("capsule %s: accept failed: %s", self.capsule.name, error.strerror)
                return
            task = asyncio.get_running_loop().create_task(self._welcome(peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _welcome(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        try:
            caller = self._identify(peer)
        except Refusal as refusal:
            await self._turn_away(peer, refusal)
            return
        try:
            _, connection = await asyncio.get_running_loop().connect_accepted_socket(
                CapsuleConnection, peer
            )
            await Session(self._services, self.capsule, connection, caller).run()
        finally:
            caller.close()

    def _identify(self, peer: socket.socket) -> Caller:
        if len(self._tasks) > self._services.config.limits.connections_per_capsule:
            raise Refusal(
                DenialCode.TOO_MANY_PENDING,
                f"capsule {self.capsule.name} has too many connections",
                hint="wait for the commands that run",
            )
        return identify(peer, self.capsule)

    async def _turn_away(self, peer: socket.socket, refusal: Refusal) -> None:
        _, connection = await asyncio.get_running_loop().connect_accepted_socket(
            CapsuleConnection, peer
        )
        try:
            await self._services.audit.record_refusal(
                asyncio.get_running_loop().time(),
                self.capsule.name,
                (refusal.code.value, str(refusal)),
                code=refusal.code.value,
                reason=str(refusal),
            )
        except Refusal:
            _log.exception("a refused peer of %s is not on record", self.capsule.name)
        connection.send(ExecDenied(refusal.code.value, str(refusal), refusal.hint))
        await connection.close()
