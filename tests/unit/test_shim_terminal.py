"""The caller's terminal: who gets one, raw while the command runs, given back however it ends.

The broker does what a test says; the shim is the real one, on a real pseudo-terminal.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jackin_broker.frames import DataFrame, Stream
from jackin_broker.protocol import (
    Cancel,
    EndedBy,
    Error,
    ExecCommand,
    ExecDenied,
    ExecPending,
    ExecStopped,
    Resize,
    Signal,
    StdinCredit,
    StdinEof,
    StdinKind,
    TerminalSize,
)
from support.scripted_broker import (
    Peer,
    ScriptedBroker,
    ShimPrograms,
    error_and_hint,
    finish,
    interpreters,
    scripted,
)
from support.terminal import Terminal, terminal

Scene = tuple[ScriptedBroker, ShimPrograms]


@pytest.fixture(params=interpreters(), ids=os.path.basename)
def scene(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scripted(short_tmp, request.param) as both:
        yield both


@contextmanager
def calling(
    scene: Scene, *words: str, rows: int = 24, cols: int = 80
) -> Generator[tuple[Terminal, Peer, ExecCommand]]:
    """A shim on a terminal, and the request that it sent."""
    broker, shims = scene
    argv = [shims.program("jackin-exec"), *(words or ("vim",))]
    with terminal(argv, env=shims.env, rows=rows, cols=cols) as caller:
        peer = broker.accept()
        yield caller, peer, peer.expect(ExecCommand)


def is_raw(caller: Terminal) -> Callable[[], bool]:
    return lambda: caller.is_raw


def begin(caller: Terminal, peer: Peer) -> None:
    """The command runs, and the shim knows."""
    peer.start()
    caller.wait_until(is_raw(caller), "the terminal is raw")


# --- who gets one -----------------------------------------------------------------------


def test_on_a_terminal_the_command_gets_one_of_its_size(scene: Scene) -> None:
    with calling(scene, rows=50, cols=132) as (_, _, request):
        assert request.tty == TerminalSize(50, 132)
        assert request.stdin is StdinKind.LIVE


@pytest.mark.parametrize("option", ["-T", "--no-tty", "-tT", "-vT"])
def test_it_can_be_declined(scene: Scene, option: str) -> None:
    with calling(scene, option, "vim") as (_, _, request):
        assert request.tty is None


def test_without_a_terminal_nothing_changes(scene: Scene) -> None:
    broker, shims = scene
    shims.start("vim")
    assert broker.accept().expect(ExecCommand).tty is None


@pytest.mark.parametrize(
    ("redirection", "stdin", "raw"),
    [("| cat", StdinKind.LIVE, True), ("</dev/null", StdinKind.NONE, False)],
)
def test_one_end_on_a_terminal_is_enough_when_it_is_asked_for(
    scene: Scene, redirection: str, stdin: StdinKind, raw: bool
) -> None:
    """`ssh -t host | tee log`; where stdin is something else the terminal is left as it is."""
    broker, shims = scene
    for option, tty in (("", None), ("-t", TerminalSize(24, 80))):
        line = f"{shims.program('jackin-exec')} {option} vim {redirection}"
        with terminal(["/bin/sh", "-c", line], env=shims.env) as caller:
            peer = broker.accept()
            request = peer.expect(ExecCommand)
            assert (request.tty, request.stdin) == (tty, stdin)
            peer.start()
            peer.send_data(Stream.STDOUT, b"shown\n")
            caller.wait_for("^shown$")
            if tty:
                assert caller.is_raw is raw
            peer.end(0)
            caller.wait_ended()


def test_a_pipe_is_typed_into_a_terminal_that_was_asked_for(scene: Scene) -> None:
    broker, shims = scene
    line = f"echo yes | {shims.program('jackin-exec')} -t vim"
    with terminal(["/bin/sh", "-c", line], env=shims.env) as caller:
        peer = broker.accept()
        request = peer.expect(ExecCommand)
        assert (request.tty, request.stdin) == (TerminalSize(24, 80), StdinKind.CLOSED)
        assert peer.expect_data(4) == b"yes\n"
        peer.expect(StdinEof)
        peer.start()
        peer.end(0)
        assert caller.wait_ended() == 0


def test_asked_for_where_there_is_none_it_fails_and_says_so(scene: Scene) -> None:
    """openclaw#73646, agentcore-cli#982: it needed a terminal, and exited with 0."""
    _, shims = scene
    process = shims.start("-t", "vim")
    status, out, err = finish(process)
    assert (status, out) == (126, b"")
    error, hint = error_and_hint(err)
    assert "neither stdin, stdout nor stderr is one" in error
    assert "without -t" in hint


def test_a_terminal_of_unknown_size_is_taken_for_the_usual_one(scene: Scene) -> None:
    """`docker run -t` and serial lines have 0 rows."""
    with calling(scene, rows=0, cols=0) as (_, _, request):
        assert request.tty == TerminalSize(24, 80)


# --- raw, and given back ----------------------------------------------------------------


def test_while_it_waits_ctrl_c_withdraws_the_request(scene: Scene) -> None:
    with calling(scene) as (caller, peer, _):
        peer.send(ExecPending("r-1", 1, 300.0))
        caller.wait_for("waiting for the operator")
        assert not caller.is_raw
        caller.press("ctrl-c")
        assert caller.wait_ended() == 130
        assert peer.rest() == [Cancel()]


@pytest.mark.parametrize("key", ["ctrl-c", "ctrl-backslash", "ctrl-z", "ctrl-d"])
def test_once_it_runs_keys_are_the_commands(scene: Scene, key: str) -> None:
    """Ctrl-C arrives as a key, exactly once, and as no signal."""
    with calling(scene) as (caller, peer, _):
        begin(caller, peer)
        caller.press(key)
        caller.type("x")
        assert peer.expect_data(2)[1:] == b"x"
        peer.end(7)
        assert caller.wait_ended() == 7
        assert peer.rest() == []


def hung_up(peer: Peer) -> None:
    peer.close()


def ended(peer: Peer) -> None:
    peer.end(0)


def killed(peer: Peer) -> None:
    peer.end(137, EndedBy.OPERATOR)


def refused(peer: Peer) -> None:
    peer.send(Error("internal_error", "a fault"))


def denied(peer: Peer) -> None:
    peer.send(ExecDenied("guessing", "came too close"))


def garbled(peer: Peer) -> None:
    peer.send_raw(b"\0\0\0\3{no")


@pytest.mark.parametrize("way", [hung_up, ended, killed, refused, denied, garbled])
def test_whatever_ends_it_the_terminal_is_as_before(
    scene: Scene, way: Callable[[Peer], None]
) -> None:
    """And what the shim itself says comes on lines that begin at the left."""
    with calling(scene) as (caller, peer, _):
        before = caller.modes
        begin(caller, peer)
        way(peer)
        caller.wait_ended()
        assert caller.modes == before
        assert b" jackin-exec:" not in caller.written
        assert caller.written.count(b"\n") == caller.written.count(b"\r\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_passed_on_once_and_the_terminal_given_back(scene: Scene, number: int) -> None:
    with calling(scene) as (caller, peer, _):
        before = caller.modes
        begin(caller, peer)
        os.kill(caller.pid, number)
        assert peer.expect(Signal).number == number
        peer.end(128 + number, EndedBy.SIGNAL)
        assert caller.wait_ended() == 128 + number
        assert caller.modes == before
        assert peer.rest() == []


def test_a_broker_that_hangs_does_not_keep_the_keyboard(scene: Scene) -> None:
    """In raw mode Ctrl-C is a key; a broker that is there acknowledges each."""
    with calling(scene) as (caller, peer, _):
        before = caller.modes
        begin(caller, peer)
        caller.press("ctrl-c", "ctrl-c")
        assert peer.expect_data(2) == b"\x03\x03"
        assert caller.wait_ended() == 130
        assert "no answer" in caller.text
        assert caller.modes == before
        assert peer.rest() == [Cancel()]


def test_a_command_that_ignores_ctrl_c_keeps_its_terminal(scene: Scene) -> None:
    """Emacs is sent Ctrl-C Ctrl-C, and then it may think."""
    with calling(scene) as (caller, peer, _):
        begin(caller, peer)
        caller.press("ctrl-c", "ctrl-c")
        assert peer.expect_data(2) == b"\x03\x03"
        peer.send(StdinCredit(2))
        with pytest.raises(AssertionError, match="not within"):
            caller.wait_until(lambda: not caller.is_raw, "it gives up", limit_s=3.5)
        peer.end(0)
        assert caller.wait_ended() == 0


# --- sizes, stops -----------------------------------------------------------------------


def test_a_new_size_is_told_once(scene: Scene) -> None:
    """pexpect#413. A signal that brings none is passed on as it is."""
    with calling(scene) as (caller, peer, _):
        begin(caller, peer)
        caller.resize(20, 90)
        assert peer.expect(Resize) == Resize(20, 90)
        os.kill(caller.pid, signal.SIGWINCH)
        assert peer.expect(Signal).number == signal.SIGWINCH
        peer.end(0)
        caller.wait_ended()
        assert peer.rest() == []


def test_a_size_that_changed_while_it_waited_is_told_at_the_start(scene: Scene) -> None:
    with calling(scene) as (caller, peer, _):
        caller.resize(20, 90)
        begin(caller, peer)
        assert peer.expect(Resize) == Resize(20, 90)
        peer.end(0)
        caller.wait_ended()
        assert peer.rest() == []


def test_where_nobody_can_continue_it_the_shim_does_not_stop(scene: Scene) -> None:
    """Its parent leads another session: like any program there, the command goes on at once."""
    with calling(scene) as (caller, peer, _):
        begin(caller, peer)
        peer.send(ExecStopped(signal.SIGTSTP))
        assert peer.expect(Signal).number == signal.SIGCONT
        caller.wait_until(is_raw(caller), "the terminal is raw again")
        peer.end(0)
        assert caller.wait_ended() == 0
        assert peer.rest() == []


def test_a_stop_signal_is_for_the_command_and_the_shim_stops_when_it_has(scene: Scene) -> None:
    with calling(scene) as (caller, peer, _):
        begin(caller, peer)
        os.kill(caller.pid, signal.SIGTSTP)
        assert peer.expect(Signal).number == signal.SIGTSTP
        caller.type("x")
        assert peer.expect_data(1) == b"x"  # it has not stopped yet
        peer.end(0)
        assert caller.wait_ended() == 0


def test_a_shell_can_stop_and_continue_it(scene: Scene) -> None:
    """Ctrl-Z, the shell's prompt with its own settings, `fg`, and raw again."""
    broker, shims = scene
    shell = ["/bin/bash", "--norc", "-i"]
    with terminal(shell, env={**shims.env, "PS1": "caller> "}) as caller:
        caller.wait_for(r"[$#>] *$")
        caller.type(f"{shims.program('jackin-exec')} vim\r")
        peer = broker.accept()
        peer.expect(ExecCommand)
        begin(caller, peer)
        for number in (signal.SIGTSTP, signal.SIGSTOP):
            peer.send(ExecStopped(number))
            caller.wait_for(r"Stopped[^\n]*\n[^\n]*[$#>] *$")
            caller.type("clear; fg\r")
            assert peer.expect(Signal).number == signal.SIGCONT
            caller.wait_until(is_raw(caller), "the terminal is raw again")
        peer.end(5)
        caller.wait_until(lambda: not caller.is_raw, "the terminal is the shell's")
        caller.wait_for(r"[$#>] *$")
        caller.type("echo st=$?; stty | grep -c -- -icanon; exit 0\r")
        caller.wait_for("^st=5")
        assert peer.rest() == []


def test_in_the_background_it_takes_no_key_and_changes_no_setting(scene: Scene) -> None:
    broker, shims = scene
    with terminal(["/bin/bash", "--norc", "-i"], env=shims.env) as caller:
        caller.wait_for(r"[$#>] *$")
        caller.type(f"{shims.program('jackin-exec')} vim &\r")
        peer = broker.accept()
        peer.expect(ExecCommand)
        peer.start()
        peer.send_data(Stream.STDOUT, b"\r\nfrom behind\r\n")
        caller.wait_for("^from behind")
        caller.type("echo st$((1+1))ll the shell\r")
        caller.wait_for("^st2ll the shell")
        caller.type("fg\r")
        caller.wait_until(is_raw(caller), "the terminal is raw")
        caller.type("x")
        item = peer.receive()
        while isinstance(item, Signal):
            item = peer.receive()
        assert isinstance(item, DataFrame)
        assert item.data == b"x"
        peer.end(0)


def test_the_terminal_part_is_loaded_for_terminals_alone(scene: Scene) -> None:
    """DESIGN §15: the shim's start-up is a measured number."""
    broker, shims = scene
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2] / 'capsule')!r})\n"
        "from jackin_capsule import call\n"
        "leave = call.Call.leave\n"
        "def tell(self, status, cancels=False):\n"
        "    sys.stderr.write(str('jackin_capsule.terminal' in sys.modules))\n"
        "    sys.stderr.flush()\n"
        "    leave(self, status, cancels)\n"
        "call.Call.leave = tell\n"
        "from jackin_capsule.shim import main\n"
        "main(['jackin-exec', 'true'])\n"
    )
    process = subprocess.Popen(
        [interpreters()[0], "-IS", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shims.env,
    )
    with process:
        peer = broker.accept()
        peer.expect(ExecCommand)
        peer.start()
        peer.end(0)
        assert finish(process) == (0, b"", b"False")
