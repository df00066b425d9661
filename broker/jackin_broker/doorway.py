"""A capsule's door: accepts on its socket, asks the kernel who is there, starts a session.

It refuses to know requests. Invariants: at most `connections_per_capsule` at once, and a bounded
number that is being refused; nobody who is not identified reaches a session; a refused peer is
told so and is on record, counted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import closing
from typing import Final

from .adoption import settled
from .capsules import Capsule
from .connection import CapsuleConnection
from .errors import DenialCode, Refusal
from .pace import Pace
from .peer import Caller, identify, is_runner
from .protocol import ExecDenied
from .runner.channel import serve_init
from .services import Services
from .session import McpServing, Session

_log = logging.getLogger(__name__)

# Accepted in one turn of the loop, so that one capsule's flood lets the others' turns come.
ACCEPT_BATCH: Final = 16
# Callers that are told no at the same time; each is a descriptor for a second at most. The
# next ones wait in the kernel's queue, so that one capsule cannot take the descriptors of all.
REFUSED_MAX: Final = 64
# Between two tries when a connection cannot be accepted; trying at once again takes a whole core.
RETRY_S: Final = 1.0
_FAILED: Final = Refusal(DenialCode.INTERNAL_ERROR, "the broker failed, nothing was run")


class Doorway:
    """One capsule's listening socket, and the sessions that came through it."""

    def __init__(
        self,
        services: Services,
        capsule: Capsule,
        listener: socket.socket,
        mcp: McpServing | None = None,
    ) -> None:
        self._services: Final = services
        self._mcp: Final = mcp
        self.capsule: Final = capsule
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._is_accepting = False
        self._pace: Final = Pace()  # one for a capsule's door: more connections get no more
        listener.setblocking(False)
        self._resume()

    def stop_listening(self) -> None:
        """Let nobody in any more; what runs goes on."""
        self._pause()
        self._listener.close()

    async def drained(self) -> None:
        """Return when nobody is in any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Stop listening and end every session, each with its own last word."""
        self.stop_listening()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._listener.fileno())

    def _resume(self) -> None:
        if not self._is_accepting and self._listener.fileno() >= 0:
            self._is_accepting = True
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._resume()

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            if len(self._tasks) >= self._limit + REFUSED_MAX:
                self._pause()  # until one of them has left
                self._make_room()
                return
            try:
                peer, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors, or the peer left already
                _log.warning("capsule %s: accept failed: %s", self.capsule.name, error.strerror)
                self._pause()
                self._loop.call_later(RETRY_S, self._resume)
                return
            task = self._loop.create_task(self._welcome(peer))
            self._tasks.add(task)
            self._arrived(task)
            task.add_done_callback(self._left)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        """Somebody is in, whoever it is."""

    def _make_room(self) -> None:
        """The door is full. The kernel says at once who is who, so nobody is in for nothing."""

    @property
    def _limit(self) -> int:
        return self._services.config.limits.connections_per_capsule

    async def _welcome(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        try:
            who = await self._ask_who(peer)
        except BaseException:
            peer.close()
            raise
        if isinstance(who, Refusal):
            _, connection = await self._loop.connect_accepted_socket(self._new_connection, peer)
            await self._turn_away(connection, who)
            return
        with closing(who):
            if is_runner(who, self.capsule):
                await serve_init(peer, self.capsule)
                return
            try:
                await self._serve_admitted(peer, who)
            finally:
                self.capsule.callers.discard(who)

    async def _serve_admitted(self, peer: socket.socket, caller: Caller) -> None:
        _, connection = await self._loop.connect_accepted_socket(self._new_connection, peer)
        try:
            await self._serve(connection, caller)
        except Exception:  # whatever it was, a caller is told no and never left waiting
            _log.exception("a caller of capsule %s could not be served", self.capsule.name)
            await self._turn_away(connection, _FAILED)

    async def _ask_who(self, peer: socket.socket) -> Caller | Refusal:
        """The caller, or why it is none."""
        try:
            self.check_budget()
            return self._admitted(await self._identify(peer))
        except Refusal as refusal:
            return refusal
        except Exception:  # it may be anybody then
            _log.exception("a caller of capsule %s could not be identified", self.capsule.name)
            return _FAILED

    def _admitted(self, caller: Caller) -> Caller:
        """The caller, who has a place from now on; init needs none.

        Nobody else comes between the look and the place. Raises: Refusal(TOO_MANY_PENDING).
        """
        if not is_runner(caller, self.capsule):
            try:
                self.check_budget()
            except Refusal:
                caller.close()
                raise
            self.capsule.callers.add(caller)
        return caller

    async def _serve(self, connection: CapsuleConnection, caller: Caller) -> None:
        await Session(self._services, self.capsule, connection, caller, self._mcp).run()

    def check_budget(self) -> None:
        """Return when the capsule may have one more session, whatever door it comes through.

        Raises: Refusal(TOO_MANY_PENDING).
        """
        if len(self.capsule.callers) >= self._limit:
            raise Refusal(
                DenialCode.TOO_MANY_PENDING,
                f"capsule {self.capsule.name} has too many connections",
                hint="wait for the commands that run",
            )

    def _new_connection(self) -> CapsuleConnection:
        return CapsuleConnection(pace=self._pace)

    async def _identify(self, peer: socket.socket) -> Caller:
        """Who is there. Raises: Refusal."""
        await settled(self.capsule, self._services.environ)
        return identify(peer, self.capsule)

    async def _turn_away(self, connection: CapsuleConnection, refusal: Refusal) -> None:
        try:
            await self._services.audit.record_refusal(
                self._loop.time(),
                self.capsule.name,
                (refusal.code.value, str(refusal)),
                code=refusal.code.value,
                reason=str(refusal),
            )
        except Refusal:
            _log.exception("a refused peer of %s is not on record", self.capsule.name)
        connection.send(ExecDenied(refusal.code.value, str(refusal), refusal.hint))
        await connection.close()
