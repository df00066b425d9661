"""The terminal's bell and notification: once a request, with one clean name."""

from __future__ import annotations

import re

import pytest

from jackin_broker.operator_protocol import RequestState
from jackin_broker.protocol import Bytes64
from jackin_picker.bell import BELL, Bell
from support.operator_playbook import a_request

XTERM = {"TERM": "xterm-256color"}


def test_each_request_rings_once() -> None:
    bell = Bell({"TERM": "dumb"})
    assert [bell.heard(a_request("r1")) for _ in range(3)] == [BELL, "", ""]
    assert bell.heard(a_request("r2")) == BELL
    assert bell.heard(a_request("r1", state=RequestState.RUNNING)) == ""
    assert bell.heard(a_request("r3", state=RequestState.APPROVED)) == ""


@pytest.mark.parametrize(
    ("environ", "start"),
    [
        (XTERM, "9;jackin-exec: "),
        ({"TERM": "foot"}, "777;notify;jackin-exec;"),
        ({"TERM": "rxvt-unicode"}, "777;notify;jackin-exec;"),
        ({**XTERM, "VTE_VERSION": "7000"}, "777;notify;jackin-exec;"),
    ],
)
def test_a_terminal_that_knows_one_gets_one_notification(
    environ: dict[str, str], start: str
) -> None:
    said = Bell(environ).heard(a_request())
    assert said == f"{BELL}\x1b]{start}gh waits for an answer\x1b\\"


@pytest.mark.parametrize(
    "environ", [{}, {"TERM": "linux"}, {"TERM": "tmux-256color"}, {**XTERM, "TMUX": "/tmp/x,1,0"}]
)
def test_one_that_would_print_it_gets_a_bell_alone(environ: dict[str, str]) -> None:
    assert Bell(environ).heard(a_request()) == BELL


@pytest.mark.parametrize(
    "command",
    ["\x07\x1b]0;t", "a\x1b\\b", "x;y", "\u202e", "/a/\x9c", "", "-rf", "x" * 500, Bytes64("/w==")],
    ids=range(9),
)
def test_nothing_of_a_name_ends_the_sequence(command: str | Bytes64) -> None:
    said = Bell(XTERM).heard(a_request(command=command))
    body = said.removeprefix(f"{BELL}\x1b]9;").removesuffix("\x1b\\")
    assert re.fullmatch(r"jackin-exec: [A-Za-z0-9._+-]{1,64} waits for an answer", body)
