"""What the picker draws, and how little of it: many news are one painting, one line is one line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.content import Content

from jackin_picker.board import Board
from jackin_picker.pages.waiting import WaitingPage
from support.operator_playbook import OperatorPlaybook, a_request, operator_playbook
from support.picker_pilot import Stage, play

CROWD = 1000


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        yield running


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each painting of the queue's page."""
    painted: list[int] = []
    paint = WaitingPage.paint

    def count(page: WaitingPage, width: int, height: int) -> list[Content]:
        painted.append(len(painted))
        return paint(page, width, height)

    monkeypatch.setattr(WaitingPage, "paint", count)
    return painted


def test_a_thousand_news_are_a_few_paintings_and_a_key_between_them_is_drawn(
    broker: OperatorPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted = counted(monkeypatch)
    broker.ask(*(a_request(f"r{number}", command=f"tool{number}") for number in range(30)))

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("colon", *"what waits for", "enter")
        await stage.shows("oldest first", "› waiting", "tool0 ")
        painted.clear()
        crowd = [a_request(f"n{number}") for number in range(CROWD)]
        asking = asyncio.create_task(asyncio.to_thread(broker.ask, *crowd))
        await stage.press("down")
        await stage.shows("oldest first                                 1,030")
        await asking
        assert "› waiting" in next(x for x in stage.text.split("\n") if "tool1 " in x)
        assert len(painted) < CROWD / 5

    play(broker, scene)


def test_a_key_draws_the_lines_that_it_changed_and_no_others(broker: OperatorPlaybook) -> None:
    broker.ask(*(a_request(f"r{number}", command=f"tool{number}") for number in range(30)))

    async def scene(stage: Stage) -> None:
        await stage.arm()
        await stage.press("colon", *"what waits for", "enter")
        await stage.shows("oldest first", "› waiting", "tool0 ")
        board = stage.app.screen.query_one(Board)
        before = [board.render_line(y) for y in range(24)]
        await stage.press("down")
        await stage.shows("› waiting    web           tool1 ")
        same = [y for y, strip in enumerate(before) if board.render_line(y) is strip]
        assert len(same) >= 24 - 4

    play(broker, scene)


def test_what_was_out_of_sight_is_drawn_as_it_is_now(broker: OperatorPlaybook) -> None:
    async def scene(stage: Stage) -> None:
        await stage.shows("Nothing waits")
        await stage.press("question_mark")
        await stage.shows("for how long your answer holds")
        broker.notices = ()
        broker.ask(a_request("later", command="psql"))
        await stage.shows("0  psql", "asks to run")

    play(broker, scene)
