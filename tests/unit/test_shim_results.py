"""The shim as a real process under `-I -S`: what it asks, what it passes on, how it ends.

Rules of DESIGN §5 and of CASES 3b. The broker is scripted, its decoder is the real one.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import jackin_capsule
from jackin_broker.frames import Stream
from jackin_broker.protocol import (
    Bytes64,
    Cancel,
    EndedBy,
    ExecCommand,
    ExecPending,
    ExecResult,
    StdinKind,
    bytes_from_text,
)
from support.scripted_broker import (
    REQUEST_ID,
    WAIT_S,
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
    """A scripted broker and the shim on each interpreter of this machine."""
    with scripted(short_tmp, request.param) as both:
        yield both


@pytest.fixture(params=interpreters()[:1], ids=os.path.basename)
def system(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """The same on the system's interpreter alone."""
    with scripted(short_tmp, request.param) as both:
        yield both


@pytest.mark.parametrize("status", [0, 1, 2, 124, 127, 143, 255])
def test_the_exit_status_is_the_one_that_the_broker_names(system: Scene, status: int) -> None:
    """DESIGN §5: the command's own, 128+n for a signal."""
    broker, shims = system
    process = shims.start("sh", "-c", "exit 2")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    peer.end(status, EndedBy.SIGNAL if status == 143 else EndedBy.EXIT)
    assert finish(process) == (status, b"", b"")


def test_the_request_says_what_would_run_and_nothing_of_the_capsule(scene: Scene) -> None:
    """DESIGN §5: `TERM`, `LANG`, `NO_COLOR` only, and the physical working directory."""
    broker, shims = scene
    shims.env |= {"NO_COLOR": "1", "LD_PRELOAD": "", "GH_TOKEN": "the-agents-own"}
    folder = Path(shims.env["HOME"])
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    process = shims.start("gh", "pr", "list", "--json", "a b", cwd=folder / "link")
    asked = broker.accept().expect(ExecCommand)
    assert asked.command == "gh"
    assert asked.args == ("pr", "list", "--json", "a b")
    assert asked.cwd == os.path.realpath(folder / "real")
    assert asked.env == {"TERM": "dumb", "LANG": "C.UTF-8", "NO_COLOR": "1"}
    assert asked.stdin is StdinKind.NONE
    assert (asked.tty, asked.stream, asked.stdin_credit) == (None, True, True)
    assert asked.shim == f"jackin-exec {jackin_capsule.VERSION}"
    process.kill()


def test_arguments_cross_byte_for_byte(scene: Scene) -> None:
    """DESIGN §5: what is not UTF-8 travels as base64; the array is what is executed."""
    broker, shims = scene
    raw = [b"\xff\xfe", "é\u202e".encode(), b"a\nb", b'"\\\x01\x7f', b"", b"\xed\xa0\x80"]
    shims.start(b"c\xf3d", *raw).poll()
    asked = broker.accept().expect(ExecCommand)
    assert bytes_from_text(asked.command) == b"c\xf3d"
    assert [bytes_from_text(arg) for arg in asked.args] == raw
    assert isinstance(asked.args[0], Bytes64)
    assert asked.args[1] == "é\u202e"


def test_arguments_cross_in_a_locale_that_is_not_utf8(scene: Scene) -> None:
    """The caller's bytes count, not what Python makes of them."""
    broker, shims = scene
    shims.env["LC_ALL"] = "C"
    shims.start("cat", b"\xe9", "é".encode()).poll()
    asked = broker.accept().expect(ExecCommand)
    assert [bytes_from_text(arg) for arg in asked.args] == [b"\xe9", "é".encode()]


def test_under_another_name_it_is_that_command_and_takes_no_options(scene: Scene) -> None:
    """DESIGN §14: argv0 dispatch; `--help` belongs to gh."""
    broker, shims = scene
    shims.start("--help", "-v", "--", "x", name="gh").poll()
    asked = broker.accept().expect(ExecCommand)
    assert (asked.command, asked.args) == ("gh", ("--help", "-v", "--", "x"))


def test_options_end_at_the_command(system: Scene) -> None:
    """Everything from the first word on that is no option belongs to the command."""
    broker, shims = system
    options = ["--reason", "list my PRs", "--want", "A,B", "--want=C", "-v"]
    shims.start(*options, "gh", "-t", "--want", "x", "--", "y").poll()
    asked = broker.accept().expect(ExecCommand)
    assert (asked.reason, asked.want) == ("list my PRs", ("A", "B", "C"))
    assert (asked.command, asked.args) == ("gh", ("-t", "--want", "x", "--", "y"))


def test_two_dashes_pass_a_command_that_looks_like_an_option(system: Scene) -> None:
    """`--` ends the options also when there were none."""
    broker, shims = system
    shims.start("--", "-v", "--help").poll()
    asked = broker.accept().expect(ExecCommand)
    assert (asked.command, asked.args) == ("-v", ("--help",))


def test_jackin_capsule_exec_is_the_same(system: Scene) -> None:
    """DESIGN §14: `jackin-capsule exec …`."""
    broker, shims = system
    process = shims.start("exec", "--reason=r", "gh", "pr", name="jackin-capsule")
    peer = broker.accept()
    asked = peer.expect(ExecCommand)
    assert (asked.command, asked.args, asked.reason) == ("gh", ("pr",), "r")
    peer.start()
    peer.end(3)
    assert finish(process)[0] == 3


def test_stdout_and_stderr_stay_apart_and_untouched(scene: Scene) -> None:
    """oh-my-bash#413: no merging; bytes in, bytes out."""
    broker, shims = scene
    out, err = os.urandom(60_000), os.urandom(60_000)  # each fits into its pipe
    process = shims.start("noise")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    for start in range(0, 60_000, 20_000):
        peer.send_data(Stream.STDERR, err[start : start + 20_000])
        peer.send_data(Stream.STDOUT, out[start : start + 20_000])
    peer.end(0)
    assert finish(process) == (0, out, err)


def test_large_output_passes_a_slow_reader_whole(system: Scene) -> None:
    """pexpect#120: the last output is not lost when the command ends at once."""
    broker, shims = system
    lines = b"".join(bytes([65 + n]) * 1000 + b"\n" for n in range(26))
    with open(Path(shims.env["HOME"]) / "out", "w+b") as target:
        process = shims.start("letters", stdout=target)
        peer = broker.accept()
        peer.expect(ExecCommand)
        peer.start()
        for _ in range(40):
            peer.send_data(Stream.STDOUT, lines)
        peer.end(0)
        assert finish(process)[0] == 0
        target.seek(0)
        assert target.read() == lines * 40


def test_frames_split_anywhere_give_the_same(system: Scene) -> None:
    """The socket's pieces are not the frames' edges."""
    broker, shims = system
    process = shims.start("x")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    stream = b"\0\0\0\x04\x01abc" + b"\0\0\0\x01\x02" + b"\0\0\0\x03\x02de"
    for position in range(len(stream)):
        peer.send_raw(stream[position : position + 1])
    peer.end(0)
    assert finish(process) == (0, b"abc", b"de")


def test_a_reader_that_goes_away_ends_the_command_as_a_pipe_would(scene: Scene) -> None:
    """`yes | head -1`: 128 + SIGPIPE, and the broker is told."""
    broker, shims = scene
    process = shims.start("yes")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    assert process.stdout is not None
    process.stdout.close()
    peer.send_data(Stream.STDOUT, b"y\n")
    assert peer.rest() == [Cancel()]
    assert process.wait(WAIT_S) == 141


def test_a_full_disk_is_said_and_ends_the_command(system: Scene) -> None:
    """ENOSPC is neither silence nor 126: something did run."""
    broker, shims = system
    with open("/dev/full", "wb") as full:
        process = shims.start("yes", stdout=full)
        peer = broker.accept()
        peer.expect(ExecCommand)
        peer.start()
        peer.send_data(Stream.STDOUT, b"y\n")
        assert peer.rest() == [Cancel()]
        status, _, err = finish(process)
    assert status == 1
    assert "No space left" in error_and_hint(err)[0]


def test_closed_descriptors_never_become_the_broker(scene: Scene) -> None:
    """With 0, 1 and 2 closed, output is dropped and does not come back to the broker as ours."""
    broker, shims = scene
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    process = shims.start("noise", through=closed)
    peer = broker.accept()
    assert peer.expect(ExecCommand).stdin is StdinKind.NONE
    peer.start()
    peer.send_data(Stream.STDOUT, b"out")
    peer.send_data(Stream.STDERR, b"err")
    peer.end(5)
    assert peer.rest() == []
    assert process.wait(WAIT_S) == 5


def test_a_stdout_that_somebody_made_non_blocking_gets_everything(system: Scene) -> None:
    """Node and terminals share such descriptors; EAGAIN is not the end, flags stay as they are."""
    broker, shims = system
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with open(reader, "rb") as source:
        process = shims.start("noise", stdout=writer)
        assert not os.get_blocking(writer)
        os.close(writer)
        peer = broker.accept()
        peer.expect(ExecCommand)
        peer.start()
        content = os.urandom(200_000)
        peer.send_data(Stream.STDOUT, content)
        peer.end(0)
        assert source.read() == content
        assert process.wait(WAIT_S) == 0


def test_a_command_that_is_not_there_is_127_and_says_so(system: Scene) -> None:
    """DESIGN §5: 127, no such command at the target."""
    broker, shims = system
    process = shims.start("nope")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.end(127)
    status, _, err = finish(process)
    assert status == 127
    assert error_and_hint(err)[0] == "no such command at the target"


@pytest.mark.parametrize(
    "ended_by",
    [EndedBy.TIME_LIMIT, EndedBy.OPERATOR, EndedBy.BROKER_STOPPING, EndedBy.GUESSING],
)
def test_a_command_ended_by_somebody_else_says_by_whom(system: Scene, ended_by: EndedBy) -> None:
    """An agent that sees 124 alone would just try again."""
    broker, shims = system
    process = shims.start("sleep", "600")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.start()
    peer.end(124, ended_by)
    status, _, err = finish(process)
    assert status == 124
    error, hint = error_and_hint(err)
    assert "ended" in error
    assert hint


def test_waiting_is_said_once_after_two_seconds(system: Scene) -> None:
    """DESIGN §14: everything that waits says what it waits for; with -v also without a terminal."""
    broker, shims = system
    process = shims.start("-v", "gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.send(ExecPending(REQUEST_ID, 3, 300.0))
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    assert line == (
        f"jackin-exec: waiting for the operator to answer request {REQUEST_ID} "
        "(number 3 in the queue, expires in 300 s); Ctrl-C withdraws it\n"
    )
    peer.send(ExecPending(REQUEST_ID, 1, 298.0))
    peer.start()
    peer.send(ExecResult(0, 2, 0.25, EndedBy.EXIT))
    _, err = process.communicate(timeout=WAIT_S)
    assert err.decode().splitlines() == [
        "jackin-exec: runs on the target host with TOK",
        "jackin-exec: exit status 0 after 0.25 s, 2 redacted",
    ]


def test_what_has_started_is_not_waited_for(system: Scene) -> None:
    """A command that runs longer than the notice's two seconds."""
    broker, shims = system
    process = shims.start("-v", "sleep", "3")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.send(ExecPending(REQUEST_ID, 1, 300.0))
    peer.start()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.5)  # the notice would be due after 2 s
    peer.end(0)
    assert b"waiting" not in finish(process)[2]


def test_without_a_terminal_waiting_is_silent(system: Scene) -> None:
    """stderr belongs to the command: a parser of it must not meet our words."""
    broker, shims = system
    process = shims.start("gh")
    peer = broker.accept()
    peer.expect(ExecCommand)
    peer.send(ExecPending(REQUEST_ID, 1, 300.0))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.5)  # the notice is due after 2 s
    peer.start()
    peer.end(0)
    assert finish(process) == (0, b"", b"")


def test_the_version_is_the_projects() -> None:
    """The capsule has no package metadata to ask."""
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["version"] == jackin_capsule.VERSION
