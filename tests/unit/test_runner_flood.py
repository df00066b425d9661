"""A flood gathers while we have caught up with it: fewer pieces, the same bytes, nothing late.

The pump is tried on real pipes in a real loop. Any pace is made a flood's, and a rest endless where
a test looks at what happens in one, so that no machine is too slow.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable

import pytest

from jackin_broker.frames import Stream
from jackin_broker.runner import flood, pump
from jackin_broker.runner.flood import FLOOD_BYTES, Flood
from jackin_broker.runner.pump import READ_BYTES, WIDE_PIPE_BYTES, WIDENED_MAX_BYTES, OutputPump
from support.commands import Sink

LIMIT_S = 20.0
ENDLESS_S = 3600.0
PIECE = b"0123456789abcdef" * 512


class Pieces(Sink):
    """Remembers what came together, and says when it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.end = asyncio.Event()

    def output(self, stream: Stream, data: bytes) -> None:
        super().output(stream, data)
        self.pieces.append(data)

    def output_end(self, stream: Stream) -> None:
        super().output_end(stream)
        self.end.set()


class Line:
    """A pipe of which a pump has the one end and the test the other."""

    def __init__(self) -> None:
        reads, self.writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reads, False)
        self.sink = Pieces()
        self.reads = reads
        self.pump = OutputPump(reads, Stream.STDOUT, self.sink, lambda: None)
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        """All of it is in the pipe when this returns: it must fit."""
        assert os.write(self.writes, data) == len(data)
        self.written += data

    async def flood(self) -> None:
        """Write what is a flood at any pace; the pump has all of it when this returns."""
        while len(self.written) < FLOOD_BYTES:
            self.write(PIECE * (READ_BYTES // len(PIECE)))
            await self.until_caught_up()

    def is_caught_up(self) -> bool:
        return self.sink.sizes[Stream.STDOUT] == len(self.written)

    async def until_caught_up(self) -> None:
        while not self.is_caught_up():  # noqa: ASYNC110 - bounded by `play`
            await asyncio.sleep(0)

    def stop_writing(self) -> None:
        if self.writes >= 0:
            os.close(self.writes)
            self.writes = -1

    def close(self) -> None:
        self.stop_writing()
        self.pump.discard()


Scene = Callable[[Line], Awaitable[None]]


def play(scene: Scene) -> None:
    async def go() -> None:
        line = Line()
        line.pump.start()
        try:
            async with asyncio.timeout(LIMIT_S):
                await scene(line)
        finally:
            line.close()

    asyncio.run(go())


@pytest.fixture(autouse=True)
def any_pace_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine is too slow; and no pipe of another test counts."""
    monkeypatch.setattr(flood, "WINDOW_S", ENDLESS_S)
    none_yet: dict[OutputPump, int] = {}
    monkeypatch.setattr(OutputPump, "_widened", none_yet)


@pytest.fixture
def endless_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until somebody ends them."""
    monkeypatch.setattr(pump, "REST_S", ENDLESS_S)


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_comes_slowly_is_no_flood() -> None:
    slow = Flood()
    assert not any(slow.rises(2 * number * ENDLESS_S, FLOOD_BYTES - 1) for number in range(9))


def test_a_burst_that_is_short_is_no_flood_and_one_that_goes_on_is() -> None:
    fast = Flood()
    assert not fast.rises(1.0, FLOOD_BYTES - 1)
    assert fast.rises(1.0 + ENDLESS_S / 2, 1)
    assert fast.rises(1.0 + ENDLESS_S, 1)
    assert not fast.rises(2.0 + ENDLESS_S, 1)


@pytest.mark.usefixtures("endless_rests")
def test_what_a_flood_writes_while_it_rests_comes_in_one_piece() -> None:
    async def scene(line: Line) -> None:
        await line.flood()
        seen = len(line.sink.pieces)
        for _ in range(4):
            line.write(PIECE)
            await some_turns()
        assert len(line.sink.pieces) == seen, "it did not rest"
        line.pump.pause()
        line.pump.resume()
        await line.until_caught_up()
        assert line.sink.pieces[seen:] == [4 * PIECE]
        assert line.sink.out == line.written

    play(scene)


def test_a_rest_ends_by_itself() -> None:
    """Also the end of the stream is seen, though nothing is watched while it rests."""

    async def scene(line: Line) -> None:
        await line.flood()
        line.write(b"the last")
        line.stop_writing()
        await line.sink.end.wait()
        assert line.sink.out == line.written

    play(scene)


@pytest.mark.usefixtures("endless_rests")
def test_a_pause_during_a_rest_holds_and_the_drain_takes_what_is_there() -> None:
    async def scene(line: Line) -> None:
        await line.flood()
        line.write(PIECE)
        line.pump.pause()
        await some_turns()
        assert not line.is_caught_up()
        line.pump.finish()
        assert line.sink.out == line.written
        assert line.sink.ended == [Stream.STDOUT]

    play(scene)


def test_a_pause_outlasts_the_rest_that_it_fell_into() -> None:
    async def scene(line: Line) -> None:
        await line.flood()
        line.pump.pause()
        line.write(PIECE)
        await asyncio.sleep(50 * pump.REST_S)
        assert not line.is_caught_up()
        assert not asyncio.get_running_loop().remove_reader(line.reads), "it is watched"
        line.pump.resume()
        await line.until_caught_up()
        assert line.sink.out == line.written

    play(scene)


@pytest.mark.usefixtures("endless_rests")
def test_what_could_not_be_given_room_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary pipe, or a terminal, would stop its writer meanwhile."""
    monkeypatch.setattr(pump, "WIDENED_MAX_BYTES", 0)

    async def scene(line: Line) -> None:
        await line.flood()
        line.write(PIECE)
        await line.until_caught_up()
        assert line.sink.out == line.written

    play(scene)


@pytest.mark.usefixtures("endless_rests")
def test_no_more_pipes_are_wide_than_the_kernel_grants_a_user() -> None:
    """Beyond 64 MiB the kernel shrinks whatever this user opens, the operator's programs too."""

    async def go() -> None:
        most = WIDENED_MAX_BYTES // WIDE_PIPE_BYTES
        lines = [Line() for _ in range(most + 1)]
        try:
            async with asyncio.timeout(LIMIT_S):
                for line in lines:
                    line.pump.start()
                    await line.flood()
                sizes = [fcntl.fcntl(line.reads, fcntl.F_GETPIPE_SZ) for line in lines]
                assert sizes == [WIDE_PIPE_BYTES] * most + [READ_BYTES]
                lines[0].pump.close()
                late = Line()
                lines.append(late)
                late.pump.start()
                await late.flood()
                assert fcntl.fcntl(late.reads, fcntl.F_GETPIPE_SZ) == WIDE_PIPE_BYTES
        finally:
            for line in lines:
                line.close()

    asyncio.run(go())
