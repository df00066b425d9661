"""The installed picker in a real terminal emulator, against a playbook's broker.

tmux draws what no Python emulator draws right: zero-width, bidirectional and control characters.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final

import pytest

from jackin_broker.operator_protocol import (
    BindingView,
    ProcessView,
    RequestState,
    RequestView,
    view_digest,
)
from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook
from support.real import is_running, wait_until
from support.tmux import Tmux, tmux

PICKER: Final = str(Path(sys.executable).with_name("jackin-picker"))
LIMIT_S: Final = 20.0
# What each field of a hostile request holds, and what of it is seen.
HOSTILE: Final = {
    "clear": ("\x1b[2J\x1b[H", r"\x1b[2J\x1b[H"),
    "title": ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
    "clipboard": ("\x1b]52;c;b3duZWQ=\x07", r"\x1b]52;c;b3duZWQ=\x07"),
    "link": ("\x1b]8;;http://x\x07y", r"\x1b]8;;http://x\x07y"),
    "dcs": ("\x1bPq#0\x1b\\", r"\x1bPq#0\x1b\\"),
    "c1": ("\x9b2J", r"\u{9b}2J"),
    "bidi": ("\u202ecod.exe", r"\u{202e}cod.exe"),
    "zero-width": ("g\u200bh", r"g\u{200b}h"),
    "tag": ("\U000e0041", r"\u{e0041}"),
    "newline": ("a\nEnter runs it", r"a\nEnter runs it"),
    "markup": ("[/][@click=app.quit]", "[/][@click=app.quit]"),
    "unclosed": ("[b +", "[b +"),
    "spaces": ("x" + " " * 5000 + "y", r"x\{5000 spaces}y"),
}


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        yield running


@contextmanager
def pane(broker: OperatorPlaybook, after: str = "") -> Generator[Tmux]:
    """The picker in a pane; `after` is a shell's line that runs when it has ended."""
    line = f"{quote(PICKER)} --socket {quote(str(broker.path))}; {after}"
    with tmux(["sh", "-c", line], env=dict(os.environ)) as running:
        yield running


def child_of_pane(running: Tmux) -> int:
    """The picker's process id."""
    shell = running.call("list-panes", "-F", "#{pane_pid}").strip()
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    return int(children[0])


def test_a_request_is_ticked_and_run(broker: OperatorPlaybook) -> None:
    view = a_request()
    with pane(broker) as screen:
        screen.wait_for("Nothing waits for an answer")
        broker.ask(view)
        screen.wait_for("● ready")
        screen.send_keys("Space")
        screen.wait_for(r"\[x\] GH_TOKEN")
        screen.send_keys("Enter")
        decision = broker.wait_decision()
    assert decision.approve
    assert decision.bindings == ("GH_TOKEN",)
    assert decision.digest == view_digest(view)


def test_escape_denies(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with pane(broker) as screen:
        screen.wait_for("● ready")
        screen.send_keys("Escape")
        assert not broker.wait_decision().approve


def test_typing_meant_for_a_shell_leaves_the_request_waiting(broker: OperatorPlaybook) -> None:
    """`yes`, Enter, `1 2p` as one burst, while the prompt appears and once it is ready."""
    broker.ask(a_request())
    with pane(broker) as screen:
        screen.wait_for("asks to run")
        screen.type("yes\r1 2p")
        screen.wait_for("● ready")
        screen.type("yes\r1 2p")
        screen.wait_for(r"\[x\] GH_TOKEN")
        screen.type("ls \r")
        broker.ask(a_request("r2", command="later"))
        screen.wait_for("2 waiting")
    assert broker.is_undecided


def test_a_paste_leaves_the_request_waiting(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with pane(broker) as screen:
        screen.wait_for("● ready")
        screen.call("set-buffer", "--", " \r\r")
        screen.call("paste-buffer", "-p")  # bracketed: the picker asked for it
        screen.call("paste-buffer")
        broker.ask(a_request("r2", command="later"))
        screen.wait_for("2 waiting")
    assert broker.is_undecided


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(
    broker: OperatorPlaybook, number: signal.Signals
) -> None:
    broker.ask(a_request())
    with pane(broker, after="echo status $?; stty -a; read line; echo got $line") as screen:
        screen.wait_for("● ready")
        os.kill(child_of_pane(screen), number)
        text = screen.wait_for(rf"status {128 + number}[\s\S]* echo ")
        assert {"isig", "icanon", "echo", "icrnl", "ixon"} <= set(text.split())
        flags = "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_flag}"
        assert screen.call("display-message", "-p", flags).split() == ["0", "1", "0", "0"]
        screen.type("typed\r")
        screen.wait_for("^got typed")
    assert broker.is_undecided


@pytest.mark.parametrize("asked", [False, True], ids=["idle", "asked"])
def test_a_terminal_that_goes_away_takes_the_picker_along(
    broker: OperatorPlaybook, asked: bool
) -> None:
    """A picker that stays would count as an operator who can answer."""
    if asked:
        broker.ask(a_request())
    with pane(broker) as screen:
        screen.wait_for("● ready" if asked else "Nothing waits for an answer")
        pid = child_of_pane(screen)
        screen.stop()
        wait_until(lambda: not is_running(pid), "the picker ends", limit_s=5)
    assert broker.is_undecided


def test_a_killed_picker_decides_nothing_and_another_goes_on(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with pane(broker) as screen:
        screen.wait_for("● ready")
        pid = child_of_pane(screen)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pid), "the picker is gone", limit_s=5)
    assert broker.is_undecided
    with pane(broker) as screen:
        screen.wait_for("● ready")


def test_a_resize_is_drawn_and_decides_nothing(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with pane(broker) as screen:
        screen.wait_for("● ready")
        screen.call("resize-window", "-x", "50", "-y", "12")
        screen.wait_for("too small")
        screen.send_keys("Escape")
        screen.call("resize-window", "-x", "120", "-y", "40")
        screen.wait_for("● ready")
    assert broker.is_undecided


def hostile_everywhere(request_id: str, text: str) -> RequestView:
    """A request with this text in every field that may hold text."""
    return a_request(
        request_id,
        capsule=text,
        capsule_kind=text,
        command=text,
        args=(text, text),
        cwd=text,
        capsule_cwd=text + "'",
        binary_path=text,
        confinement=text,
        reason=text,
        bindings=(BindingView(text, text, text, text, True, (text,)),),
        asked_by=(ProcessView(1, text),),
        notices=(text,),
    )


def test_hostile_text_is_shown_as_escapes_and_does_nothing(broker: OperatorPlaybook) -> None:
    """Every text in every field: in the prompt, in the reader, in the list of what ended."""
    broker.notices = tuple(text for text, _ in HOSTILE.values())
    with pane(broker) as screen:
        notices = screen.wait_for("Nothing waits")
        title = screen.call("display-message", "-p", "#{pane_title}")
        for name, (text, seen) in HOSTILE.items():
            assert seen in notices
            broker.ask(hostile_everywhere(name, text))
            screen.wait_for("● ready")
            lines = screen.capture().split("\n")
            assert any(line.endswith(f" 1  {seen}") for line in lines), name
            assert sum(seen[:8] in line for line in lines) >= 9, name
            assert lines[23].startswith("  Space tick"), name
            screen.send_keys("v")
            assert seen in screen.wait_for("All of the request")
            screen.send_keys("Escape")
            screen.wait_for("asks to run")
            broker.end(name, RequestState.EXPIRED, outcome=text)
            screen.wait_for("Nothing waits")
        assert screen.call("display-message", "-p", "#{pane_title}") == title
        assert screen.call("list-buffers") == ""
    assert broker.is_undecided


def test_an_argument_of_100_kb_is_clipped_with_a_count(broker: OperatorPlaybook) -> None:
    broker.ask(a_request(args=("A" * 100_000,)))
    with pane(broker) as screen:
        screen.wait_for(r"\\\{\d\d,\d\d\d more\}")
        screen.wait_for("● ready")
        screen.send_keys("v")
        screen.wait_for("All of the request")
        screen.send_keys("End")
        screen.wait_for("the end")


def test_without_a_terminal_it_says_so_and_draws_nothing(broker: OperatorPlaybook) -> None:
    done = subprocess.run(
        [PICKER, "--socket", str(broker.path)], capture_output=True, timeout=LIMIT_S, text=True
    )
    assert done.returncode == 1
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error == "jackin-picker: error: the picker needs a terminal on stdin, stdout and stderr"
    assert hint.startswith("jackin-picker: hint: ")


def test_without_a_broker_it_says_how_to_start_one(short_tmp: Path) -> None:
    missing = short_tmp / "operator.sock"
    line = f"{quote(PICKER)} --socket {quote(str(missing))}; echo status $?"
    with tmux(["sh", "-c", line], env=dict(os.environ)) as screen:
        text = screen.wait_for("status 1")
    assert "jackin-picker: error: no broker answers at" in text
    assert "jackin-picker: hint: start it with: jackin-broker serve" in text
