"""The pages besides the prompt, at both sizes: what they show, and that they answer nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jackin_broker.operator_protocol import (
    CheckCredential,
    DenyAll,
    Failed,
    KillRequest,
    ListHistory,
    Output,
    RequestState,
    RevokeAll,
    RevokeGrant,
    Watch,
)
from jackin_picker.app import PickerApp
from jackin_picker.pages.page import IDLE_S
from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook
from support.picker_pilot import HandClock, Stage, let_arm, play, until, until_shown
from support.picker_scenes import fill

SIZES: Final = ((80, 24), (200, 60))


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        fill(running)
        yield running


async def confirm(stage: Stage, key: str) -> None:
    """Answer a question once it is ready."""
    await stage.shows("Sure?")
    await let_arm(stage.pilot, stage.clock)
    await stage.press(key)


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "200x60"])
@pytest.mark.parametrize(
    ("key", "texts"),
    [
        ("1", ("Waiting", "nothing waits")),
        ("2", ("Running", "1:12", "resolving", "GH_TOKEN  by operator", "asked by")),
        ("3", ("History", "exit 2 after 0:03", "by the operator", "expired", "nobody answered")),
        ("4", ("Grants", "14 min left", "3 uses left", "never used", "87 days left", "argv =")),
        ("5", ("Credentials", "vault locked", "the agent has it", "keyring github/me → env")),
        ("6", ("Rules", "deny", "until 2027-06-30", "has ended", "! argv")),
        ("colon", ("Commands", "unlock the vault", "light or dark")),
        ("question_mark", ("Keys", "for how long your answer holds", "Esc")),
    ],
)
def test_every_page_shows_what_it_is_for(
    broker: OperatorPlaybook, size: tuple[int, int], key: str, texts: tuple[str, ...]
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way", "attached")
        await stage.press(key)
        if key == "6":
            await stage.shows("Rules", "deny")
            await stage.press("down")
        await stage.shows(*texts)
        lines = stage.text.split("\n")
        assert len(lines) == size[1]
        await stage.press("escape")
        await stage.shows("Nothing waits for an answer.")

    play(broker, scene, size)


def test_the_pages_are_beside_each_other(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("2", "tab")
        await stage.shows("since the broker started")
        await stage.press("shift+tab", "left")
        await stage.shows("for your answer, oldest first")
        await stage.pilot.click(offset=(65, 0))
        await stage.shows("of the configuration")

    play(broker, scene)


def test_a_page_says_that_a_request_waits_and_gives_way_when_nobody_touches_it(
    broker: OperatorPlaybook,
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("3")
        broker.ask(a_request("new", command="psql"))
        await stage.shows("A request waits for your answer", "1 waiting", "History")
        stage.clock.move(IDLE_S)
        await stage.shows("0  psql", "asks to run", "○ not ready")

    play(broker, scene)
    assert broker.is_undecided


def test_back_from_a_page_a_prompt_is_armed_anew(broker: OperatorPlaybook) -> None:
    """The Esc that leaves a page, pressed twice, denies nothing."""
    broker.ask(a_request("new", command="psql"))

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("colon", *"what ended", "enter")
        await stage.shows("since the broker started")
        await stage.press("escape", "escape", "enter", "space")
        await stage.shows("0  psql", "○ not ready", "0 ticked")

    play(broker, scene)
    assert broker.is_undecided


def test_the_queue_is_filtered_and_the_chosen_one_is_asked_about(
    broker: OperatorPlaybook,
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("1")
        broker.ask(*(a_request(f"r{number}", command=f"tool{number}") for number in range(30)))
        await stage.shows("30", "tool0 pr list", "4:58 left")
        await stage.press("slash", *"tool27")
        await stage.shows("1 of 30", "tool27")
        await stage.press("enter", "enter")
        await stage.shows("0  tool27", "asks to run", "○ not ready")

    play(broker, scene)
    assert broker.is_undecided


def test_everything_from_a_capsule_is_denied_with_words(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("1")
        broker.ask(a_request("r1"), a_request("r2"))
        await stage.shows("2", "gh pr list")
        await stage.press("D", *"stop", "enter")
        call = await asyncio.to_thread(broker.wait_call, DenyAll)
        assert (call.capsule, call.reason) == ("web", "stop")

    play(broker, scene)


def test_output_is_followed_shown_as_escapes_and_let_go(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("2", "enter")
        call = await asyncio.to_thread(broker.wait_call, Watch)
        assert (call.id, call.on) == ("u1", True)
        broker.push(Output("u1", 1, b"first\npar"))
        broker.push(Output("other", 1, b"not mine\n"))
        broker.push(Output("u1", 2, b"\x1b[2Jwarned [/]\r\n"))
        broker.push(Output("u1", 1, b"tial\n" + b"x" * 5000 + b"\n"))
        await stage.shows(
            "│ first", "│ partial", r"err │ \x1b[2Jwarned [/]", "more}", "running 1:1"
        )
        assert "not mine" not in stage.text
        broker.push(Output("u1", 1, b"".join(b"line %d\n" % n for n in range(100))))
        await stage.shows("line 99")
        await stage.press("pageup")
        await stage.shows("line 70", "lines below")
        broker.push(Output("u1", 1, b"later\n"))
        await stage.shows("line 70")
        await stage.press("end")
        await stage.shows("later")
        broker.end("u1", RequestState.DONE, exit_code=3)
        await stage.press("escape")
        call = await asyncio.to_thread(broker.wait_call, Watch)
        assert (call.id, call.on) == ("u1", False)

    play(broker, scene)


def test_a_running_command_is_ended_after_a_question(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("2", "x", "y", "enter", "y")
        await stage.shows("Sure?", "○ not ready", "0  gh")
        await confirm(stage, "enter")
        await stage.shows("Sure?")
        await stage.press("y")
        call = await asyncio.to_thread(broker.wait_call, KillRequest)
        assert call.id == "u1"
        await stage.shows("it is being ended")

    play(broker, scene)


def test_no_leaves_a_command_running(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("2", "x")
        await confirm(stage, "escape")
        await stage.shows("approved and not ended")

    play(broker, scene)
    assert not any(isinstance(call, KillRequest) for call in list(broker.calls.queue))


def test_a_grant_is_revoked_and_then_all_of_them(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("4")
        await stage.shows("14 min left")
        await stage.press("down", "x")
        await confirm(stage, "y")
        call = await asyncio.to_thread(broker.wait_call, RevokeGrant)
        assert call.id == "g2"
        await stage.shows("revoked: it will be asked about again")
        assert "3 uses left" not in stage.text
        await stage.press("X")
        await confirm(stage, "y")
        revoked = await asyncio.to_thread(broker.wait_call, RevokeAll)
        assert revoked.kill
        await stage.shows("there is no grant")

    play(broker, scene)


def test_a_credential_is_checked_and_a_failure_is_said(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("5")
        await stage.shows("GH_TOKEN")
        await stage.press("c")
        await stage.shows("● is there")
        broker.refusals[CheckCredential] = Failed(0, "source_locked", "the vault is locked", "")
        await stage.press("c")
        await stage.shows("not to be had", "the vault is locked")

    play(broker, scene)


def test_what_the_broker_refuses_is_said_on_the_page(broker: OperatorPlaybook) -> None:
    broker.refusals[RevokeGrant] = Failed(0, "failed", "the rule\x1b[2J cannot be taken out", "")

    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("4")
        await stage.shows("14 min left")
        await stage.press("x")
        await confirm(stage, "y")
        await stage.shows(r"the rule\x1b[2J cannot be taken out", "14 min left")

    play(broker, scene)


def test_resolving_says_how_long_it_takes(broker: OperatorPlaybook) -> None:
    """A keyring's own prompt, or a password manager's, waits behind another window."""

    async def scene(stage: Stage) -> None:
        await stage.shows("resolving")
        stage.clock.move(7)
        await stage.shows("getting its credentials, 7 s")
        broker.ask(a_request("new", command="psql"))
        await stage.shows("0  psql", "the one before: getting its credentials")

    play(broker, scene)


def test_the_look_is_changed_by_its_name(broker: OperatorPlaybook) -> None:
    """All that is drawn is drawn again, in the colours that it would have had from the start."""
    pictures: list[str] = []

    async def light() -> None:
        app = PickerApp(broker.path, HandClock(), look="light")
        async with app.run_test(size=(80, 24)):
            await until_shown(app, "Under way", "attached")
            pictures.append(app.export_screenshot())

    async def scene(stage: Stage) -> None:
        await stage.shows("Under way", "attached")
        assert stage.app.theme == "jackin-dark"
        await stage.pilot.press("colon", *"light", "enter")  # no time passes on the screen
        await until(lambda: stage.app.export_screenshot() == pictures[0], "it is light", stage.app)
        await stage.shows("Under way")

    asyncio.run(light())
    play(broker, scene)


@pytest.mark.parametrize("size", [(50, 12), (40, 12), (20, 5), (3, 1)])
def test_no_size_crashes_a_page(broker: OperatorPlaybook, size: tuple[int, int]) -> None:
    async def scene(stage: Stage) -> None:
        await until(lambda: stage.app.has_broker, "it is attached", stage.app)
        for key in ("1", "2", "enter", "x", "escape", "escape", "3", "4", "5", "6", "colon"):
            await stage.press(key)
            await stage.pilot.pause()
        await stage.press("escape", "question_mark", "escape", "0")
        broker.ask(a_request("new"))
        await stage.pilot.pause()
        await stage.pilot.resize_terminal(80, 24)
        await stage.shows("asks to run", "○ not ready")

    play(broker, scene, size)
    assert broker.is_undecided


def test_the_mouse_points_and_scrolls_and_does_nothing_else(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("4")
        await stage.shows("14 min left")
        lines = stage.text.split("\n")
        y = next(index for index, line in enumerate(lines) if "3 uses left" in line)
        await stage.pilot.click(offset=(20, y))
        await until(lambda: stage.text.split("\n")[y].startswith("› "), "it moves", stage.app)
        await stage.pilot.click(offset=(5, 22))
        await stage.shows("14 min left", "3 uses left")

    play(broker, scene)
    assert not any(isinstance(call, RevokeGrant) for call in list(broker.calls.queue))


def test_a_flood_of_changes_asks_the_broker_once_a_second(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Under way")
        await stage.press("3")
        await stage.shows("its caller went away")
        views = [a_request(f"r{number}") for number in range(200)]
        await asyncio.to_thread(broker.ask, *views)
        await stage.shows("200 waiting")

    play(broker, scene)
    asked = [call for call in list(broker.calls.queue) if isinstance(call, ListHistory)]
    assert len(asked) < 10
