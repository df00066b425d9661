"""What a caller sends is passed on whenever it comes; of a stdin not its own it hears nothing."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable

import pytest

from jackin_broker import protocol
from jackin_broker.connection import CapsuleConnection
from jackin_broker.errors import PeerProtocolError
from jackin_broker.frames import DataFrame, FrameDecoder, MessageFrame, Stream, message_frame
from jackin_broker.intake import CREDIT_STEP_BYTES, Intake
from jackin_broker.peer import Caller

# Only a hang takes longer.
LIMIT_S = 20.0


class Command:
    """Takes all that it is given, at once."""

    def __init__(self, consumed: Callable[[int], None]) -> None:
        self.on_stopped: Callable[[int], None] | None = None
        self.given = bytearray()
        self.is_closed = False
        self.signals: list[int] = []
        self._consumed = consumed

    def write_stdin(self, data: bytes) -> None:
        self.given += data
        self._consumed(len(data))

    def close_stdin(self) -> None:
        self.is_closed = True

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def pause_output(self) -> None: ...
    def resume_output(self) -> None: ...


def test_a_value_on_stdin_gives_no_credit_to_the_caller() -> None:
    """DESIGN §8: credit is told in bytes, and would tell the value's length."""
    value = secrets.token_bytes(2 * CREDIT_STEP_BYTES)

    async def go() -> tuple[Command, bytes]:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, connection = await loop.connect_accepted_socket(CapsuleConnection, ours)
        caller = Caller(os.getpid(), os.getuid(), os.pidfd_open(os.getpid()), 1, ())
        intake = Intake(connection, caller)
        command = Command(intake.stdin_consumed)
        await intake.closed_stdin(protocol.StdinKind.NONE)
        intake.run(command, credit=True, given=value)
        intake.close()
        await connection.close()
        caller.close()
        with theirs:
            theirs.setblocking(False)
            return command, await loop.sock_recv(theirs, 1 << 16)

    command, heard = asyncio.run(go())
    assert bytes(command.given) == value
    assert command.is_closed
    assert heard == b""


class OwnTerminal:
    """Remembers the sizes that it was given."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []

    def resize(self, rows: int, cols: int) -> None:
        self.sizes.append((rows, cols))


def test_what_comes_between_the_start_and_the_run_is_not_lost() -> None:
    """The shim hears of the start by the first output, before the record of it is written."""

    async def go() -> tuple[Command, OwnTerminal, list[bytes]]:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, connection = await loop.connect_accepted_socket(CapsuleConnection, ours)
        caller = Caller(os.getpid(), os.getuid(), os.pidfd_open(os.getpid()), 1, ())
        intake = Intake(connection, caller)
        command, terminal = Command(intake.stdin_consumed), OwnTerminal()
        await intake.closed_stdin(protocol.StdinKind.LIVE)
        request = protocol.ExecCommand(protocol.PROTOCOL_VERSION, "vim")
        early = (request, protocol.Signal(15), protocol.Resize(20, 90), protocol.Resize(21, 91))
        for message in early:
            intake.frame_received(MessageFrame(protocol.encode(message)))
        intake.run(command, credit=True, terminal=terminal)
        intake.frame_received(MessageFrame(protocol.encode(protocol.Resize(22, 92))))
        for key in (b"a", b"\x03"):
            intake.frame_received(DataFrame(Stream.STDIN, key))
        intake.close()
        await connection.close()
        caller.close()
        with theirs:
            theirs.setblocking(False)
            heard = await loop.sock_recv(theirs, 1 << 16)
        frames = FrameDecoder(max_message_bytes=1 << 16).feed(heard)
        return command, terminal, [f.body for f in frames if isinstance(f, MessageFrame)]

    command, terminal, heard = asyncio.run(go())
    assert command.signals == [15]
    assert terminal.sizes == [(21, 91), (22, 92)]
    # Key by key, so that whoever types Ctrl-C learns that somebody is there.
    credit = [protocol.decode_to_capsule(body) for body in heard]
    assert credit == [protocol.StdinCredit(1), protocol.StdinCredit(1)]


def test_a_closed_stdin_is_bounded_also_where_it_comes_before_its_kind_is_known() -> None:
    """A fast caller: all of it arrives before the task that reads the first message runs."""

    async def gather(sizes: list[int]) -> bytes:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, connection = await loop.connect_accepted_socket(CapsuleConnection, ours)
        caller = Caller(os.getpid(), os.getuid(), os.pidfd_open(os.getpid()), 1, ())
        intake = Intake(connection, caller)
        request = protocol.ExecCommand(protocol.PROTOCOL_VERSION, "cat")
        intake.frame_received(MessageFrame(protocol.encode(request)))
        for size in sizes:
            intake.frame_received(DataFrame(Stream.STDIN, b"x" * size))
        try:
            async with asyncio.timeout(LIMIT_S):
                gathering = asyncio.ensure_future(intake.closed_stdin(protocol.StdinKind.CLOSED))
                await asyncio.sleep(0)
                theirs.sendall(message_frame(protocol.encode(protocol.StdinEof()), max_bytes=100))
                return await gathering
        finally:
            intake.close()
            theirs.close()
            await connection.close()
            caller.close()

    whole = [protocol.DATA_FRAME_MAX_BYTES] * 4
    assert len(asyncio.run(gather(whole))) == protocol.CLOSED_STDIN_MAX_BYTES
    with pytest.raises(PeerProtocolError, match="at most 1048576 bytes"):
        asyncio.run(gather([*whole, 1]))
