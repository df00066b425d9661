"""The operator's doorway: who may answer, what they are told, what they may ask.

One connection a client; calls carry a `seq`, pushes none. It refuses to know how a daemon is
wired: what needs more than the desk goes to a `Steward`. Invariants: only the operator's own
processes get past `check_operator`; no reply has a field for a value; a client that does not read
is dropped, never waited for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from . import __version__
from . import operator_protocol as op
from .desk import DecisionRefused
from .errors import DenialCode, JackinError, LocalProtocolError, PeerProtocolError, Refusal
from .frames import DataFrame, Frame, FrameDecoder, Stream, message_frame
from .grants.granting import Granting
from .operator_desk import OperatorDesk
from .peer import check_operator
from .services import Services

_log = logging.getLogger(__name__)

# Unread pushes of one client, more than a capsule may cause at once (desk.py); a picker that
# hangs longer than this is better restarted.
UNREAD_MAX_BYTES: Final = 32 * 1024 * 1024
# Live output that a client has not read: past it pieces are left out and counted, so that its
# prompts never wait behind a command that writes without end.
UNREAD_OUTPUT_MAX_BYTES: Final = 1024 * 1024
# How long a client may take to read the last words: one that is stopped (Ctrl-Z) reads nothing,
# and must not keep a broker from ending.
FAREWELL_S: Final = 3.0
READ_BYTES: Final = 64 * 1024
_TOO_LONG: Final = (
    DenialCode.INTERNAL_ERROR.value,
    "what is asked for is too long to send",
    "deny some of what waits: jackin-broker requests --follow, jackin-broker decide",
)
# Which clients can answer a prompt, so that `no_operator` does not apply.
COUNTING_CLIENTS: Final = frozenset({"picker", "plain", "follow"})
# Which of them have the prompt on the screen, so that no popup is needed.
SHOWING_CLIENTS: Final = frozenset({"picker", "plain"})


class Steward(Protocol):
    """What the daemon does for an operator. Every method may raise JackinError."""

    async def status(self, seq: int, *, check_keyring: bool) -> op.StatusReport: ...

    def kill(self, request_id: str) -> None: ...

    async def reload(self) -> tuple[str, ...]: ...

    def stop(self) -> None: ...

    async def unlock_vault(self, passphrase: str) -> None: ...

    async def check_credential(self, name: str, capsule: str) -> None: ...

    async def open_capsule(self, call: op.OpenCapsule) -> tuple[op.CapsuleReady, str]: ...

    def record_init(self, name: str, pid: int, session_id: str, container: str) -> None: ...

    def close_capsule(self, name: str, session_id: str) -> None: ...

    async def capsule_env(self, call: op.CapsuleEnv) -> op.CapsuleVariables: ...

    def revoke_token(self, name: str) -> None: ...

    def notices(self) -> tuple[str, ...]: ...


class OperatorServer:
    """Serves operator.sock until `close`."""

    def __init__(
        self,
        listener: socket.socket,
        services: Services,
        granting: Granting,
        steward: Steward,
        broker_pid: int,
    ) -> None:
        self._listener = listener
        self._services = services
        self._desk = OperatorDesk(services, granting)
        self._steward = steward
        self._broker_pid = broker_pid
        self._server: asyncio.Server | None = None
        self._clients: set[_Client] = set()

    async def open(self) -> None:
        """Begin to accept."""
        self._server = await asyncio.start_unix_server(self._serve, sock=self._listener)

    async def close(self, reason: str) -> None:
        """Say goodbye to everyone and end."""
        if self._server is not None:
            self._server.close()
        clients = list(self._clients)
        for client in clients:
            client.push(op.Goodbye(reason))
        await asyncio.gather(*(client.end() for client in clients))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        try:
            check_operator(peer, self._broker_pid)
        except Refusal as refusal:
            _log.warning("refused at operator.sock: %s", refusal)
            writer.write(_frame(op.Failed(0, refusal.code.value, str(refusal), refusal.hint)))
            writer.close()
            return
        client = _Client(reader, writer, self._services, self._desk, self._steward)
        self._clients.add(client)
        try:
            await client.run()
        finally:
            self._clients.discard(client)


class _Client:
    """One operator's connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        services: Services,
        desk: OperatorDesk,
        steward: Steward,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._approvals, self._live = services.approvals, services.live
        self._desk, self._steward = desk, steward
        self._watched: set[str] = set()
        self._skipped: dict[str, int] = {}  # request → bytes of it that were left out
        self._leave: Callable[[], None] | None = None
        self._launched: dict[str, str] = {}  # capsule → the session that proves the launch
        self.ended: Final = asyncio.Event()

    async def run(self) -> None:
        """Answer calls in order until the client leaves."""
        decoder = FrameDecoder(max_message_bytes=op.OPERATOR_MESSAGE_MAX_BYTES)
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in decoder.feed(data):
                    await self._answer(_call_in(frame))
        except (ConnectionError, PeerProtocolError) as error:
            _log.warning("an operator's client left: %s", error)
        finally:
            await self._cease()

    def push(self, message: op.Push | op.Reply) -> None:
        """Queue a message; a client that does not read is dropped."""
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > UNREAD_MAX_BYTES:
            _log.warning("an operator's client does not read, dropped")
            self._writer.transport.abort()
            return
        try:
            self._writer.write(_frame(message))
        except LocalProtocolError:
            _log.exception("a message to an operator is too long")
            if isinstance(message, op.Reply):
                self._writer.write(_frame(op.Failed(message.seq, *_TOO_LONG)))

    async def end(self) -> None:
        """Close once what is queued has left, and return when that is so, or after a while."""
        self._writer.close()
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self.ended.wait()
        except TimeoutError:
            _log.warning("an operator's client did not read the last words")
            self._writer.transport.abort()

    async def _cease(self) -> None:
        if self._leave is not None:
            self._leave()
        for request_id in tuple(self._watched):
            self._unwatch(request_id)
        self._writer.close()
        self.ended.set()
        for name, session_id in self._launched.items():
            self._steward.close_capsule(name, session_id)

    async def _answer(self, call: op.Call) -> None:
        try:
            reply = await self._act(call)
        except DecisionRefused as refused:
            assert isinstance(call, op.Decide)
            reply = op.Decided(call.seq, call.id, False, refused.fault.value, str(refused))
        except Refusal as refusal:
            reply = op.Failed(call.seq, refusal.code.value, str(refusal), refusal.hint)
        except JackinError as error:
            reply = op.Failed(call.seq, "failed", str(error), error.hint)
        except Exception:  # an operator's call must not end the broker; the log has the cause
            _log.exception("an operator's %s failed", type(call).__name__)
            reply = op.Failed(
                call.seq,
                DenialCode.INTERNAL_ERROR.value,
                "the broker failed",
                "the cause is in the log: jackin-broker doctor says where that is",
            )
        self.push(reply)

    async def _act(self, call: op.Call) -> op.Reply:
        match call:
            case op.Attach():
                return self._attach(call)
            case op.Watch(seq, request_id):
                self._watch(request_id) if call.on else self._unwatch(request_id)
            case op.KillRequest(seq, request_id):
                if not self._desk.stop(request_id):
                    self._steward.kill(request_id)
            case op.GetStatus(seq):
                return await self._steward.status(seq, check_keyring=call.check_keyring)
            case op.Reload(seq):
                return op.Done(seq, await self._steward.reload())
            case op.Stop(seq):
                self._steward.stop()
            case op.UnlockVault(seq, passphrase):
                await self._steward.unlock_vault(passphrase)
            case op.CheckCredential(seq, name, capsule):
                await self._steward.check_credential(name, capsule)
            case op.OpenCapsule(seq):
                ready, session_id = await self._steward.open_capsule(call)
                self._launched[ready.name] = session_id
                return ready
            case op.RecordInit(seq, name, pid):
                self._steward.record_init(name, pid, self._launched.get(name, ""), call.container)
            case op.CapsuleEnv():
                return await self._steward.capsule_env(call)
            case op.RevokeToken(seq, name):
                self._steward.revoke_token(name)
            case _:
                return await self._desk.answer(call)
        return op.Done(seq)

    def _watch(self, request_id: str) -> None:
        """Push what a command writes, from the last of what it wrote.

        Raises: Refusal when nothing of that id runs.
        """
        feed = self._live.feed(request_id)
        if feed is None:
            raise Refusal(DenialCode.BAD_REQUEST, "nothing of that id runs")
        if request_id not in self._watched:
            self._watched.add(request_id)
            feed.watch(self, partial(self._show, request_id))

    def _unwatch(self, request_id: str) -> None:
        self._watched.discard(request_id)
        self._skipped.pop(request_id, None)
        feed = self._live.feed(request_id)
        if feed is not None:
            feed.unwatch(self)

    def _show(self, request_id: str, stream: Stream, data: bytes, skipped: int) -> None:
        """Push a piece of output, or count it where the client does not keep up."""
        skipped += self._skipped.pop(request_id, 0)
        if self._writer.transport.get_write_buffer_size() > UNREAD_OUTPUT_MAX_BYTES:
            self._skipped[request_id] = skipped + len(data)
        else:
            self.push(op.Output(request_id, stream.value, data, skipped))

    def _tell(self, view: op.RequestView) -> None:
        """Push a request's change; of what ended there is no more output to come."""
        if view.state in op.FINAL_STATES:
            self._unwatch(view.id)
        self.push(op.RequestChanged(view))

    def _attach(self, call: op.Attach) -> op.Attached:
        if call.protocol != op.OPERATOR_PROTOCOL_VERSION:
            raise JackinError(
                f"protocol {call.protocol} is not spoken here, "
                f"this broker speaks {op.OPERATOR_PROTOCOL_VERSION}",
                hint="restart the broker and the picker from the same installation",
            )
        if self._leave is None:
            self._leave = self._approvals.listen(
                self._tell,
                counts=call.client in COUNTING_CLIENTS,
                shows=call.client in SHOWING_CLIENTS,
            )
        return op.Attached(
            call.seq,
            __version__,
            self._approvals.desk.views(self._approvals.now()),
            self._steward.notices(),
        )


def _call_in(frame: Frame) -> op.Call:
    if isinstance(frame, DataFrame):
        raise PeerProtocolError("operators send messages alone")
    return op.decode_call(frame.body)


def _frame(message: msgspec.Struct) -> bytes:
    return message_frame(msgspec.json.encode(message), max_bytes=op.OPERATOR_MESSAGE_MAX_BYTES)
