"""Frames over TCP: the same sessions as behind broker.sock, for whoever proves the token.

The challenge (`handshake.py`) takes the place of the kernel's word, within one deadline, on the
bare socket; only then a session begins. It refuses to know requests. Invariants: before the proof
a peer makes us hold half a kilobyte at most, and hears no name of ours; the token never leaves.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from ..capsules import Capsule
from ..connection import CapsuleConnection
from ..doorway import Doorway
from ..errors import DenialCode, PeerProtocolError, Refusal
from ..frames import HEADER_BYTES, message_frame
from ..peer import Caller, bridge_caller
from ..protocol import PROTOCOL_VERSION
from ..services import Services
from ..session import McpServing
from . import handshake
from .handshake import HANDSHAKE_MESSAGE_MAX_BYTES, NONCE_BYTES, Challenge, Hello, Proof
from .tokens import BridgeKey

# For the whole challenge, and for an HTTP request's head: three small messages take milliseconds,
# over a slow line a second.
HANDSHAKE_S: Final = 10.0
# A peer that vanished without a word (a VM that was switched off) is noticed within two minutes.
KEEPALIVE_IDLE_S: Final = 60
_KEEPALIVE_EVERY_S: Final = 15
_KEEPALIVE_PROBES: Final = 4

# A peer that is there and reads nothing for so long has left its output: longer than somebody
# looks at one page in a pager. On broker.sock the kernel says that the process ended.
STALL_S: Final = 900.0

CurrentKey = Callable[[], BridgeKey | None]


def wrong_token() -> Refusal:
    """What whoever does not have the token is told, without a word about the capsule."""
    return Refusal(
        DenialCode.PEER_REFUSED,
        "the token is wrong or no longer valid",
        hint="ask the operator for the present one: jackin-broker capsule env NAME",
    )


class FramesDoorway(Doorway):
    """One capsule's TCP port for frames. `current_key` is None while nobody may come in."""

    def __init__(
        self,
        services: Services,
        capsule: Capsule,
        listener: socket.socket,
        current_key: CurrentKey,
        mcp: McpServing | None = None,
    ) -> None:
        self._current_key = current_key
        self._unproved: dict[asyncio.Task[None], None] = {}  # the one that came first is first
        super().__init__(services, capsule, listener, mcp)

    def _new_connection(self) -> CapsuleConnection:
        return CapsuleConnection(stall_s=STALL_S, pace=self._pace)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._unproved[task] = None

    def _left(self, task: asyncio.Task[None]) -> None:
        self._unproved.pop(task, None)
        super()._left(task)

    def _make_room(self) -> None:
        """Who has no token cannot keep the others out by connecting and saying nothing."""
        if self._unproved:
            next(iter(self._unproved)).cancel()

    async def _serve(self, connection: CapsuleConnection, caller: Caller) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._unproved.pop(task, None)
        await super()._serve(connection, caller)

    async def _ask_who(self, peer: socket.socket) -> Caller | Refusal:
        """The challenge comes first: what there is of a budget is for those who passed it."""
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return self._admitted(await self._identify(peer))
        except Refusal as refusal:
            return refusal

    async def _identify(self, peer: socket.socket) -> Caller:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                key = await self._challenge(peer)
            address = str(peer.getpeername()[0])
            return bridge_caller(address, lambda: self._current_key() == key)
        except (TimeoutError, PeerProtocolError, OSError) as error:
            raise Refusal(DenialCode.PEER_REFUSED, "the handshake was not completed") from error

    async def _challenge(self, peer: socket.socket) -> BridgeKey:
        """The key whose token both sides have proved.

        Raises: Refusal, PeerProtocolError, OSError.
        """
        hello = await self._receive(peer)
        if not isinstance(hello, Hello):
            raise PeerProtocolError("a Hello comes first")
        if hello.protocol != PROTOCOL_VERSION:
            raise Refusal(
                DenialCode.BAD_REQUEST,
                f"protocol {hello.protocol} is not spoken here, "
                f"this broker speaks {PROTOCOL_VERSION}",
            )
        key = self._current_key()
        if key is None:
            raise wrong_token()
        theirs, ours = handshake.nonce_of(hello.nonce), secrets.token_bytes(NONCE_BYTES)
        challenge = Challenge(ours.hex(), handshake.broker_proof(key.token, theirs, ours))
        await self._send(peer, challenge)
        answer = await self._receive(peer)
        if not isinstance(answer, Proof):
            raise PeerProtocolError("a Proof comes after the challenge")
        if not handshake.is_caller_proof(answer.proof, key.token, theirs, ours):
            raise wrong_token()
        if self._current_key() != key:  # revoked at this very moment
            raise wrong_token()
        return key

    async def _send(self, peer: socket.socket, message: msgspec.Struct) -> None:
        body = msgspec.json.encode(message)
        frame = message_frame(body, max_bytes=HANDSHAKE_MESSAGE_MAX_BYTES)
        await self._loop.sock_sendall(peer, frame)

    async def _receive(self, peer: socket.socket) -> Hello | Proof:
        size = int.from_bytes(await self._read(peer, HEADER_BYTES), "big")
        if not 0 < size <= HANDSHAKE_MESSAGE_MAX_BYTES:
            raise PeerProtocolError("a handshake's message is not that long")
        return handshake.decode(await self._read(peer, size))

    async def _read(self, peer: socket.socket, size: int) -> bytes:
        """Exactly so many bytes: what follows is the session's."""
        found = b""
        while len(found) < size:
            piece = await self._loop.sock_recv(peer, size - len(found))
            if not piece:
                raise PeerProtocolError("the caller went away during the handshake")
            found += piece
        return found


def listen_on(address: str, port: int, backlog: int) -> socket.socket:
    """A listening, non-blocking TCP socket whose connections notice a peer that vanished.

    Raises: OSError.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these on Linux (tcp(7)).
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_EVERY_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
        sock.bind((address, port))
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
