"""The MCP server's way to the broker: an inherited socket, and a connection for each request.

The broker takes what is said on these connections for the agent's own words: who that is was
settled before this process started. It refuses to know MCP. Invariants: a connection carries one
request; closing it withdraws the request; when the broker goes, everything that waits here ends.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from . import __version__, protocol
from .errors import BrokerUnreachable, PeerProtocolError, Refusal
from .errors import DenialCode as DenialCode
from .frames import DataFrame as DataFrame
from .frames import Frame, FrameDecoder, data_frames, message_frame
from .frames import Stream as Stream
from .mcp_hosting.messages import (
    DATAGRAM_MAX_BYTES,
    NotOpened,
    Open,
    Opened,
    decode_to_server,
)
from .mcp_hosting.messages import Facts as Facts
from .mcp_hosting.messages import Lendable as Lendable

VERSION: Final = __version__
_RECEIVE_BYTES: Final = 256 * 1024
# A broker that is asked for a socket answers in a turn of its loop.
OPEN_LIMIT_S: Final = 10.0


class Connection:
    """One request's connection, as frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder(
            max_message_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES,
            streams=(Stream.STDOUT, Stream.STDERR),
        )
        self._frames: list[Frame] = []

    async def send(self, message: msgspec.Struct, stdin: bytes = b"") -> None:
        """Send a message, and what a closed stdin holds after it.

        Raises: BrokerUnreachable; LocalProtocolError for a message that is too long.
        """
        frames = [
            message_frame(
                protocol.encode(message), max_bytes=protocol.MESSAGE_FROM_CAPSULE_MAX_BYTES
            )
        ]
        if stdin:
            frames += data_frames(Stream.STDIN, stdin)
        self._writer.write(b"".join(frames))
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise gone() from error

    async def receive(self) -> protocol.ToCapsule | DataFrame:
        """The next message or piece of output.

        Raises: BrokerUnreachable when there are no more; PeerProtocolError.
        """
        while not self._frames:
            try:
                arrived = await self._reader.read(_RECEIVE_BYTES)
            except ConnectionError as error:
                raise gone() from error
            if not arrived:
                raise gone()
            self._frames = self._decoder.feed(arrived)
        frame = self._frames.pop(0)
        if isinstance(frame, DataFrame):
            return frame
        return protocol.decode_to_capsule(frame.body)

    def close(self) -> None:
        """Withdraw what has not ended: its prompt closes, its command ends."""
        self._writer.close()


class Link:
    """The inherited socket. `changed` is called with new facts, `lost` when the broker went."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[socket.socket]] = {}
        self._facts: asyncio.Future[Facts] = self._loop.create_future()
        self.changed: Callable[[Facts], None] | None = None
        self.lost: Callable[[], None] | None = None
        self._loop.add_reader(channel, self._receive)

    async def facts(self) -> Facts:
        """What there is, once the broker has said it.

        Raises: BrokerUnreachable.
        """
        return await self._facts

    async def connect(self) -> Connection:
        """A connection for one request.

        Raises: BrokerUnreachable, Refusal.
        """
        number = next(self._numbers)
        answer: asyncio.Future[socket.socket] = self._loop.create_future()
        self._answers[number] = answer
        try:
            self._channel.send(protocol.encode(Open(number)))
            async with asyncio.timeout(OPEN_LIMIT_S):
                sock = await answer
        except (OSError, TimeoutError) as error:
            raise gone() from error
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                answer.result().close()
            raise
        finally:
            self._answers.pop(number, None)
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        return Connection(reader, writer)

    def close(self) -> None:
        """Let go; every request of this server ends with it."""
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._channel.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(gone())
        if not self._facts.done():
            self._facts.set_exception(gone())
        self._facts.exception()  # looked at, so that nobody is warned of it

    def _receive(self) -> None:
        try:
            words, descriptors, _, _ = socket.recv_fds(
                self._channel, DATAGRAM_MAX_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            words, descriptors = b"", []
        if not words:
            self.close()
            if self.lost is not None:
                self.lost()
            return
        with suppress(PeerProtocolError):  # one that we do not understand answers nothing
            self._take(words, descriptors)
        for fd in descriptors:  # what nobody took
            os.close(fd)

    def _take(self, words: bytes, descriptors: list[int]) -> None:
        match decode_to_server(words):
            case Facts() as facts:
                if not self._facts.done():
                    self._facts.set_result(facts)
                elif self.changed is not None:
                    self.changed(facts)
            case Opened(number):
                answer = self._answers.get(number)
                if answer is not None and not answer.done() and descriptors:
                    answer.set_result(socket.socket(fileno=descriptors.pop()))
            case NotOpened(number, code, reason, hint):
                answer = self._answers.get(number)
                if answer is not None and not answer.done():
                    answer.set_exception(Refusal(_code(code), reason, hint=hint))


def _code(word: str) -> DenialCode:
    try:
        return DenialCode(word)
    except ValueError:
        return DenialCode.INTERNAL_ERROR


def gone() -> BrokerUnreachable:
    """The error of a broker that went away."""
    return BrokerUnreachable("the broker went away", hint="it is back as soon as it is started")
