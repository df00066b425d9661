"""MCP clients of capsules: a server process each, and sessions for what it asks.

The agent's relay made a connection, and the kernel said whose it is. Its bytes are the server's
stdin and stdout; the server's requests arrive on sockets that are made here, one a request, and
each becomes a `Session` of the same capsule with the same caller. So nothing that the server is
or says can be anybody else's. Invariants: the server is confined (`confined.py`), and capped
a capsule; when the relay's connection ends, or the server does, everything of it ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from .. import protocol
from ..capsules import Capsule
from ..config import Config
from ..connection import CapsuleConnection, Channel
from ..errors import DenialCode, LocalProtocolError, PeerProtocolError, Refusal
from ..intake import Intake
from ..peer import Caller
from ..protocol import Mcp, StdinKind
from ..services import Services
from ..session import Session
from .messages import (
    DATAGRAM_MAX_BYTES,
    LABEL_MAX_CHARS,
    NAMES_MAX,
    Facts,
    Lendable,
    NotOpened,
    Opened,
    ToServer,
    decode_from_server,
)
from .process import ServerProcess

_log = logging.getLogger(__name__)

# Sessions hear that their peer is gone and end their commands: TERM, grace, KILL.
END_LIMIT_S: Final = 15.0
_OPEN_MAX_BYTES: Final = 4096


class McpHost:
    """Every MCP server of one broker. Given to the sessions that come from a capsule."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._served: set[_Served] = set()

    async def serve(
        self,
        message: Mcp,
        capsule: Capsule,
        connection: Channel,
        caller: Caller,
        intake: Intake,
    ) -> None:
        """Run a server on this connection, and return when it ended.

        Raises: Refusal when there may be no more, or it ended by itself; CallerGone for a relay
        that broke the frames.
        """
        limit = self._services.config.limits.mcp_per_capsule
        if sum(one.capsule is capsule for one in self._served) >= limit:
            raise Refusal(
                DenialCode.TOO_MANY_PENDING,
                f"capsule {capsule.name} has {limit} mcp clients already",
                hint="end one of them, or the operator may raise mcp_per_capsule in [limits]",
            )
        served = _Served(self._services, message, capsule, caller)
        self._served.add(served)
        try:
            await served.run(connection, intake)
        finally:
            self._served.discard(served)

    def refresh(self) -> None:
        """The configuration changed: tell every server what there is now."""
        for served in self._served:
            served.tell()


class _Served:
    """One relay's connection, its server, and the requests that the server makes."""

    def __init__(
        self,
        services: Services,
        message: Mcp,
        capsule: Capsule,
        caller: Caller,
    ) -> None:
        self._services = services
        self._message = message
        self.capsule: Final = capsule
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._sessions: set[asyncio.Task[None]] = set()
        self._link: socket.socket | None = None
        self._told: Facts | None = None
        self._is_over: asyncio.Future[None] = self._loop.create_future()

    async def run(self, connection: Channel, intake: Intake) -> None:
        """Start the server and stay until it ended, or the caller did."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._link = ours
        try:
            with theirs:
                process = await ServerProcess.start(theirs, connection, intake)
            try:
                self.tell()
                self._loop.add_reader(ours, self._asked)
                await intake.closed_stdin(StdinKind.LIVE)
                intake.run(process, credit=False)
                ends = (process.ended, intake.gone, self._is_over)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:  # the broker stops: each request gets that for a reason
                self._end_sessions()
                raise
            finally:
                self._loop.remove_reader(ours)
                await process.end()
        finally:
            self._link = None
            ours.close()
            await self._settle()
        if intake.gone.done():
            if intake.gone.result().error is not None:
                raise intake.gone.result()
            return  # a client that goes away is the ordinary end
        if self._is_over.done():
            raise _no_longer()
        raise Refusal(
            DenialCode.INTERNAL_ERROR,
            "the mcp server ended by itself",
            hint="the operator finds the cause in the log: jackin-broker doctor",
        )

    def tell(self) -> None:
        """Send the facts, if they are not what the server knows."""
        facts = facts_of(self.capsule, self._services.config, self._message)
        if facts != self._told and self._send(facts):
            self._told = facts

    def _send(self, message: ToServer, *descriptors: int) -> bool:
        """Whether it left; a server that does not read loses it, and ends by its own limits."""
        if self._link is None:
            return False
        try:
            socket.send_fds(self._link, [protocol.encode(message)], list(descriptors))
        except (OSError, LocalProtocolError):
            _log.warning("an mcp server of capsule %s does not listen", self.capsule.name)
            return False
        return True

    # --- its requests -------------------------------------------------------------------

    def _asked(self) -> None:
        assert self._link is not None
        try:
            words = self._link.recv(_OPEN_MAX_BYTES)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        if not words:  # it is on its way out, which its process says
            self._loop.remove_reader(self._link)
            return
        try:
            number = decode_from_server(words).number
        except PeerProtocolError:
            _log.exception("an mcp server of capsule %s", self.capsule.name)
            return
        limit = self._services.config.limits.connections_per_capsule
        if not self._caller.may_begin():
            self._end_revoked(number)
        elif len(self.capsule.callers) >= limit:
            self._send(
                NotOpened(
                    number,
                    DenialCode.TOO_MANY_PENDING.value,
                    f"capsule {self.capsule.name} has too many requests open",
                    "wait for the commands that run",
                )
            )
        else:
            self._open_session(number)

    def _end_revoked(self, number: int) -> None:
        """The token was taken back: nothing new, and the end once nothing runs any more."""
        if self._sessions:
            no = _no_longer()
            self._send(NotOpened(number, no.code.value, str(no), no.hint))
        elif not self._is_over.done():
            self._is_over.set_result(None)

    def _open_session(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            if not self._send(Opened(number), theirs.fileno()):
                ours.close()
                return
        caller = self._caller.again()
        # It counts like any other connection, and at once: more may be asked for at this moment.
        self.capsule.callers.add(caller)
        task = self._loop.create_task(self._converse(ours, caller))
        self._sessions.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._sessions.discard(task)
            self.capsule.callers.discard(caller)
            caller.close()
            if task.cancelled():  # before its session took the socket over
                ours.close()

        task.add_done_callback(ended)

    async def _converse(self, ours: socket.socket, caller: Caller) -> None:
        ours.setblocking(False)
        _, connection = await self._loop.connect_accepted_socket(CapsuleConnection, ours)
        await Session(self._services, self.capsule, connection, caller).run()

    def _end_sessions(self) -> None:
        for task in self._sessions:
            task.cancel()

    async def _settle(self) -> None:
        """Wait for its requests: with the server gone, each has lost its peer."""
        if not self._sessions:
            return
        _, late = await asyncio.wait(self._sessions, timeout=END_LIMIT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


def _no_longer() -> Refusal:
    return Refusal(
        DenialCode.PEER_REFUSED,
        "the token is no longer valid",
        hint="enter the capsule again: the operator has jackin-broker capsule env NAME",
    )


def facts_of(capsule: Capsule, config: Config, message: Mcp) -> Facts:
    """What the agent may know of its capsule: names and labels, as many as fit."""
    bindings = sorted(config.bindings_of(capsule.name).values(), key=lambda one: one.name)
    lendable = tuple(
        Lendable(one.name, one.label[:LABEL_MAX_CHARS]) for one in bindings[:NAMES_MAX]
    )
    binaries = capsule.config.host_binaries[:NAMES_MAX]
    left_out = len(bindings) - len(lendable) + len(capsule.config.host_binaries) - len(binaries)
    facts = Facts(
        capsule=capsule.name,
        cwd=message.cwd,
        bindings=lendable,
        binaries=binaries,
        pending_s=config.limits.mcp_pending_s,
        left_out=left_out,
    )
    if len(protocol.encode(facts)) > DATAGRAM_MAX_BYTES:  # names of a kilobyte each
        return Facts(capsule.name, message.cwd, (), (), facts.pending_s, left_out=len(bindings))
    return facts
