"""`attach --plain` on a real terminal: said line by line, answered by words, nothing by accident.

Most of it against a playbook's broker, which can ask what no agent gets past a real one; the last
tests answer real agents.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Final

import pytest

from jackin_broker.operator_protocol import (
    BindingView,
    DenyAll,
    GrantKind,
    GrantOffer,
    GrantTerm,
    KillRequest,
    ProcessView,
    RequestState,
    RequestView,
    StdinView,
    view_digest,
)
from jackin_broker.protocol import StdinKind
from support.agent import finish
from support.allowed import allowed
from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook
from support.plain import plain, plain_at
from support.tmux import tmux
from support.vaults import locked_vault, vault_passphrase

NOTHING: Final = "Nothing waits for an answer."
HOSTILE: Final = (
    *("\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b]52;c;b3duZWQ=\x07", "\x1b]8;;http://x\x07y"),
    *("\x1bPq#0\x1b\\", "\x9b2J", "\u202ecod.exe", "g\u200bh", "\U000e0041", "[/][@click=x]"),
    *("a\nReady. run 123 runs it", "a\rRequest: ", "x" + " " * 5000 + "run 123 runs it"),
)


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        yield running


def test_what_is_ticked_by_its_number_is_lent(broker: OperatorPlaybook) -> None:
    view = a_request()
    broker.ask(view)
    with plain_at(broker.path) as operator:
        number = operator.wait_ready()
        operator.enter("tick 1, 3")
        operator.wait_said("A yes lends: GH_TOKEN, PGPASSWORD")
        operator.enter("untick 3")
        operator.wait_said("A yes lends: GH_TOKEN\n")
        operator.enter(f"run {number}")
        operator.wait_said("Approved.")
        decision = broker.wait_decision()
    assert (decision.approve, decision.bindings) == (True, ("GH_TOKEN",))
    assert decision.digest == view_digest(view)


def test_it_says_all_that_the_prompt_says(broker: OperatorPlaybook) -> None:
    stdin = StdinView(StdinKind.CLOSED, 11, "ab" * 32, b"hello\nworld")
    warned = BindingView("GH", "keyring g/me", "env", "read only", True, ("too short",))
    broker.notices = ("this capsule has no boundary",)
    broker.ask(
        a_request(
            stdin=stdin,
            bindings=(warned,),
            notices=("the binary changed",),
            differences=("another folder",),
            denied_before=2,
        ),
        a_request("r2"),
    )
    with plain_at(broker.path) as operator:
        operator.wait_ready()
        said = operator.heard
    for words in (
        *(
            "capsule web, bwrap",
            "  0  gh\n  1  pr\n",
            "program: /usr/bin/gh",
            "! the binary changed",
        ),
        *("folder: /home/op/src/app  the agent can write here", "in the capsule: /workspaces/app"),
        *("≠ changed  another folder", "you denied this 2 times in a row", "11 bytes  sha256 abab"),
        *("runs: on this host  confined, an empty HOME", "no terminal", "node 4121 ‹ bash 4100"),
        *("agent says: “List the open", "GH, wanted by the agent", "keyring g/me", "! too short"),
        *("read only", "1 more wait", "! this capsule has no boundary", "Credential 1, not ticked"),
    ):
        assert words in said, words


def test_no_line_without_the_number_decides(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with plain_at(broker.path) as operator:
        number = operator.wait_ready()
        for line in ("yes", "y", "run", "run all", f"run {number} now", number, "deny", "1 2p"):
            operator.enter(line, "Not understood")
            operator.enter("")
        operator.enter("tick 9")
        operator.wait_said("nothing was ticked")
    assert broker.is_undecided


def test_a_wrong_number_decides_nothing_and_makes_the_old_one_worthless(
    broker: OperatorPlaybook,
) -> None:
    broker.ask(a_request())
    with plain_at(broker.path) as operator:
        first = operator.wait_ready()
        operator.enter("run 999" if first != "999" else "run 998", "gets another one")
        second = operator.wait_ready(count=2)
        operator.enter(f"deny {second} not today")
        operator.wait_said("Denied.")
        assert broker.wait_decision().reason == "not today"
    assert broker.is_undecided


def test_what_is_typed_before_it_is_ready_is_dropped(broker: OperatorPlaybook) -> None:
    """Typing goes on while the request appears; it is ready only after a pause."""
    with plain_at(broker.path) as operator:
        operator.wait_said(NOTHING)
        operator.type("ls -l; rm")  # half a line, meant for something else
        broker.ask(a_request())
        operator.wait_said("Not ready")
        operator.type("yes\r1 2p\rrun 123\rdeny 123\r")
        number = operator.wait_ready()
        assert "Not understood" not in operator.heard
        operator.enter(f"deny {number}")
        operator.wait_said("Denied.")
        assert not broker.wait_decision().approve
    assert broker.is_undecided


def test_lines_that_come_together_do_nothing(broker: OperatorPlaybook) -> None:
    """A paste, even one that holds the number."""
    broker.ask(a_request())
    with plain_at(broker.path) as operator:
        number = operator.wait_ready()
        operator.type(f"tick 1\rrun {number}\rdeny {number}\r")
        operator.wait_said("Lines that come together do nothing")
    assert broker.is_undecided


@pytest.mark.parametrize("change", ["expired", "changed"])
def test_half_a_line_for_one_request_never_answers_another(
    broker: OperatorPlaybook, change: str
) -> None:
    broker.ask(a_request())
    with plain_at(broker.path) as operator:
        number = operator.wait_ready()
        operator.type(f"run {number}")
        operator.wait_until(lambda: operator.heard.endswith(f"run {number}"), "it is echoed")
        if change == "expired":
            broker.end("r1", RequestState.EXPIRED, outcome="expired")
            broker.ask(a_request("r2"))
            operator.wait_said("The request is over")
        else:
            broker.ask(a_request(args=("pr", "merge", "1")))
            operator.wait_said("The request changed")
        operator.wait_ready(count=2)
        operator.enter("")
        operator.enter("help", "What you can type")
    assert broker.is_undecided


def test_a_term_is_said_to_the_letter_and_ends_with_other_ticks(broker: OperatorPlaybook) -> None:
    text = 'argv = ["gh", "pr"]\nbindings = []\nexpires = 2027-01-01'
    offer = GrantOffer(GrantTerm(GrantKind.ALWAYS, 90), text)
    broker.ask(a_request(offers=(offer,)))
    with plain_at(broker.path) as operator:
        number = operator.wait_ready()
        operator.enter("tick 1")
        operator.wait_said("A yes lends")
        operator.enter("terms")
        operator.wait_said("Term 2: always, for 90 days")
        operator.enter("term 2")
        operator.wait_said('│ bindings = ["GH_TOKEN"]\n│ expires = 2027-01-01\n')
        operator.enter("tick 2")
        operator.wait_said("A yes lends: GH_TOKEN, NPM_TOKEN\n")
        operator.enter("untick 2", "A yes lends: GH_TOKEN\n")
        operator.enter("term 2", "it holds always, for 90 days")
        operator.enter(f"run {number}")
        decision = broker.wait_decision()
    assert decision.grant == offer.term
    assert decision.bindings == ("GH_TOKEN",)


def test_all_of_a_capsule_is_denied_with_one_reason(broker: OperatorPlaybook) -> None:
    broker.ask(a_request(), a_request("r2"))
    with plain_at(broker.path) as operator:
        number = operator.wait_ready()
        operator.enter(f"deny all {number} enough for today")
        call = broker.wait_call(DenyAll)
    assert (call.capsule, call.reason) == ("web", "enough for today")


def test_what_runs_is_ended_with_the_number_that_was_just_said(broker: OperatorPlaybook) -> None:
    broker.ask(a_request("u1", state=RequestState.RUNNING), a_request("u2"))
    with plain_at(broker.path) as operator:
        operator.wait_ready()
        operator.enter("kill 123")
        operator.wait_said("nothing was ended")
        operator.enter("list")
        operator.wait_said(" ends it: gh pr list")
        found = re.search(r"kill (\d+) ends it: gh", operator.heard)
        assert found is not None
        operator.enter(f"kill {found[1]}")
        assert broker.wait_call(KillRequest).id == "u1"
        operator.enter(f"kill {found[1]}")
        operator.wait_said("nothing was ended", count=2)


def test_a_request_is_read_whole_and_left_for_later(broker: OperatorPlaybook) -> None:
    broker.ask(a_request(args=("A" * 100_000 + "the end",)), a_request("r2", command="second"))
    with plain_at(broker.path) as operator:
        operator.wait_ready()
        assert "the end" not in operator.heard
        assert re.search(r"\\\{\d\d,\d\d\d more\}", operator.heard)
        operator.enter("read")
        operator.wait_said("the end")
        operator.enter("next")
        operator.wait_said("  0  second")
        operator.wait_ready(count=2)
    assert broker.is_undecided


def hostile(text: str) -> RequestView:
    """A request with this text in every field that may hold text."""
    return a_request(
        *("x" + str(abs(hash(text))),),
        **dict.fromkeys(("capsule", "capsule_kind", "command", "cwd", "binary_path"), text),
        **dict.fromkeys(("confinement", "reason"), text),
        args=(text, text),
        capsule_cwd=text + "'",
        bindings=(BindingView(text, text, text, text, True, (text,)),),
        asked_by=(ProcessView(1, text),),
        notices=(text,),
        differences=(text,),
        offers=(GrantOffer(GrantTerm(GrantKind.USES, 5), text),),
    )


@pytest.mark.parametrize("text", HOSTILE, ids=[str(place) for place in range(len(HOSTILE))])
def test_hostile_text_is_escapes_and_never_at_the_margin(
    broker: OperatorPlaybook, text: str
) -> None:
    broker.notices = (text,)
    broker.ask(hostile(text))
    with plain_at(broker.path, env={"PATH": "/usr/bin:/bin", "TERM": "dumb"}) as operator:
        number = operator.wait_ready()
        operator.enter("terms", "It answers nothing.")
        operator.enter("term 2", "A yes lends")
        operator.enter("read", "  program  ")
        operator.enter("list", "Waits for")
        broker.end(hostile(text).id, RequestState.EXPIRED, outcome=text)
        operator.wait_said("Over, ")
        said = operator.heard
    assert all(char.isprintable() or char in "\n\a" for char in said)
    assert not re.search(r"^(a?Ready\. run 123|run 123 runs|Request: $)", said, re.MULTILINE)
    assert re.findall(r"^Ready\..*run (\d+)", said, re.MULTILINE) == [number]


def test_an_emulator_ends_as_with_harmless_text_of_that_shape(broker: OperatorPlaybook) -> None:
    """What is drawn, once what the escapes stand for is taken out, is the same."""
    screens: list[str] = []
    argv = [sys.executable, "-m", "jackin_picker", "--plain", "--socket", str(broker.path)]
    hostile_text = "\x1b[2J\x1b]8;;x\x07\u202eod\u200b\x9b1m[/]\r"
    shape = "\\x1b[2J\\x1b]8;;x\\x07\\u{202e}od\\u{200b}\\u{9b}1m[/]\\r"
    for text in (hostile_text, "x" * len(shape)):
        broker.ask(a_request(command=text, reason=text, cwd=text, args=(text,), notices=(text,)))
        line = " ".join(quote(word) for word in argv)
        with tmux(["sh", "-c", line], env=dict(os.environ), rows=60, cols=100) as screen:
            screens.append(screen.wait_for("^Ready"))
    drawn, harmless = screens
    assert shape in drawn
    drawn = drawn.replace(shape, "x" * len(shape))
    drawn = drawn.replace("! escapes mark what is not plain text: look twice\n", "")
    lines = [re.sub(r"\d{3}|4:5\d", "N", text).rstrip() for text in (drawn, harmless)]
    assert lines[0] == lines[1]


def test_without_colour_and_without_moving_a_cursor(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with plain_at(broker.path, env={"PATH": "/usr/bin:/bin", "TERM": "dumb"}) as operator:
        operator.wait_ready()
        operator.enter("help")
        operator.wait_said("What you can type")
        assert b"\x1b" not in operator.written
        assert operator.written.count(b"\a") == 1


def test_a_terminal_that_knows_notifications_gets_the_name_alone(
    broker: OperatorPlaybook,
) -> None:
    broker.ask(a_request(command="/opt/x/we;ird\x07\x1b]0;t", args=("s3cret",)))
    with plain_at(broker.path) as operator:
        operator.wait_ready()
        found = re.findall(rb"\x1b.*?\x1b\\", operator.written)
    assert found == [b"\x1b]9;jackin-exec: we_ird___0_t waits for an answer\x1b\\"]


@pytest.mark.parametrize("how", ["quit", "ctrl-d", "ctrl-c", "term", "hup"])
@pytest.mark.parametrize("is_ready", [True, False])
def test_the_terminal_is_left_as_it_was(broker: OperatorPlaybook, how: str, is_ready: bool) -> None:
    with plain_at(broker.path) as operator:
        operator.wait_said(NOTHING)
        before = operator.modes
        broker.ask(a_request())
        operator.wait_said("Not ready")
        if is_ready or how in ("quit", "ctrl-d"):
            operator.wait_ready()
        match how:
            case "quit":
                operator.enter("quit")
            case "ctrl-d" | "ctrl-c":
                operator.press(how)
            case _:
                os.kill(operator.pid, signal.SIGTERM if how == "term" else signal.SIGHUP)
        status = {"term": 128 + signal.SIGTERM, "hup": 128 + signal.SIGHUP}.get(how, 0)
        operator.wait_until(lambda: operator.modes == before, "the terminal is as it was")
        assert operator.wait_ended() == status
    flags = before[3]
    assert isinstance(flags, int)
    assert flags & termios.ECHO
    assert broker.is_undecided


def test_when_the_broker_comes_back_it_goes_on(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())
    with plain_at(broker.path) as operator:
        number = operator.wait_ready()
        broker.stop()
        operator.wait_said("The broker is not there")
        operator.enter(f"run {number}")
        operator.wait_said(NOTHING)
        broker.restart()
        broker.ask(a_request("r2", command="later"))
        operator.wait_said("  0  later")
        operator.wait_ready(count=2)
    assert broker.is_undecided


def test_a_real_request_is_answered_and_its_end_is_said() -> None:
    with allowed("true", asked=["sh", "touch"]) as made, plain(made.broker) as operator:
        operator.wait_said(NOTHING)
        with made.agent.running("sh", "-c", "echo $TOKEN; exit 3") as child:
            number = operator.wait_ready()
            assert made.broker.ask("status")["operators"] == 1
            operator.enter("tick 1")
            operator.wait_said("A yes lends: TOKEN")
            operator.enter(f"run {number}")
            done = finish(child)
            assert (done.returncode, done.stdout) == (3, b"[redacted:TOKEN]\n")
            operator.wait_said("Over, done, exit 3 after 0:00: sh -c")
        with made.agent.running("touch", "ran") as child:
            number = operator.wait_ready(count=2)
            operator.enter(f"deny {number} not in this folder")
            done = finish(child)
            assert done.returncode == 126
            assert b"not in this folder" in done.stderr
        assert made.token.encode() not in operator.written
    assert not (made.work / "ran").exists()


def test_the_vault_is_unlocked_by_the_hidden_prompt() -> None:
    with allowed("true", more="") as made:
        locked_vault(made.broker.state_dir)
        with plain(made.broker) as operator:
            operator.wait_said(NOTHING)
            operator.enter("unlock")
            operator.wait_said("vault passphrase: ")
            operator.enter(vault_passphrase())
            operator.wait_said("Enter goes back")
            operator.enter("")
            operator.wait_until(
                lambda: made.broker.ask("status")["vault"] == "unlocked", "it is unlocked"
            )
            operator.enter("list")
            operator.wait_said("Nothing waits, nothing runs.")
            assert vault_passphrase().encode() not in operator.written
