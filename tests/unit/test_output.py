"""From the command to the caller: redacted before anything else, streamed or capped."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

from jackin_broker import protocol
from jackin_broker.bindings import Redact
from jackin_broker.connection import CapsuleConnection
from jackin_broker.frames import DataFrame, Frame, FrameDecoder, MessageFrame, Stream
from jackin_broker.guessing import Suspicion
from jackin_broker.intake import Intake
from jackin_broker.live_output import Feed, Watcher
from jackin_broker.output import Output
from jackin_broker.peer import Caller
from jackin_broker.protocol import EndedBy
from jackin_broker.redact.needles import build
from jackin_broker.redact.stream import Redactor

VALUE = "tok-" + secrets.token_hex(12)
STARTED = protocol.ExecStarted("id", protocol.Target.HOST, ("TOKEN",))

Scene = Callable[[Output], Awaitable[None]]


def play(
    scene: Scene, *, streams: bool, watcher: Watcher | None = None, max_bytes: int = 0
) -> tuple[Output, list[Frame]]:
    """What reaches the caller of a command whose output the scene makes."""

    async def go() -> tuple[Output, list[Frame]]:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, connection = await loop.connect_accepted_socket(CapsuleConnection, ours)
        caller = Caller(os.getpid(), os.getuid(), os.pidfd_open(os.getpid()), 1, ())
        intake = Intake(connection, caller)
        needles = build([("TOKEN", VALUE.encode(), Redact.ON)])
        feed = Feed(needles)
        if watcher is not None:
            feed.watch("an operator", watcher)
        output = Output(
            connection,
            needles,
            STARTED,
            streams=streams,
            max_bytes=max_bytes,
            intake=intake,
            suspicion=Suspicion(),
            feed=feed,
        )
        frames: list[Frame] = []
        reading = asyncio.ensure_future(_read(theirs, frames))
        await scene(output)
        intake.close()
        await connection.close()
        await reading
        caller.close()
        theirs.close()
        return output, frames

    return asyncio.run(go())


async def _read(theirs: socket.socket, frames: list[Frame]) -> None:
    theirs.setblocking(False)
    decoder = FrameDecoder(max_message_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES)
    while data := await asyncio.get_running_loop().sock_recv(theirs, 1 << 20):
        frames.extend(decoder.feed(data))


def bytes_of(frames: list[Frame], stream: Stream) -> bytes:
    return b"".join(f.data for f in frames if isinstance(f, DataFrame) and f.stream is stream)


def test_beyond_a_limit_nothing_is_passed_on_and_all_is_counted_after_redaction() -> None:
    """One limit for both streams; what it keeps back was redacted and counted all the same."""

    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, f"{VALUE}-{VALUE}".encode())
        output.output(Stream.STDERR, b"abc")
        output.output(Stream.STDOUT, VALUE.encode())
        end(output)

    marker = len("[redacted:TOKEN]")
    output, frames = play(scene, streams=True, max_bytes=marker + 2)
    assert bytes_of(frames, Stream.STDOUT) == b"[redacted:TOKEN]-["
    assert bytes_of(frames, Stream.STDERR) == b""
    assert output.sizes == {Stream.STDOUT: 3 * marker + 1, Stream.STDERR: 3}
    assert (output.redacted_count, output.is_truncated) == (3, True)


def test_output_that_just_fits_its_limit_is_not_truncated() -> None:
    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, b"12345")
        end(output)

    output, frames = play(scene, streams=True, max_bytes=5)
    assert bytes_of(frames, Stream.STDOUT) == b"12345"
    assert not output.is_truncated


def test_a_limit_holds_without_streaming_too() -> None:
    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, b"123456")
        end(output)

    output, _ = play(scene, streams=False, max_bytes=4)
    assert output.text(Stream.STDOUT) == "1234[truncated: 6 bytes in all]"
    assert output.is_truncated


def end(output: Output) -> None:
    for stream in (Stream.STDOUT, Stream.STDERR):
        output.output_end(stream)


def test_the_value_is_masked_on_both_streams_however_it_is_cut() -> None:
    async def scene(output: Output) -> None:
        for byte in f"a {VALUE} b\n".encode():
            for stream in (Stream.STDOUT, Stream.STDERR):
                output.output(stream, bytes((byte,)))
        end(output)

    output, frames = play(scene, streams=True)
    for stream in (Stream.STDOUT, Stream.STDERR):
        assert bytes_of(frames, stream) == b"a [redacted:TOKEN] b\n"
    assert output.redacted_count == 2


def test_that_it_started_is_said_once_and_before_any_output() -> None:
    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, b"first\n")
        output.announce()
        end(output)

    _, frames = play(scene, streams=True)
    assert isinstance(frames[0], MessageFrame)
    assert protocol.decode_to_capsule(frames[0].body) == STARTED
    assert [type(frame) for frame in frames].count(MessageFrame) == 1


def test_without_streaming_each_stream_is_kept_apart_as_text() -> None:
    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, f"o {VALUE}\n".encode())
        output.output(Stream.STDERR, b"e \xff\n")
        end(output)

    output, frames = play(scene, streams=False)
    assert output.text(Stream.STDOUT) == "o [redacted:TOKEN]\n"
    assert output.text(Stream.STDERR) == "e �\n"
    assert all(isinstance(frame, MessageFrame) for frame in frames)


def test_the_cap_is_after_redaction_and_between_characters() -> None:
    """A value that straddles the cap would show its first half if the cap came first."""
    cap = protocol.UNSTREAMED_OUTPUT_MAX_BYTES
    lead = b"x" * (cap - 12)

    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, lead + VALUE.encode() + b" tail")
        output.output(Stream.STDERR, b"y" * (cap - 1) + "é".encode() + b"z")
        end(output)

    output, _ = play(scene, streams=False)
    out, err = output.text(Stream.STDOUT), output.text(Stream.STDERR)
    assert out is not None
    assert err is not None
    assert VALUE[:8] not in out
    assert out.startswith("x" * (cap - 12) + "[redacted:TO")
    assert err == "y" * (cap - 1) + f"[truncated: {cap + 2} bytes in all]"


def test_what_is_kept_without_streaming_is_bounded() -> None:
    piece = b"z" * 65536

    async def scene(output: Output) -> None:
        for _ in range(64):
            output.output(Stream.STDOUT, piece)
        end(output)

    output, _ = play(scene, streams=False)
    assert output.sizes[Stream.STDOUT] == 64 * len(piece)
    text = output.text(Stream.STDOUT)
    assert text is not None
    assert len(text) < protocol.UNSTREAMED_OUTPUT_MAX_BYTES + 100


def test_what_cannot_be_redacted_is_withheld_and_the_command_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """CASES 3a: a redactor that died on data must not let the rest pass (screenpipe#4139)."""
    left: list[EndedBy] = []

    def leave(_self: Intake, ended_by: EndedBy, _words: str) -> None:
        left.append(ended_by)

    def fail(_self: Redactor, _data: bytes) -> NoReturn:
        raise KeyError(VALUE)  # what fails may name what it looked for

    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, b"before\n")
        with monkeypatch.context() as broken:
            broken.setattr(Redactor, "feed", fail)
            output.output(Stream.STDOUT, b"\x80\x80")
        output.output(Stream.STDOUT, VALUE.encode())
        end(output)

    monkeypatch.setattr(Intake, "leave", leave)
    _, frames = play(scene, streams=True)
    assert bytes_of(frames, Stream.STDOUT) == b"before\n"
    assert left[0] is EndedBy.INTERNAL_ERROR
    assert "KeyError" in caplog.text
    assert VALUE not in caplog.text


def test_halves_on_both_streams_are_masked_for_who_watches_both() -> None:
    """REDACTION §9.7: neither stream holds the value, the operator's view of both would."""
    shown: list[tuple[Stream, bytes]] = []

    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, b"< " + VALUE[:12].encode())
        output.output(Stream.STDERR, VALUE[12:].encode() + b" >\n")
        end(output)
        output.settle()

    def watcher(stream: Stream, data: bytes, _skipped: int) -> None:
        shown.append((stream, data))

    _, frames = play(scene, streams=True, watcher=watcher)
    assert b"".join(data for _, data in shown) == b"< [redacted:TOKEN] >\n"
    assert bytes_of(frames, Stream.STDERR) == VALUE[12:].encode() + b" >\n"


def test_who_watches_sees_a_prompt_that_begins_like_the_value() -> None:
    shown: list[bytes] = []
    is_shown = asyncio.Event()

    async def scene(output: Output) -> None:
        output.output(Stream.STDOUT, b"to")
        await asyncio.wait_for(is_shown.wait(), 10)

    def watcher(_stream: Stream, data: bytes, _skipped: int) -> None:
        shown.append(data)
        is_shown.set()

    play(scene, streams=True, watcher=watcher)
    assert b"".join(shown) == b"to"
