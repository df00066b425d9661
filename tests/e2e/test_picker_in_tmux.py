"""The installed picker in a real terminal emulator, against a playbook's broker.

tmux draws what no Python emulator draws right: zero-width, bidirectional and control characters.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec
import pytest

from jackin_broker.operator_protocol import (
    BindingView,
    CredentialView,
    GrantKind,
    GrantOffer,
    GrantTerm,
    GrantView,
    Output,
    ProcessView,
    RequestState,
    RequestView,
    RuleView,
    Watch,
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

ONE_LINE: Final = [(text, seen) for text, seen in HOSTILE.values() if "\n" not in text]


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        yield running


@contextmanager
def pane(broker: OperatorPlaybook, after: str = "", **variables: str) -> Generator[Tmux]:
    """The picker in a pane; `after` is a shell's line that runs when it has ended."""
    line = f"{quote(PICKER)} --socket {quote(str(broker.path))}; {after}"
    with tmux(["sh", "-c", line], env={**os.environ, **variables}) as running:
        yield running


def child_of_pane(running: Tmux) -> int:
    """The picker's process id."""
    shell = running.call("list-panes", "-F", "#{pane_pid}").strip()
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    return int(children[0])


def all_keys_were_handled(screen: Tmux) -> None:
    """Return when the picker has taken every key that was sent: the one for help comes last."""
    screen.type("?")
    screen.wait_for("for how long your answer holds")


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
        screen.type("ls \r")
        all_keys_were_handled(screen)
    assert broker.is_undecided


def test_a_paste_leaves_the_request_waiting(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with pane(broker) as screen:
        screen.wait_for("● ready")
        screen.call("set-buffer", "--", " \r\r")
        screen.call("paste-buffer", "-p")  # bracketed: the picker asked for it
        screen.call("paste-buffer")
        all_keys_were_handled(screen)
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
        wait_until(lambda: not is_running(pid), "the picker ends", limit_s=LIMIT_S)
    assert broker.is_undecided


def test_a_terminal_that_is_nobodys_controlling_one_takes_the_picker_along_too(
    broker: OperatorPlaybook,
) -> None:
    """No SIGHUP comes; Textual alone would read the end of its input again and again."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [PICKER, "--socket", str(broker.path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    ) as picker:
        try:
            os.close(theirs)
            broker.wait_attached()
            shown = b""
            while b"Nothing" not in shown:
                shown += os.read(ours, 65536)
            os.close(ours)
            assert picker.wait(LIMIT_S) == 128 + signal.SIGHUP
        finally:
            picker.kill()


def test_a_killed_picker_decides_nothing_and_another_goes_on(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with pane(broker) as screen:
        screen.wait_for("● ready")
        pid = child_of_pane(screen)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pid), "the picker is gone", limit_s=LIMIT_S)
    assert broker.is_undecided
    with pane(broker) as screen:
        screen.wait_for("● ready")


@pytest.mark.parametrize("exported", [{}, {"COLUMNS": "120", "LINES": "40"}], ids=["", "exported"])
def test_a_resize_is_drawn_and_decides_nothing(
    broker: OperatorPlaybook, exported: dict[str, str]
) -> None:
    broker.ask(a_request())
    with pane(broker, **exported) as screen:
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


def test_hostile_text_is_shown_as_escapes_on_every_page(broker: OperatorPlaybook) -> None:
    """In what ended, in grants, rules, credentials, in the choice of a term, in what is refused."""
    texts = [text for text, _ in HOSTILE.values()]
    broker.history = tuple(
        msgspec.structs.replace(hostile_everywhere(f"h{n}", text), state=RequestState.DENIED)
        for n, text in enumerate(texts)
    )
    broker.grants = tuple(
        GrantView(f"g{n}", text, text, 0, note=text, bindings=(text,))
        for n, text in enumerate(texts)
    )
    broker.rules = tuple(
        RuleView(n, text, text, text, (text,)) for n, text in enumerate(texts, start=1)
    )
    broker.credentials = tuple(
        CredentialView(text, text, text, text, text, warnings=(text,)) for text in texts
    )
    broker.status = msgspec.structs.replace(broker.status, keyring=texts[0], keyring_hint=texts[1])
    with pane(broker) as screen:
        screen.wait_for("Nothing waits")
        title = screen.call("display-message", "-p", "#{pane_title}")
        for key, name in (("3", "History"), ("4", "Grants"), ("5", "Credentials"), ("6", "Rules")):
            screen.send_keys(key)
            screen.wait_for(rf"^  {name} .* {len(texts)}$")
            look_through(screen, name)
        look_at_terms(screen, broker)
        assert screen.call("display-message", "-p", "#{pane_title}") == title
        assert screen.call("list-buffers") == ""
    assert broker.is_undecided


def look_through(screen: Tmux, name: str) -> None:
    """Put the cursor on each entry of a page; read the last one."""
    for text, seen in HOSTILE.values():
        shown = rf"\A  1 Waiting[\s\S]*^› .*{re.escape(seen[:8])}[\s\S]*^.*/ filter.*$"
        assert len(screen.wait_for(shown).rstrip().split("\n")) == 24, (name, text)
        screen.send_keys("Down")
    if name != "Credentials":
        screen.send_keys("Enter")
        screen.wait_for("All of the")
        screen.send_keys("Escape")
        screen.wait_for(rf"^  {name} ")


def look_at_terms(screen: Tmux, broker: OperatorPlaybook) -> None:
    """A request whose offers and differences hold every text."""
    texts = tuple(text for text, _ in HOSTILE.values())
    offer = GrantOffer(GrantTerm(GrantKind.ALWAYS, 90), "\n".join(texts))
    broker.ask(a_request(offers=(offer,), differences=texts))
    screen.send_keys("0")
    assert r"\x1b[2J" in screen.wait_for("● ready")
    screen.send_keys("g")
    screen.wait_for("How long")
    screen.send_keys("Down")
    shown = screen.wait_for("to the letter")
    assert [seen for _, seen in list(HOSTILE.values())[:7] if seen not in shown] == []


def test_live_output_draws_what_harmless_output_of_that_shape_draws(
    broker: OperatorPlaybook,
) -> None:
    """The emulator has replayed the picker's stream: nothing of the output moved, coloured, hid."""
    broker.ask(a_request("u1", state=RequestState.RUNNING))
    screens: list[str] = []
    for is_hostile in (True, False):
        with pane(broker) as screen:
            screen.wait_for("Under way")
            screen.send_keys("2")
            screen.wait_for("approved and not ended")
            screen.send_keys("Enter")
            broker.wait_call(Watch)
            for text, seen in ONE_LINE:
                line = text if is_hostile else "x" * len(seen)
                broker.push(Output("u1", 1, line.encode() + b"\n"))
            broker.push(Output("u1", 2, b"the end\n"))
            screens.append(screen.wait_for("err │ the end"))
    hostile, harmless = screens
    for _, seen in ONE_LINE:
        assert seen in hostile
        hostile = hostile.replace(seen, "x" * len(seen), 1)
    drawn = [line for line in hostile.split("\n") if "│" in line]
    assert drawn == [line for line in harmless.split("\n") if "│" in line]


def test_editing_keys_in_a_filter_and_a_reason_decide_nothing(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with pane(broker) as screen:
        for entry in ("/", "d", "D"):
            screen.wait_for("● ready")
            screen.type(entry)
            for key in ("a", "BSpace", "DC", "Left", "Right", "Home", "End", "C-u", "C-k", "C-w"):
                screen.send_keys(key)
            screen.wait_for("▏")  # the cursor of what is typed
            screen.send_keys("Escape")
            screen.wait_for(r"\A(?![\s\S]*▏)")
        all_keys_were_handled(screen)
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
