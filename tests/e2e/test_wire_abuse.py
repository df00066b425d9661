"""A capsule that breaks the wire: each abuse is answered, on record, and harms nobody else.

Raw sockets against a real broker of kind `none`, so that nothing but the wire is under test.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker, broker
from support.real import wait_until

CONFIG = """schema = 1
[broker]
no_operator = "wait"
[capsules.web]
kind = "none"
host_binaries = ["true", "cat"]
[capsules.web.binaries.true]
confine = false
[capsules.web.binaries.cat]
confine = false
[[rules]]
action = "allow"
argv = ["true"]
[[rules]]
action = "allow"
argv = ["cat"]
stdin = "live"
[limits]
connections_per_capsule = 8
ask_burst = 5
ask_per_s = 0.1
"""
LIMIT_S = 20.0


@pytest.fixture(scope="module")
def made() -> Generator[Broker]:
    with broker(CONFIG) as running:
        yield running


class Wire:
    """A raw connection to the capsule's socket."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(path)

    def send(self, message: dict[str, Any] | bytes) -> None:
        """A frame; a broker that has said no and gone does not take it, which its replies tell."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        with suppress(BrokenPipeError):
            self.sock.sendall(struct.pack(">I", len(body)) + body)

    def starts(self) -> bool:
        """Whether the first reply is that the command runs; the rest is left unread."""
        (size,) = struct.unpack(">I", self._exactly(4))
        return bool(json.loads(self._exactly(size))["type"] == "ExecStarted")

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self.sock.recv(size - len(found))
            assert data, "the broker closed"
            found += data
        return found

    def replies(self) -> list[Any]:
        """Every frame until the broker closes: messages decoded, data as bytes."""
        wire = b""
        with suppress(ConnectionResetError):  # it closed on what we sent after its last word
            while data := self.sock.recv(65536):
                wire += data
        self.sock.close()
        frames: list[Any] = []
        while wire:
            (size,) = struct.unpack(">I", wire[:4])
            body, wire = wire[4 : 4 + size], wire[4 + size :]
            frames.append(json.loads(body) if body[:1] == b"{" else body)
        return frames


@pytest.fixture
def wire(made: Broker) -> Generator[Wire]:
    opened = Wire(made.socket_of("web"))
    yield opened
    opened.sock.close()


def command(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "ExecCommand", "protocol": 1, "command": name, "cwd": "/", **fields}


def assert_well(made: Broker) -> None:
    """The broker serves the next caller as if nothing had been."""
    other = Wire(made.socket_of("web"))
    other.send(command("true"))
    assert other.replies()[-1]["exit_code"] == 0


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x00\x00\x00\x00", "empty"),
        (b"\xff\xff\xff\xff{", "over"),
        (b"\x00\x40\x00\x01{", "over"),
        (struct.pack(">I", 2) + b"\x09x", "unknown byte"),
        (struct.pack(">I", 2) + b"\x00x", "first frame"),
        (struct.pack(">I", 5) + b"{nope", "broken message"),
        (struct.pack(">I", 15) + b'{"type":"Nope"}', "broken message"),
    ],
)
def test_a_broken_first_frame_is_answered_in_words(
    made: Broker, wire: Wire, raw: bytes, words: str
) -> None:
    wire.sock.sendall(raw)
    (error,) = wire.replies()
    assert (error["type"], error["code"]) == ("Error", "bad_request")
    assert words in error["reason"]
    assert_well(made)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"protocol": 2}, "protocol 2"),
        ({"args": ["a\0b"]}, "NUL"),
        ({"args": [{"b64": "!"}]}, "base64"),
        ({"command": ""}, "empty"),
        ({"env": {"LD_PRELOAD": "x"}}, "may not be sent"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"tty": {"rows": 0, "cols": 80}}, "size"),
        ({"stdin": "sometimes"}, "broken message"),
        ({"args": [1]}, "broken message"),
        ({"reason": "x" * 3000}, "reason"),
    ],
)
def test_a_request_that_is_wrong_says_what_is_wrong(
    made: Broker, wire: Wire, fields: dict[str, Any], words: str
) -> None:
    wire.send({**command("true"), **fields})
    (error,) = wire.replies()
    assert (error["type"], error["code"]) == ("Error", "bad_request")
    assert words in error["reason"]
    assert_well(made)


def test_unknown_fields_are_ignored(wire: Wire) -> None:
    wire.send(command("true", future={"a": 1}))
    assert wire.replies()[-1]["type"] == "ExecResult"


def test_a_terminal_for_a_caller_that_wants_no_stream_is_refused_in_words(wire: Wire) -> None:
    """What a terminal shows is for eyes; the seed's reply has two streams, each capped."""
    wire.send(command("true", tty={"rows": 24, "cols": 80}, stream=False))
    (denied,) = wire.replies()
    assert (denied["type"], denied["code"]) == ("ExecDenied", "bad_request")
    assert "terminal" in denied["reason"]


def test_an_mcp_client_that_breaks_the_frames_is_told_so(made: Broker, wire: Wire) -> None:
    wire.send({"type": "Mcp", "protocol": 1})
    wire.send({"type": "Mcp", "protocol": 1})
    (error,) = wire.replies()
    assert "one request a connection" in error["reason"]
    assert_well(made)


def test_stdin_that_was_declared_none_is_refused(made: Broker, wire: Wire) -> None:
    wire.send(command("cat", stdin="none"))
    wire.send(b"\x00some")
    assert any(isinstance(reply, dict) for reply in wire.replies())
    assert_well(made)


def test_a_closed_stdin_beyond_its_limit_is_refused(made: Broker, wire: Wire) -> None:
    wire.send(command("cat", stdin="closed"))
    for _ in range(5):
        wire.send(b"\x00" + b"x" * (256 * 1024 - 1))
    (error,) = wire.replies()
    assert "closed stdin" in error["reason"]
    assert_well(made)


def test_stdin_after_its_end_ends_the_command(made: Broker, wire: Wire) -> None:
    wire.send(command("cat", stdin="closed"))
    wire.send(b"\x00abc")
    wire.send({"type": "StdinEof"})
    wire.send(b"\x00more")
    assert wire.replies()
    assert_well(made)


def test_a_second_request_on_a_connection_is_refused(made: Broker, wire: Wire) -> None:
    wire.send(command("cat", stdin="live"))
    wire.send(command("true"))
    assert wire.replies()
    assert_well(made)


def test_a_signal_that_cannot_be_forwarded_is_refused(made: Broker, wire: Wire) -> None:
    wire.send(command("cat", stdin="live"))
    wire.send({"type": "Signal", "number": 9})
    assert wire.replies()
    assert_well(made)


def test_half_a_frame_and_gone_harms_nobody(made: Broker, wire: Wire) -> None:
    wire.sock.sendall(b"\x00\x00\x10\x00{")
    wire.sock.close()
    assert_well(made)


def test_connections_beyond_the_limit_are_told_so_and_the_places_come_back(made: Broker) -> None:
    """Of the eight it is certain that they are in: each runs a command."""
    inside: list[Wire] = []

    def is_in() -> bool:
        """One more is in; the place of a former test's caller may be about to come back."""
        one = Wire(made.socket_of("web"))
        one.send(command("cat", stdin="live"))
        if one.starts():
            inside.append(one)
            return True
        one.sock.close()
        return False

    for number in range(8):
        wait_until(is_in, f"caller {number} is in")
    (denied,) = Wire(made.socket_of("web")).replies()
    assert denied["code"] == "too_many_pending"
    for one in inside:
        one.sock.close()

    def is_free() -> bool:
        probe = Wire(made.socket_of("web"))
        probe.send(command("true"))
        return bool(probe.replies()[-1]["type"] == "ExecResult")

    wait_until(is_free, "a place is free again")


def test_without_streaming_the_reply_is_the_seeds(wire: Wire) -> None:
    wire.send(command("cat", stream=False, stdin="closed"))
    wire.send(b"\x00hello\xff")
    wire.send({"type": "StdinEof"})
    result = wire.replies()[-1]
    assert result["type"] == "ExecResult"
    assert (result["exit_code"], result["stdout"], result["stderr"]) == (0, "hello�", "")
    assert result["redacted_count"] == 0


def test_ask_says_what_rules_alone_would(made: Broker) -> None:
    def ask(name: str, *args: str) -> tuple[str, str]:
        inquiry = Wire(made.socket_of("web"))
        inquiry.send({"type": "Ask", "protocol": 1, "command": name, "args": args, "cwd": "/"})
        (answer,) = inquiry.replies()
        assert answer["type"] == "AskResult"
        return answer["outcome"], answer["code"]

    assert ask("true") == ("allow", "")
    assert ask("true", "x") == ("ask", "")
    assert ask("sh") == ("deny", "not_allowed")
    answers = [ask("true")[1] for _ in range(10)]
    assert answers[-1] == "too_many_pending"
    assert made.requests() == []


def test_abuse_is_on_record(made: Broker) -> None:
    codes = {line.get("code") for line in made.audit()}
    assert "bad_request" in codes
    assert made.run("audit", "verify").returncode == 0
    assert Path(made.audit_file).stat().st_size < 1024 * 1024
