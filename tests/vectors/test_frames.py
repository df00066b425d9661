"""Every file of `fixtures/frames/` through the broker's and the capsule's reader and writer.

Two implementations of one wire agree, on what is right and on what is refused (STYLE: vector).
"""

from __future__ import annotations

import base64
import json
import re
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackin_broker import protocol
from jackin_broker.errors import PeerProtocolError
from jackin_broker.frames import DataFrame, FrameDecoder, MessageFrame, Stream, data_frames
from jackin_broker.protocol import Ask, ExecCommand, Text, bytes_from_text
from jackin_capsule import wire

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "frames"
KEYS = {"case", "direction", "expect", "argv-hex", "written-by"}
WORDS = re.compile(r"message [A-Z]\w+|data [012] \d+|bad frame|bad message|cut|nothing")
# Longer streams are split into pieces of this size, which is prime, and not byte by byte.
PIECE_BYTES = 4093
BYTE_BY_BYTE_MAX = 4096


@dataclass(frozen=True)
class Vector:
    """One file: what its head says, and the bytes of its connection."""

    name: str
    head: dict[str, str]
    stream: bytes

    @property
    def expect(self) -> list[str]:
        found = self.head["expect"].split(", ")
        return [] if found == ["nothing"] else found

    @property
    def argv(self) -> list[bytes]:
        words = self.head["argv-hex"].split()
        return [b"" if word == "-" else bytes.fromhex(word) for word in words]


def read(path: Path) -> Vector:
    head, _, body = path.read_text(encoding="utf-8").partition("\n\n")
    pairs = dict(line.split(": ", 1) for line in head.splitlines())
    stream = b"".join(bytes_of(line) for line in body.splitlines())
    return Vector(path.stem, pairs, stream)


def bytes_of(line: str) -> bytes:
    """What one line of a body adds."""
    word, _, rest = line.partition(" ")
    if word == "json":
        body = rest.encode()
        return len(body).to_bytes(4, "big") + body
    if word == "data":
        stream, _, text = rest.partition(" ")
        body = bytes((int(stream),)) + unescape(text)
        return len(body).to_bytes(4, "big") + body
    if word == "hex":
        return bytes.fromhex(rest)
    if word == "fill":
        count, byte = rest.split()
        return bytes.fromhex(byte) * int(count)
    assert word == "#", f"unknown line {line!r:.80}"
    return b""


def unescape(text: str) -> bytes:
    r"""`\xNN` is a byte, `\\` a backslash."""

    def one(found: re.Match[bytes]) -> bytes:
        return b"\\" if found[0] == rb"\\" else bytes.fromhex(found[1].decode())

    return re.sub(rb"\\x([0-9a-f]{2})|\\\\", one, text.encode())


VECTORS = [read(path) for path in sorted(FOLDER.glob("*.txt"))]
FROM_CAPSULE = [v for v in VECTORS if v.head["direction"] == "from-capsule"]
TO_CAPSULE = [v for v in VECTORS if v.head["direction"] == "to-capsule"]


def cases(vectors: Iterable[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", list(vectors), ids=lambda v: v.name)


def pieces(stream: bytes) -> Iterator[bytes]:
    size = 1 if len(stream) <= BYTE_BY_BYTE_MAX else PIECE_BYTES
    return (stream[start : start + size] for start in range(0, len(stream), size))


def heard_by_broker(vector: Vector, split: Iterable[bytes]) -> list[str]:
    """What the broker's decoders make of a stream, in the words of `expect`."""
    if vector.head["direction"] == "from-capsule":
        decode = protocol.decode_from_capsule
        limit, streams = protocol.MESSAGE_FROM_CAPSULE_MAX_BYTES, [Stream.STDIN]
    else:
        decode = protocol.decode_to_capsule
        limit = protocol.MESSAGE_TO_CAPSULE_MAX_BYTES
        streams = [Stream.STDOUT, Stream.STDERR]
    decoder = FrameDecoder(max_message_bytes=limit, streams=streams)
    heard: list[str] = []
    for piece in split:
        try:
            frames = decoder.feed(piece)
        except PeerProtocolError:
            return [*heard, "bad frame"]
        for frame in frames:
            if isinstance(frame, DataFrame):
                heard.append(f"data {frame.stream} {len(frame.data)}")
                continue
            try:
                heard.append(f"message {type(decode(frame.body)).__name__}")
            except PeerProtocolError:
                return [*heard, "bad message"]
    return heard if decoder.is_between_frames else [*heard, "cut"]


def heard_by_shim(split: Iterable[bytes]) -> list[str]:
    """What the shim's decoder makes of a stream; data of one stream is one run of it."""
    frames = wire.Frames()
    heard: list[tuple[str, int]] = []
    try:
        for piece in split:
            for stream, found in frames.feed(memoryview(piece)):
                if isinstance(found, dict):
                    if found["type"] not in KNOWN_TO_SHIM:
                        return [*words(heard), "bad message"]
                    heard.append((f"message {found['type']!s}", -1))
                elif heard and heard[-1][0] == f"data {stream}":
                    heard[-1] = (heard[-1][0], heard[-1][1] + len(found))
                else:
                    heard.append((f"data {stream}", len(found)))
    except wire.Fault as fault:
        is_message = "a message" in fault.line
        return [*words(heard), "bad message" if is_message else "bad frame"]
    return words(heard) if frames.is_between_frames else [*words(heard), "cut"]


# The shim tells types apart where it acts on them; here only whether the wire has them.
KNOWN_TO_SHIM = {kind.__name__ for kind in typing.get_args(protocol.ToCapsule)}


def words(heard: list[tuple[str, int]]) -> list[str]:
    return [name if size < 0 else f"{name} {size}" for name, size in heard]


def as_runs(expect: list[str]) -> list[str]:
    """`expect` as a reader sees it that passes data on at once: no empty frames, no edges."""
    runs: list[tuple[str, int]] = []
    for word in expect:
        found = re.fullmatch(r"(data \d) (\d+)", word)
        if found is None:
            runs.append((word, -1))
        elif runs and runs[-1][0] == found[1]:
            runs[-1] = (found[1], runs[-1][1] + int(found[2]))
        elif int(found[2]):
            runs.append((found[1], int(found[2])))
    return words(runs)


@cases(VECTORS)
def test_a_vector_is_well_formed(vector: Vector) -> None:
    """fixtures/frames/README.md's own rules."""
    assert {"case", "direction", "expect"} <= vector.head.keys() <= KEYS
    assert vector.head["direction"] in ("from-capsule", "to-capsule")
    assert vector.head.get("written-by") in (None, "capsule", "broker")
    assert all(WORDS.fullmatch(word) for word in vector.head["expect"].split(", "))


@cases(VECTORS)
def test_the_broker_hears_it_whole(vector: Vector) -> None:
    heard = heard_by_broker(vector, [vector.stream])
    assert heard[-1:] == vector.expect[-1:]
    if "bad frame" not in heard:
        assert heard == vector.expect


@cases(VECTORS)
def test_the_broker_hears_it_in_pieces(vector: Vector) -> None:
    assert heard_by_broker(vector, pieces(vector.stream)) == vector.expect


@cases(TO_CAPSULE)
def test_the_shim_hears_it_whole(vector: Vector) -> None:
    assert without_part(vector, heard_by_shim([vector.stream])) == as_runs(vector.expect)


@cases(TO_CAPSULE)
def test_the_shim_hears_it_in_pieces(vector: Vector) -> None:
    assert without_part(vector, heard_by_shim(pieces(vector.stream))) == as_runs(vector.expect)


def without_part(vector: Vector, heard: list[str]) -> list[str]:
    """Less what the shim passed on of a data frame that was cut."""
    is_cut_in_data = heard[-1:] == ["cut"] and len(heard) > len(as_runs(vector.expect))
    return [*heard[:-2], "cut"] if is_cut_in_data else heard


def from_json(value: typing.Any) -> typing.Any:
    """What the shim's encoder takes: bytes where the wire has base64."""
    if isinstance(value, dict):
        pairs = typing.cast("dict[str, typing.Any]", value)
        if pairs.keys() == {"b64"}:
            return base64.b64decode(pairs["b64"])
        return {key: from_json(item) for key, item in pairs.items()}
    if isinstance(value, list):
        return [from_json(item) for item in typing.cast("list[typing.Any]", value)]
    return value


@cases(v for v in VECTORS if v.head.get("written-by") == "capsule")
def test_the_capsule_writes_it_to_the_byte(vector: Vector) -> None:
    written = b""
    decoder = FrameDecoder(max_message_bytes=protocol.MESSAGE_FROM_CAPSULE_MAX_BYTES)
    for frame in decoder.feed(vector.stream):
        if isinstance(frame, MessageFrame):
            fields = from_json(json.loads(frame.body))
            written += wire.message(fields.pop("type"), **fields)
        else:
            written += wire.data(frame.stream, frame.data)
    assert written == vector.stream


@cases(v for v in VECTORS if v.head.get("written-by") == "broker")
def test_the_broker_writes_it_to_the_byte(vector: Vector) -> None:
    written = b""
    decoder = FrameDecoder(max_message_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES)
    for frame in decoder.feed(vector.stream):
        if isinstance(frame, MessageFrame):
            body = protocol.encode(protocol.decode_to_capsule(frame.body))
            written += len(body).to_bytes(4, "big") + body
        else:
            written += b"".join(data_frames(frame.stream, frame.data))
    assert written == vector.stream


def argv_of(message: object) -> tuple[Text, ...]:
    assert isinstance(message, ExecCommand | Ask)
    return (message.command, *message.args)


@cases(v for v in VECTORS if "argv-hex" in v.head)
def test_both_sides_mean_the_same_bytes(vector: Vector) -> None:
    """What the capsule passed is what execve gets."""
    to_capsule = vector.head["direction"] == "to-capsule"
    decode = protocol.decode_to_capsule if to_capsule else protocol.decode_from_capsule
    decoder = FrameDecoder(max_message_bytes=protocol.MESSAGE_TO_CAPSULE_MAX_BYTES)
    (first, *_) = decoder.feed(vector.stream)
    assert isinstance(first, MessageFrame)
    argv = argv_of(decode(first.body))
    assert [bytes_from_text(item) for item in argv] == vector.argv
    command, *args = vector.argv
    frame = wire.message("ExecCommand", protocol=1, command=command, args=args)
    again = argv_of(protocol.decode_from_capsule(frame[4:]))
    assert again == argv


def test_every_message_has_a_vector() -> None:
    """STYLE: is each message in one file, with an example in `fixtures/`?"""
    named = {word.split()[1] for v in VECTORS for word in v.expect if word.startswith("message")}
    kinds = (*typing.get_args(protocol.FromCapsule), *typing.get_args(protocol.ToCapsule))
    assert named == {kind.__name__ for kind in kinds}
