"""The operator's end of operator.sock: for the picker (asyncio) and the command line (blocking).

It refuses to know what calls mean and who shows the pushes. Invariants: every call gets its own
`seq` and the reply that repeats it, or an error; no wait for a reply is without a bound.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from .errors import BrokerUnreachable, DenialCode, JackinError, PeerProtocolError, Refusal
from .frames import FrameDecoder, MessageFrame, message_frame
from .operator_protocol import (
    OPERATOR_MESSAGE_MAX_BYTES,
    Call,
    Failed,
    Goodbye,
    Output,
    Push,
    Reply,
    RequestChanged,
    decode_from_broker,
)
from .protocol import encode
from .push_queue import PushQueue

# Connecting is local: what takes longer is a broker that hangs.
CONNECT_TIMEOUT_S: Final = 5.0
# Longer than a source's own deadline (30 s) and an unlock's key derivation together.
CALL_TIMEOUT_S: Final = 60.0
READ_BYTES: Final = 256 * 1024
START_HINT: Final = "start it with: jackin-broker serve (or jackin-broker, with the picker)"

_PEER_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: socket(7), SO_PEERCRED


class OperatorClient:
    """One asyncio connection: calls with replies, and the pushes of an attached client.

    Iterating yields pushes until the connection ends; `ended_because` then says why.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._seq = 0
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._pushes = PushQueue()
        self._news = asyncio.Event()
        self.ended_because = ""
        self._reading = asyncio.create_task(self._read(), name="operator-client-read")

    @classmethod
    async def connect(cls, path: Path | str) -> Self:
        """A client of the broker at `path`.

        Raises: BrokerUnreachable.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(
                    os.fspath(path), limit=READ_BYTES
                )
        except (OSError, TimeoutError) as error:
            raise _unreachable(path) from error
        try:
            _check_owner(writer.get_extra_info("socket"))
        except BrokerUnreachable:
            writer.close()
            raise
        return cls(reader, writer)

    @property
    def is_open(self) -> bool:
        return not self._reading.done()

    async def call(self, message: Call, *, timeout_s: float = CALL_TIMEOUT_S) -> Reply:
        """The broker's reply to `message`, whose `seq` is filled in here.

        Raises: BrokerUnreachable when the connection ended or no reply came; Refusal or
            JackinError for what the broker refused.
        """
        if not self.is_open:
            raise _gone(self.ended_because)
        self._seq += 1
        seq = self._seq
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[seq] = reply
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(_frame(message, seq))
                await self._writer.drain()
                return _accepted(await reply)
        except TimeoutError as error:
            raise _silent(timeout_s) from error
        except OSError as error:
            raise _gone(self.ended_because) from error
        finally:
            del self._waiting[seq]

    async def __aiter__(self) -> AsyncIterator[Push]:
        while True:
            while len(self._pushes):
                yield self._pushes.get()
            if not self.is_open:
                return
            self._news.clear()
            await self._news.wait()

    async def close(self) -> None:
        """End the connection; nothing that runs is harmed."""
        self._reading.cancel()
        self._writer.close()
        await asyncio.wait([self._reading])

    async def _read(self) -> None:
        decoder = FrameDecoder(max_message_bytes=OPERATOR_MESSAGE_MAX_BYTES)
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in decoder.feed(data):
                    self._take(_message(frame))
            self._end("the broker closed the connection")
        except PeerProtocolError as error:
            self._end(str(error))
        except OSError as error:
            self._end(error.strerror or "the connection broke")
        except asyncio.CancelledError:
            self._end("this end closed the connection")
            raise

    def _take(self, message: Reply | Push) -> None:
        if isinstance(message, RequestChanged | Output | Goodbye):
            self._pushes.put(message)
            self._news.set()
            return
        reply = self._waiting.get(message.seq)
        if reply is not None and not reply.done():
            reply.set_result(message)

    def _end(self, reason: str) -> None:
        self.ended_because = reason
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(_gone(reason))
        self._writer.close()
        # The reading task is done only after this returns; waiters look then.
        asyncio.get_running_loop().call_soon(self._news.set)


class BlockingClient:
    """One blocking connection, for the command line; it imports no event loop.

    Keep it open for what lives as long as the connection (`OpenCapsule`).
    """

    def __init__(self, path: Path | str) -> None:
        """Raises: BrokerUnreachable."""
        self._seq = 0
        self._decoder = FrameDecoder(max_message_bytes=OPERATOR_MESSAGE_MAX_BYTES)
        self._arrived: deque[Reply | Push] = deque()
        self._pushes = PushQueue()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(CONNECT_TIMEOUT_S)
            self._socket.connect(os.fspath(path))
            _check_owner(self._socket)
        except BrokerUnreachable:
            self._socket.close()
            raise
        except OSError as error:
            self._socket.close()
            raise _unreachable(path) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def call(self, message: Call, *, timeout_s: float = CALL_TIMEOUT_S) -> Reply:
        """The broker's reply, as `OperatorClient.call`, with the same errors."""
        self._seq += 1
        deadline_s = time.monotonic() + timeout_s
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(_frame(message, self._seq))
        except TimeoutError as error:
            raise _silent(timeout_s) from error
        except OSError as error:
            raise _gone(error.strerror or "") from error
        while True:
            arrived = self._next(deadline_s)
            if arrived is None:
                raise _silent(timeout_s)
            if isinstance(arrived, RequestChanged | Output | Goodbye):
                self._pushes.put(arrived)
            elif arrived.seq == self._seq:
                return _accepted(arrived)

    def next_push(self, timeout_s: float) -> Push | None:
        """The next push, or None when none came in time.

        Raises: BrokerUnreachable when the connection ended.
        """
        if len(self._pushes):
            return self._pushes.get()
        deadline_s = time.monotonic() + timeout_s
        while (arrived := self._next(deadline_s)) is not None:
            if isinstance(arrived, RequestChanged | Output | Goodbye):
                return arrived
        return None

    def _next(self, deadline_s: float) -> Reply | Push | None:
        while not self._arrived:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return None
            try:
                self._socket.settimeout(left_s)
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                return None
            except OSError as error:
                raise _gone(error.strerror or "") from error
            if not data:
                raise _gone("the broker closed the connection")
            self._arrived.extend(_message(frame) for frame in self._decoder.feed(data))
        return self._arrived.popleft()


def ask_broker(
    socket_path: Path | str, message: Call, *, timeout_s: float = CALL_TIMEOUT_S
) -> Reply:
    """The reply to one call on a connection of its own.

    Raises: BrokerUnreachable, Refusal, JackinError.
    """
    with BlockingClient(socket_path) as client:
        return client.call(message, timeout_s=timeout_s)


def _frame(message: Call, seq: int) -> bytes:
    body = encode(msgspec.structs.replace(message, seq=seq))
    return message_frame(body, max_bytes=OPERATOR_MESSAGE_MAX_BYTES)


def _message(frame: object) -> Reply | Push:
    if not isinstance(frame, MessageFrame):
        raise PeerProtocolError("a data frame where only messages belong")
    return decode_from_broker(frame.body)


def _accepted(reply: Reply) -> Reply:
    """The reply, unless it is a failure: that is raised."""
    if not isinstance(reply, Failed):
        return reply
    try:
        code = DenialCode(reply.code)
    except ValueError:
        raise JackinError(reply.reason, hint=reply.hint) from None
    raise Refusal(code, reply.reason, hint=reply.hint)


def _check_owner(connected: socket.socket) -> None:
    """Calls may hold a passphrase: only a broker of the operator's own uid gets one."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _, uid, _ = _PEER_CREDENTIALS.unpack(raw)
    if uid != os.geteuid():
        raise BrokerUnreachable(
            "the process at the operator's socket belongs to someone else",
            hint="check [broker] runtime_dir and who owns it",
        )


def _unreachable(path: Path | str) -> BrokerUnreachable:
    return BrokerUnreachable(f"no broker answers at {os.fspath(path)}", hint=START_HINT)


def _gone(reason: str) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"the connection to the broker ended{': ' if reason else ''}{reason}", hint=START_HINT
    )


def _silent(timeout_s: float) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"the broker did not answer within {timeout_s:g} s", hint="see: jackin-broker doctor"
    )
