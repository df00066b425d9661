"""The picker's app against a playbook's broker: DESIGN §7 as the operator meets it."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual import events
from textual.content import Content

from jackin_broker.operator_protocol import BindingView, Failed, Goodbye, RequestState, view_digest
from jackin_picker.app import PickerApp
from jackin_picker.guard import ARM_S
from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook
from support.picker_pilot import HandClock, Stage, play, until


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        yield running


def test_a_request_appears_is_ticked_and_run(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Nothing waits for an answer.")
        broker.ask(a_request())
        await stage.shows("0  gh", "[ ] GH_TOKEN", "○ not ready")
        await stage.arm()
        await stage.press("space")
        await stage.shows("[x] GH_TOKEN", "Run with GH_TOKEN")
        await stage.press("enter")
        await stage.shows("approved", "Under way")

    play(broker, scene)
    decision = broker.wait_decision()
    assert decision.approve
    assert decision.bindings == ("GH_TOKEN",)
    assert decision.digest == view_digest(a_request())


def test_what_was_said_of_an_earlier_request_is_not_said_of_a_new_one(
    broker: OperatorPlaybook,
) -> None:
    """`approved` on a prompt that waits for an answer would mislead."""

    async def scene(stage: Stage) -> None:
        broker.ask(a_request())
        await stage.shows("0  gh")
        await stage.arm()
        await stage.press("space", "enter")
        await stage.shows("you approved the one before", "Under way")
        broker.ask(a_request("r2", command="psql"))
        await stage.shows("0  psql")
        await stage.arm()
        assert "approved" not in stage.text
        assert "tick a credential, or move to Run" in stage.text

    play(broker, scene)


def test_a_label_that_does_not_fit_gives_way_whole(broker: OperatorPlaybook) -> None:
    """A count of characters in its place says nothing to anybody."""
    source = "keyring jackin-exec/" + "K" * 18
    tight = BindingView("GH_TOKEN", source, "env", label="a throw-away token")
    broker.ask(a_request(bindings=(tight,), want=()))

    async def scene(stage: Stage) -> None:
        await stage.shows("[ ] GH_TOKEN", source)
        assert "more}" not in stage.text

    play(broker, scene)


def test_escape_denies_and_the_next_request_follows_unarmed(broker: OperatorPlaybook) -> None:
    broker.ask(a_request("r1"), a_request("r2", command="psql"))

    async def scene(stage: Stage) -> None:
        await stage.arm()
        assert "2 waiting" in stage.text
        await stage.press("escape")
        await stage.shows("0  psql", "○ not ready")
        await stage.press("escape", "space", "enter")
        await stage.shows("0  psql", "0 ticked")

    play(broker, scene)
    assert broker.wait_decision().id == "r1"
    assert broker.is_undecided


def test_typing_within_300_ms_of_the_prompt_leaves_it_waiting(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.shows("asks to run")
        stage.clock.move(0.3)
        await stage.pilot.press("y", "e", "s", "enter", "1", "space", "2", "p")
        await stage.shows("0 ticked")

    play(broker, scene)
    assert broker.is_undecided


def test_a_fresh_enter_does_nothing(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("enter", "enter")
        await stage.shows("● ready", "tick a credential, or move to Run")

    play(broker, scene)
    assert broker.is_undecided


def test_a_paste_ticks_and_runs_nothing(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("down")
        stage.app.post_message(events.Paste(" \r\r"))
        await stage.pilot.pause()
        await stage.press("enter", "v")
        await stage.shows("All of the request")
        await stage.press("escape")
        await stage.shows("0 ticked")

    play(broker, scene)
    assert broker.is_undecided


def test_the_mouse_ticks_and_decides_nothing(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.arm()
        lines = stage.text.split("\n")
        row = next(y for y, line in enumerate(lines) if "PGPASSWORD" in line)
        buttons = next(y for y, line in enumerate(lines) if "Run without" in line)
        await stage.pilot.click(offset=(10, row))
        await stage.shows("[x] PGPASSWORD")
        for word in ("Run with", "Deny"):
            await stage.pilot.click(offset=(stage.text.split("\n")[buttons].index(word), buttons))
            await until(
                lambda word=word: bool(re.search(rf"›\W*{word}", stage.text.split("\n")[buttons])),
                "the cursor is there",
                stage.app,
            )

    play(broker, scene)
    assert broker.is_undecided


def test_a_denial_with_words(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("d", "n", "o", "backspace", "o", "t", "enter")
        await stage.shows("Nothing waits")

    play(broker, scene)
    assert broker.wait_decision().reason == "not"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RequestState.EXPIRED, "expired"),
        (RequestState.CANCELLED, "went away"),
        (RequestState.APPROVED, "approved elsewhere"),
        (RequestState.DENIED, "denied elsewhere"),
    ],
)
@pytest.mark.parametrize("key", ["", "v", "question_mark", "d"])
def test_when_the_request_ends_the_picker_says_so_and_goes_on(
    broker: OperatorPlaybook, state: RequestState, words: str, key: str
) -> None:
    """Also under the reader, the help and the reason's editor."""
    broker.ask(a_request("r1"), a_request("r2", command="psql"))

    async def scene(stage: Stage) -> None:
        await stage.arm()
        if key:
            await stage.press(key)
        broker.end("r1", state)
        await stage.shows("0  psql", "○ not ready", words)
        await stage.press("enter")
        broker.end("r2", state)
        await stage.shows("Nothing waits", words)

    play(broker, scene)
    assert broker.is_undecided


def test_a_request_that_changed_is_armed_anew_and_its_ticks_are_gone(
    broker: OperatorPlaybook,
) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("space")
        broker.ask(a_request(args=("pr", "merge", "7")))
        await stage.shows("merge", "○ not ready", "0 ticked")
        await stage.press("enter")
        await stage.arm()
        await stage.press("enter")
        await stage.shows("merge")

    play(broker, scene)
    assert broker.is_undecided


def test_a_decision_about_something_else_is_not_taken_and_the_new_is_shown(
    broker: OperatorPlaybook,
) -> None:
    """The request changed on the desk, and the news has not come yet."""
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("space")
        broker.swap_silently(a_request(args=("repo", "delete")))
        await stage.press("enter")
        await stage.shows("delete", "○ not ready", "0 ticked")
        await stage.arm()

    play(broker, scene)
    assert broker.decisions.empty()


def test_nothing_can_be_decided_where_it_cannot_be_seen(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.shows("too small")
        await stage.pilot.pause()
        await stage.pilot.pause()
        stage.clock.move(10)
        # The timer that would arm a prompt runs by the real clock: let it.
        await asyncio.sleep(ARM_S * 1.5)
        await stage.press("space", "down", "down", "down", "enter", "escape")
        await stage.pilot.resize_terminal(80, 24)
        await stage.shows("asks to run", "0 ticked", "○ not ready")
        await stage.arm()

    play(broker, scene, size=(50, 12))
    assert broker.is_undecided


def test_the_reader_shows_all_and_decides_nothing(broker: OperatorPlaybook) -> None:
    script = "".join(f"echo {number}\n" for number in range(500))
    broker.ask(a_request(command="bash", args=("-c", script + "x" * 100_000 + "END")))

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("v")
        await stage.shows("All of the request", r"echo 0\n", "more below")
        await stage.press("end")
        await stage.shows("the end")
        await stage.press("home", "pagedown", "down", "space", "escape")
        await stage.shows("asks to run")
        await stage.press("enter")

    play(broker, scene)
    assert broker.is_undecided


def test_a_lost_broker_is_said_and_found_again(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.arm()
        broker.stop()
        await stage.shows("The broker is not there.", "no broker")
        await stage.press("enter", "space", "escape")
        broker.restart()
        broker.ask(a_request("r9", command="psql"))
        await stage.shows("0  psql", "○ not ready")

    play(broker, scene)
    assert broker.is_undecided


def test_a_broker_that_stops_says_why(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("attached")
        broker.push(Goodbye("the broker is stopping"))
        await stage.shows("the broker is stopping")

    play(broker, scene)


def test_a_broker_that_refuses_ends_the_picker_with_its_words(broker: OperatorPlaybook) -> None:
    broker.attach_answer = Failed(0, "bad_request", "protocol 1 is not spoken here", "update it")

    async def scene(stage: Stage) -> None:
        await until(lambda: bool(stage.app.failure), "the app ends", stage.app)
        assert stage.app.failure == "protocol 1 is not spoken here"
        assert stage.app.hint == "update it"

    play(broker, scene)


def test_leaving_decides_nothing(broker: OperatorPlaybook) -> None:
    broker.ask(a_request())

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("q")
        await until(lambda: stage.app.return_code is not None, "the app ends", stage.app)
        assert stage.app.return_code == 0

    play(broker, scene)
    assert broker.is_undecided


def test_a_thousand_waiting_requests_leave_it_responsive(broker: OperatorPlaybook) -> None:
    broker.ask(*(a_request(f"r{number}") for number in range(1000)))

    async def scene(stage: Stage) -> None:
        await stage.shows("1,000 waiting")
        await stage.arm()
        await stage.press("escape")
        await stage.shows("999 waiting")

    play(broker, scene)
    assert broker.wait_decision().id == "r0"


def test_a_crash_says_where_and_never_what_a_variable_held(
    broker: OperatorPlaybook, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Textual's own handler prints the local variables of every frame."""
    held = "held" + secrets.token_hex(12)

    def crash(*_: object) -> list[Content]:
        local = held
        raise ValueError(local)

    monkeypatch.setattr("jackin_picker.screen.idle_sheet", crash)
    app = PickerApp(broker.path, HandClock())

    async def run() -> None:
        async with app.run_test():
            pass

    with pytest.raises(ValueError, match=held):
        asyncio.run(run())
    assert app.failure.startswith("the picker crashed: ValueError at test_picker_app.py:")
    assert app.hint
    assert held not in app.failure + "".join(capfd.readouterr())
