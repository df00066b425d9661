"""Every failure of the shim: one error line, one hint line, a status of DESIGN §5.

distrobox#1828: the error names the failing hop. An agent must learn from the hint not to repeat
what was denied.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker import protocol
from jackin_broker.errors import DenialCode
from jackin_broker.frames import Stream
from jackin_broker.protocol import Cancel, ExecCommand, ExecDenied, ExecPending
from jackin_capsule import VERSION, problems, wire
from support.scripted_broker import (
    REQUEST_ID,
    ScriptedBroker,
    ShimPrograms,
    error_and_hint,
    finish,
    interpreters,
    scripted,
)

Scene = tuple[ScriptedBroker, ShimPrograms]


@pytest.fixture(params=interpreters(), ids=os.path.basename)
def scene(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scripted(short_tmp, request.param) as both:
        yield both


def test_the_limits_are_the_protocols() -> None:
    """The room rules keep the shim from importing them."""
    for name in (
        "DATA_FRAME_MAX_BYTES",
        "MESSAGE_FROM_CAPSULE_MAX_BYTES",
        "MESSAGE_TO_CAPSULE_MAX_BYTES",
    ):
        assert getattr(wire, name) == getattr(protocol, name)
    assert wire.PROTOCOL == protocol.PROTOCOL_VERSION
    assert wire.EXIT_NOT_RUN == protocol.EXIT_NOT_RUN
    assert problems.EXIT_ENDED == protocol.EXIT_ENDED
    assert problems.EXIT_NOT_FOUND == protocol.EXIT_NOT_FOUND


@pytest.mark.parametrize("code", DenialCode, ids=lambda code: code.value)
def test_each_denial_has_a_hint_of_its_own(code: DenialCode) -> None:
    """The broker's hint wins; without one the shim knows the next step."""
    hints = [problems.HINTS[other.value] for other in DenialCode]
    assert hints.count(problems.HINTS[code.value]) == 1
    fault = problems.denied({"type": "ExecDenied", "code": code.value, "reason": "because"})
    assert (fault.line, fault.hint) == (f"because ({code.value})", problems.HINTS[code.value])
    fault = problems.denied(
        {"type": "ExecDenied", "code": code.value, "reason": "because", "hint": "do this"}
    )
    assert fault.hint == "do this"


def test_a_denial_is_126_with_reason_code_and_hint(scene: Scene) -> None:
    """DESIGN §5: nothing was run; stderr says why and what to do."""
    broker, shims = scene
    process = shims.start("gh", "repo", "delete")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.send(ExecPending(REQUEST_ID, 1, 300.0))
    peer.send(ExecDenied("operator_denied", "the operator said: not that repository"))
    status, out, err = finish(process)
    assert (status, out) == (126, b"")
    error, hint = error_and_hint(err)
    assert error == "the operator said: not that repository (operator_denied)"
    assert "do not send this again" in hint


def test_a_denial_for_want_of_the_command_is_127(scene: Scene) -> None:
    """DESIGN §5: 127, no such command at the target."""
    broker, shims = scene
    process = shims.start("nope")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.send(ExecDenied("spawn_failed", "no such command: nope", "check the name", 127))
    status, _, err = finish(process)
    assert status == 127
    assert error_and_hint(err) == ("no such command: nope (spawn_failed)", "check the name")


def test_a_denial_reaches_whoever_is_still_sending(scene: Scene) -> None:
    """The broker may close without reading a megabyte of stdin; its word still counts."""
    broker, shims = scene
    path = Path(shims.env["HOME"]) / "in"
    path.write_bytes(os.urandom(1_000_000))
    with path.open("rb") as source:
        process = shims.start("cat", stdin=source)
    peer = broker.accept()
    peer.send(ExecDenied("peer_refused", "this process is not in the capsule"))
    peer.close()
    status, _, err = finish(process)
    assert status == 126
    assert "(peer_refused)" in error_and_hint(err)[0]


def test_what_the_broker_wrote_cannot_act_on_a_terminal(scene: Scene) -> None:
    """A reason may quote an argument: one line, every control character escaped."""
    broker, shims = scene
    process = shims.start("gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    hostile = "no\x1b[2J\r\njackin-exec: hint: yes\x9b31m\u202e\u2028\U000e0100é"
    peer.send(ExecDenied("rule_denied", hostile, hostile))
    _, _, err = finish(process)
    error, hint = error_and_hint(err)
    escaped = r"no\x1b[2J\r\njackin-exec: hint: yes\x9b31m\u202e\u2028\U000e0100é"
    assert error == f"{escaped} (rule_denied)"
    assert hint == escaped


def test_no_socket(scene: Scene) -> None:
    _, shims = scene
    shims.env["JACKIN_BROKER_SOCKET"] = f"{shims.env['HOME']}/nowhere.sock"
    status, out, err = shims.run("gh")
    assert (status, out) == (126, "")
    error, hint = error_and_hint(err.encode())
    assert error.startswith("no broker's socket at ")
    assert "ask the operator to start it" in hint


def test_a_socket_that_nobody_listens_at(scene: Scene) -> None:
    broker, shims = scene
    broker.close()
    status, _, err = shims.run("gh")
    assert status == 126
    assert error_and_hint(err.encode())[0].startswith("no broker listens at ")


def test_a_path_too_long_for_a_socket(scene: Scene) -> None:
    """107 bytes are what fits beside the NUL."""
    _, shims = scene
    shims.env["JACKIN_BROKER_SOCKET"] = "/" + "x" * 107
    status, _, err = shims.run("gh")
    assert status == 126
    assert "108 bytes long" in error_and_hint(err.encode())[0]
    shims.env["JACKIN_BROKER_SOCKET"] = "/" + "x" * 106
    assert error_and_hint(shims.run("gh")[2].encode())[0].startswith("no broker's socket at ")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "may not connect"),
        (errno.EPERM, "may not connect"),
        (errno.ENOTDIR, "no broker's socket"),
        (errno.EAGAIN, "does not accept connections"),
        (errno.EPROTOTYPE, "cannot connect"),
    ],
)
def test_each_way_of_not_reaching_it_has_its_own_line(number: int, words: str) -> None:
    fault = problems.unreachable(b"/jackin/run/broker.sock", OSError(number, os.strerror(number)))
    assert words in fault.line
    assert fault.hint
    assert fault.status == 126


def test_a_directory_without_a_socket_is_a_capsule_whose_broker_does_not_run(
    tmp_path: Path,
) -> None:
    """`launch` mounts the directory; to launch it again would not help."""
    gone = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    assert (
        "ask the operator to start it"
        in problems.unreachable(bytes(tmp_path / "broker.sock"), gone).hint
    )
    nowhere = problems.unreachable(bytes(tmp_path / "none" / "broker.sock"), gone)
    assert "jackin-broker launch" in nowhere.hint


def test_a_broker_that_accepts_nobody_is_not_waited_for_without_end(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full accept queue blocks connect(2) for ever; here for CONNECT_S."""
    path = short_tmp / "broker.sock"
    monkeypatch.setattr(wire, "CONNECT_S", 1)
    monkeypatch.setattr(wire, "socket_path", lambda: bytes(path))
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(path))
        listener.listen(0)
        first.connect(str(path))
        with pytest.raises(wire.Fault, match="does not accept connections"):
            wire.connect()


def test_a_broker_that_closes_before_it_answers(scene: Scene) -> None:
    broker, shims = scene
    process = shims.start("gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.close()
    status, _, err = finish(process)
    assert status == 126
    assert "nothing was run" in error_and_hint(err)[0]


def test_a_broker_that_goes_away_while_the_command_runs_is_124(scene: Scene) -> None:
    """Something did run: not 126, and the hint says not to believe otherwise."""
    broker, shims = scene
    process = shims.start("gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    peer.send_data(Stream.STDOUT, b"half")
    peer.close()
    status, out, err = finish(process)
    assert (status, out) == (124, b"half")
    assert "look before sending it again" in error_and_hint(err)[1]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02\x00a",
        b"\0\0\0\x02\x07a",
        b"\0\x04\0\x01\x01",
        b"\0\0\0\x02{x",
        b"\0\0\0\x02{}",
        b'\0\0\0\x12{"type":"Unheard"}',
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_what_is_no_frame_ends_it_with_two_lines(scene: Scene, garbage: bytes) -> None:
    """Something else listens at the socket, or a broker of another time."""
    broker, shims = scene
    process = shims.start("gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.send_raw(garbage)
    status, _, err = finish(process)
    assert status == 126
    error, hint = error_and_hint(err)
    assert "does not understand" in error
    assert "jackin-capsule doctor" in hint
    assert peer.rest() == [Cancel()]


def test_a_result_without_a_status_is_no_success(scene: Scene) -> None:
    """Whatever is missing, 0 is not what the caller sees."""
    broker, shims = scene
    process = shims.start("gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    body = b'{"type":"ExecResult","redacted_count":0}'
    peer.send_raw(len(body).to_bytes(4, "big") + body)
    status, _, err = finish(process)
    assert status == 126
    assert "without exit_code" in error_and_hint(err)[0]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "no command to run"),
        (["--"], "no command to run"),
        (["-v"], "no command to run"),
        ([""], "no command to run"),
        (["--", ""], "no command to run"),
        (["--bogus", "gh"], "unknown option --bogus"),
        (["-x", "gh"], "unknown option -x"),
        (["-vx", "gh"], "unknown option -vx"),
        (["-", "gh"], "unknown option -"),
        (["--reason"], "--reason needs a value"),
        (["--want"], "--want needs a value"),
        (["-t", "gh"], "-t asks for a terminal"),
        (["-vt", "gh"], "-t asks for a terminal"),
        (["--tty", "gh"], "-t asks for a terminal"),
    ],
)
def test_a_wrong_call_is_126_and_reaches_nobody(scene: Scene, args: list[str], words: str) -> None:
    _, shims = scene
    status, out, err = shims.run(*args)
    assert (status, out) == (126, "")
    assert error_and_hint(err.encode())[0].startswith(words)


def test_a_deleted_working_directory(scene: Scene) -> None:
    _, shims = scene
    folder = Path(shims.env["HOME"]) / "gone"
    folder.mkdir()
    through = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh"]
    status, _, err = finish(shims.start("gh", cwd=folder, through=through))
    assert status == 126
    error, hint = error_and_hint(err)
    assert error.startswith("the working directory cannot be read")
    assert "change to a directory" in hint


def test_arguments_that_do_not_fit_into_a_message(scene: Scene) -> None:
    """Each control character is six bytes on the wire; the limit is named, not met in silence."""
    _, shims = scene
    status, _, err = finish(shims.start("cat", *[b"\x01" * 100_000] * 8))
    assert status == 126
    assert "over the limit of 4194304" in error_and_hint(err)[0]


def test_help_teaches_and_version_tells(scene: Scene) -> None:
    """The whole of DESIGN §5's statuses, and nothing on stderr."""
    _, shims = scene
    status, out, err = shims.run("--help")
    assert (status, err) == (0, "")
    for word in ("124", "126", "127", "128 + n", "--want", "--reason", "operator"):
        assert word in out
    assert all(len(line) <= 100 for line in out.splitlines())
    assert shims.run("--version") == (0, f"jackin-exec {VERSION}\n", "")
