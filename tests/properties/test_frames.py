"""Frames and messages under any input: what holds for all of them.

STYLE: any split of a stream gives the same; decode(encode(x)) == x; garbage gives
`PeerProtocolError` and nothing else. After h11, each input goes whole, then byte by byte.
"""

from __future__ import annotations

import itertools
import json
import typing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jackin_broker import protocol
from jackin_broker.errors import LocalProtocolError, PeerProtocolError
from jackin_broker.frames import (
    DataFrame,
    Frame,
    FrameDecoder,
    MessageFrame,
    Stream,
    data_frames,
    message_frame,
)
from jackin_broker.protocol import (
    Ask,
    AskResult,
    Bytes64,
    Cancel,
    EndedBy,
    Error,
    ExecCommand,
    ExecDenied,
    ExecPending,
    ExecResult,
    ExecStarted,
    ExecStopped,
    Kill,
    Mcp,
    Outcome,
    Resize,
    Signal,
    Spawn,
    StdinCredit,
    StdinEof,
    StdinKind,
    Target,
    TerminalSize,
    text_from_bytes,
)
from jackin_capsule import wire

MESSAGE_LIMIT = 600_000  # above a data frame's limit, so that both limits can be met
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RAW = st.binary(max_size=30).filter(lambda raw: b"\0" not in raw)
TEXTS = RAW.map(text_from_bytes)
COMMANDS = RAW.filter(bool).map(text_from_bytes)
CELLS = st.integers(1, protocol.TERMINAL_MAX_CELLS)
COUNTS = st.integers(0, 2**53)
SECONDS = st.floats(0, 1e6, allow_nan=False)

FROM_CAPSULE = st.one_of(
    st.builds(
        ExecCommand,
        protocol=st.just(protocol.PROTOCOL_VERSION),
        command=COMMANDS,
        args=st.lists(TEXTS, max_size=4).map(tuple),
        cwd=TEXTS,
        stdin=st.sampled_from(StdinKind),
        tty=st.none() | st.builds(TerminalSize, CELLS, CELLS),
        env=st.dictionaries(
            st.sampled_from(sorted(protocol.CALLER_ENV_NAMES)),
            NAMES.filter(lambda value: "\0" not in value),
        ),
        stream=st.booleans(),
        reason=NAMES,
        want=st.lists(NAMES, max_size=3).map(tuple),
        timeout_s=st.floats(0, protocol.TIMEOUT_MAX_S),
        shim=NAMES,
        stdin_credit=st.booleans(),
    ),
    st.builds(StdinEof),
    st.builds(Signal, st.sampled_from(sorted(protocol.FORWARDED_SIGNALS))),
    st.builds(Resize, CELLS, CELLS),
    st.builds(Cancel),
    st.builds(
        Ask,
        protocol=st.just(protocol.PROTOCOL_VERSION),
        command=COMMANDS,
        args=st.lists(TEXTS, max_size=4).map(tuple),
        cwd=TEXTS,
        want=st.lists(NAMES, max_size=3).map(tuple),
    ),
    st.builds(Mcp, st.just(protocol.PROTOCOL_VERSION)),
)
TO_CAPSULE = st.one_of(
    st.builds(ExecPending, NAMES, COUNTS, SECONDS),
    st.builds(
        ExecStarted,
        NAMES,
        st.sampled_from(Target),
        st.lists(NAMES, max_size=3).map(tuple),
        COUNTS,
    ),
    st.builds(ExecStopped, st.integers(1, 64)),
    st.builds(StdinCredit, COUNTS),
    st.builds(
        ExecResult,
        exit_code=st.integers(0, 255),
        redacted_count=COUNTS,
        duration_s=SECONDS,
        ended_by=st.sampled_from(EndedBy),
        signal=st.none() | st.integers(1, 64),
        stdout=st.none() | NAMES,
        stderr=st.none() | NAMES,
        stdout_bytes=COUNTS,
        stderr_bytes=COUNTS,
        request_id=NAMES,
    ),
    st.builds(ExecDenied, NAMES, NAMES, NAMES, st.sampled_from([126, 127])),
    st.builds(AskResult, st.sampled_from(Outcome), NAMES, NAMES),
    st.builds(Error, NAMES, NAMES),
    st.builds(Spawn, NAMES),
    st.builds(Kill, NAMES, st.integers(1, 64)),
)
FRAMES = st.one_of(
    st.builds(DataFrame, st.sampled_from(Stream), st.binary(max_size=200)),
    st.binary(max_size=200).map(lambda rest: MessageFrame(b"{" + rest)),
)


def written(frames: list[Frame]) -> bytes:
    """The bytes of some frames; an empty data frame too, which `data_frames` never makes."""
    parts: list[bytes] = []
    for frame in frames:
        if isinstance(frame, MessageFrame):
            parts.append(message_frame(frame.body, max_bytes=MESSAGE_LIMIT))
        else:
            parts += data_frames(frame.stream, frame.data) or [bytes((0, 0, 0, 1, frame.stream))]
    return b"".join(parts)


def heard(stream: bytes, cuts: list[int]) -> tuple[list[Frame], bool]:
    """The frames, in the pieces between the cuts, and whether it ended in an error."""
    decoder = FrameDecoder(max_message_bytes=MESSAGE_LIMIT)
    frames: list[Frame] = []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    try:
        for start, end in itertools.pairwise(edges):
            frames += decoder.feed(stream[start:end])
    except PeerProtocolError:
        with pytest.raises(PeerProtocolError):  # broken stays broken
            decoder.feed(b"\0\0\0\x01\x01")
        return frames, True
    return frames, False


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0, 2000), max_size=8))
def test_any_split_gives_the_frames_that_were_written(frames: list[Frame], cuts: list[int]) -> None:
    """Whole, in any pieces, then byte by byte."""
    stream = written(frames)
    assert heard(stream, []) == (frames, False)
    assert heard(stream, cuts) == (frames, False)
    assert heard(stream, list(range(len(stream)))) == (frames, False)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
@example(b"\0\0\0\0", [])
@example(b"\xff\xff\xff\xff", [])
@example(b"\0\0\0\x02\x03a", [])
@example(b"\0\0\0\x01{\0\0\0\0", [])
def test_garbage_is_the_peers_fault_and_nothing_else(stream: bytes, cuts: list[int]) -> None:
    """And at the same place, however it is split: only frames of the failing piece may be lost."""
    by_byte, is_broken = heard(stream, list(range(len(stream))))
    for some in ([], cuts):
        frames, is_broken_too = heard(stream, some)
        assert is_broken_too == is_broken
        assert frames == by_byte[: len(frames)]
        if not is_broken:
            assert frames == by_byte


@given(st.integers(0, 2**32 - 1), st.integers(0, 255))
def test_a_length_over_the_limit_is_refused_from_the_header(size: int, first: int) -> None:
    """Nothing is gathered that will not be taken."""
    decoder = FrameDecoder(max_message_bytes=MESSAGE_LIMIT)
    limit = MESSAGE_LIMIT if first == ord("{") else protocol.DATA_FRAME_MAX_BYTES
    is_right = 0 < size <= limit and (first == ord("{") or first in list(Stream))
    header = size.to_bytes(4, "big") + bytes((first,))
    if is_right:
        assert len(decoder.feed(header)) == (1 if size == 1 else 0)
    else:
        with pytest.raises(PeerProtocolError):
            decoder.feed(header)


@given(FROM_CAPSULE)
def test_what_a_capsule_says_comes_back(message: protocol.FromCapsule) -> None:
    body = protocol.encode(message)
    assert protocol.decode_from_capsule(body) == message
    assert body.startswith(b'{"type":')


@given(TO_CAPSULE)
def test_what_the_broker_says_comes_back(message: protocol.ToCapsule) -> None:
    body = protocol.encode(message)
    assert protocol.decode_to_capsule(body) == message
    assert body.startswith(b'{"type":')


@given(TO_CAPSULE)
def test_the_shim_reads_what_the_broker_says(message: protocol.ToCapsule) -> None:
    """Two decoders, one meaning."""
    body = protocol.encode(message)
    assert wire.decode(body) == json.loads(body)


@given(st.lists(RAW, min_size=1, max_size=5).filter(lambda argv: bool(argv[0])), NAMES)
def test_the_broker_reads_what_the_shim_says(argv: list[bytes], reason: str) -> None:
    """Every argument arrives as the bytes that the caller passed."""
    command, *args = argv
    frame = wire.message("ExecCommand", protocol=1, command=command, args=args, reason=reason)
    (found,) = FrameDecoder(max_message_bytes=1 << 22).feed(frame)
    assert isinstance(found, MessageFrame)
    asked = protocol.decode_from_capsule(found.body)
    assert isinstance(asked, ExecCommand)
    assert [protocol.bytes_from_text(text) for text in (asked.command, *asked.args)] == argv
    assert asked.reason == reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
@example(b"{" + b'"a":[' * 50_000)
def test_a_body_of_garbage_is_the_peers_fault_and_nothing_else(body: bytes) -> None:
    """Neither msgspec's nor Python's own exceptions get out."""
    for decode in (protocol.decode_from_capsule, protocol.decode_to_capsule):
        with pytest.raises(PeerProtocolError):
            decode(body)


@given(
    st.sampled_from([t.__name__ for t in typing.get_args(protocol.FromCapsule)]),
    st.dictionaries(
        st.sampled_from(["protocol", "command", "args", "cwd", "env", "tty", "number", "want"]),
        JSON,
    ),
)
def test_fields_of_garbage_are_refused_or_understood(kind: str, fields: dict[str, object]) -> None:
    """A message that is accepted can be written again and means the same."""
    body = json.dumps({"type": kind, **fields}).encode()
    try:
        message = protocol.decode_from_capsule(body)
    except PeerProtocolError as error:
        words = str(error)
    else:
        words = ""
        assert protocol.decode_from_capsule(protocol.encode(message)) == message
    assert "\n" not in words
    assert len(words) < 400


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_the_shims_reader_meets_garbage_with_a_fault_and_nothing_else(
    stream: bytes, cuts: list[int]
) -> None:
    frames = wire.Frames()
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    try:
        for start, end in itertools.pairwise(edges):
            list(frames.feed(memoryview(stream[start:end])))
    except wire.Fault:
        pass  # in so many words; any other exception fails the test


@pytest.mark.parametrize("text", ["\ud800", "a\udcff"])
def test_what_json_cannot_carry_is_our_own_fault(text: str) -> None:
    """We never send half a character; trying to is a bug of ours, said as one."""
    with pytest.raises(LocalProtocolError):
        protocol.encode(ExecDenied("expired", text))
    with pytest.raises(LocalProtocolError):
        message_frame(b"[]", max_bytes=100)
    with pytest.raises(LocalProtocolError):
        message_frame(b"{" + b" " * 100, max_bytes=100)


def test_bytes_that_are_text_are_not_sent_as_base64() -> None:
    assert text_from_bytes("é".encode()) == "é"
    assert text_from_bytes(b"\xe9") == Bytes64("6Q==")
