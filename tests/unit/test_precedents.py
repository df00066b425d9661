"""What the operator said before, and how the next request differs from it."""

from __future__ import annotations

import pytest

from jackin_broker.operator_views import FileOperandView, RequestView, StdinView
from jackin_broker.precedents import (
    COMPARED_MAX_ARGS,
    DENIED_MAX,
    DIFFERENCES_MAX,
    SHAPES_MAX,
    Precedents,
)
from jackin_broker.protocol import StdinKind, TerminalSize
from support.operator_playbook import a_request


def after(before: RequestView, now: RequestView) -> list[str]:
    precedents = Precedents()
    precedents.note_approved(before)
    return list(precedents.differences(now))


def test_the_same_again_differs_in_nothing() -> None:
    assert after(a_request("a"), a_request("b", reason="other words", asked_by=())) == []


def test_without_an_approval_there_is_nothing_to_compare_with() -> None:
    precedents = Precedents()
    precedents.note_denied(a_request("a"))
    assert precedents.differences(a_request("b", args=("pr", "x"))) == ()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("pr", "list", "--limit", "50"), ["argument 4: was '30', is '50'"]),
        (("pr", "list", "--limit"), ["argument 4 before: left out '30'"]),
        (("pr", "list", "-X", "--limit", "30"), ["argument 3: added '-X'"]),
        (("pr", "list", "--limit", "30", ""), ["argument 5: added ''"]),
        (("pr", "list --limit", "30"), ["argument 2: was 'list', is 'list --limit'",
                                        "argument 3 before: left out '--limit'"]),
    ],
)  # fmt: skip
def test_arguments_are_compared_one_by_one(args: tuple[str, ...], words: list[str]) -> None:
    assert after(a_request("a"), a_request("b", args=args)) == words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cwd": "/home/op"}, "directory: was '/home/op/src/app', is '/home/op'"),
        ({"binary_path": "/opt/gh"}, "program: was '/usr/bin/gh', is '/opt/gh'"),
        ({"tty": TerminalSize(24, 80)}, "terminal: was no, is yes"),
        ({"stdin": StdinView(StdinKind.LIVE)}, "stdin: was none, is live"),
        ({"want": ("GH_TOKEN", "X")}, "wanted: was GH_TOKEN, is GH_TOKEN, X"),
        ({"confinement": "unconfined"}, "confinement: was confined, an empty HOME, is unconfined"),
        ({"cwd_writable": False}, "agent can write the directory: was yes, is no"),
        ({"notices": ("gh has changed",)}, "new notice: gh has changed"),
        (
            {"files": (FileOperandView("x", 1, "aa"),)},
            "the agent can change 'x', which was not among the arguments",
        ),
    ],
    ids=str,
)
def test_what_surrounds_the_command_is_compared_too(change: dict[str, object], words: str) -> None:
    assert after(a_request("a"), a_request("b", **change)) == [words]


def test_other_bytes_in_a_file_or_on_stdin_are_named() -> None:
    before = a_request(
        "a",
        files=(FileOperandView("safe.py", 3, "aa"),),
        stdin=StdinView(StdinKind.CLOSED, 3, "aa"),
    )
    now = a_request(
        "b",
        files=(FileOperandView("safe.py", 3, "bb"),),
        stdin=StdinView(StdinKind.CLOSED, 4, "bb"),
    )
    assert after(before, now) == [
        "stdin: other bytes, was 3, is 4 bytes",
        "the agent changed 'safe.py'",
    ]


def test_a_shape_is_one_capsules_command_and_its_first_word() -> None:
    approved = a_request("a")
    assert after(approved, a_request("b", capsule="lab", cwd="/")) == []
    assert after(approved, a_request("b", command="git", cwd="/")) == []
    assert after(approved, a_request("b", args=("api", "x"))) == []
    assert after(a_request("a", args=("-v", "x")), a_request("b", args=("-x", "x"))) == [
        "argument 1: was '-v', is '-x'"
    ]


def test_an_argument_cannot_pass_for_the_end_of_a_difference() -> None:
    assert after(a_request("a"), a_request("b", args=("pr", "x', is 'y", "--limit", "30"))) == [
        r"argument 2: was 'list', is 'x\', is \'y'"
    ]


def test_many_differences_are_counted_and_long_ones_are_not_compared() -> None:
    many = tuple(f"n{number}" for number in range(50))
    found = after(a_request("a"), a_request("b", args=("pr", *many)))
    assert len(found) == DIFFERENCES_MAX
    assert found[-1].endswith("more differences")
    long = a_request("b", args=("pr", *(["x"] * COMPARED_MAX_ARGS)))
    assert after(a_request("a"), long) == ["the arguments are too long to compare one by one"]
    assert after(long, a_request("c")) == []
    precedents = Precedents()
    precedents.note_denied(long)
    assert precedents.denied_before(long) == 0


def test_a_value_that_turned_up_in_an_argument_is_remembered_masked() -> None:
    precedents = Precedents()
    shown = a_request("a", args=("pr", "list", "the-value"))
    precedents.note_approved(shown)
    precedents.mask(shown, a_request("a", args=("pr", "list", "[redacted:GH_TOKEN]")))
    assert precedents.differences(a_request("b", args=("pr", "list", "x"))) == (
        "argument 3: was '[redacted:GH_TOKEN]', is 'x'",
    )


def test_denials_in_a_row_are_counted_until_an_approval() -> None:
    precedents = Precedents()
    for count in (1, 2, 3):
        precedents.note_denied(a_request(str(count)))
        assert precedents.denied_before(a_request("x", reason="please")) == count
    assert precedents.denied_before(a_request("x", args=("pr", "list"))) == 0
    assert precedents.denied_before(a_request("x", cwd="/elsewhere")) == 0
    precedents.note_approved(a_request("y"))
    assert precedents.denied_before(a_request("x")) == 0


def test_what_is_remembered_is_bounded() -> None:
    precedents = Precedents()
    last = max(DENIED_MAX, SHAPES_MAX)
    for number in range(last + 1):
        precedents.note_denied(a_request("d", args=("pr", str(number))))
        precedents.note_approved(a_request("a", args=(f"sub{number}", "x")))
    assert precedents.denied_before(a_request("x", args=("pr", "0"))) == 0
    assert precedents.denied_before(a_request("x", args=("pr", str(last)))) == 1
    assert precedents.differences(a_request("x", args=("sub0", "y"))) == ()
    assert len(precedents.differences(a_request("x", args=(f"sub{last}", "y")))) == 1
