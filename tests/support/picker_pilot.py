"""The picker without a terminal: its real app against a playbook's broker, keys by the pilot.

It reads the lines that the app draws. The clock of the prompts is the test's own, so that nothing
arms or runs out by itself; waits look again until a claim holds, and have a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from textual import events
from textual.app import App
from textual.pilot import Pilot

from jackin_picker.app import PickerApp
from jackin_picker.board import Board
from jackin_picker.confirm import ConfirmScreen
from jackin_picker.guard import ARM_S
from jackin_picker.screen import DeskScreen
from jackin_picker.stage import Clock

from .operator_playbook import OperatorPlaybook

WAIT_S: Final = 20.0
# A person's pace: no two keys of one paste are this far apart.
KEY_GAP_S: Final = 0.1


class HandClock(Clock):
    """Stands still until it is moved; a key arrives when it is pressed."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def wall_s(self) -> float:
        return 1_800_000_000.0 + self._now_s

    def arrival_s(self, event: events.Event) -> float:
        return self._now_s

    def move(self, seconds: float) -> None:
        self._now_s += seconds


def screen_text(app: App[None]) -> str:
    """The lines that are drawn now, trailing blanks cut."""
    lines = app.screen.query_one(Board).render().plain.split("\n")
    return "\n".join(line.rstrip() for line in lines)


async def until(claim: Callable[[], bool], what: str, app: App[None]) -> None:
    """Return when the claim holds. Raises: AssertionError that shows the screen."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not claim():  # noqa: ASYNC110 - an app tells nobody what it has drawn
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never: {what}; the screen:\n{screen_text(app)}") from None


async def until_shown(app: App[None], *texts: str) -> None:
    """Return when all of these are on the screen."""
    await until(lambda: all(text in screen_text(app) for text in texts), f"{texts} shown", app)


async def arm(pilot: Pilot[None], clock: HandClock) -> None:
    """Let the prompt come to be ready, the clock moved by exactly the silence that it takes."""
    await until_shown(pilot.app, "asks to run")
    await let_arm(pilot, clock)


async def let_arm(pilot: Pilot[None], clock: HandClock) -> None:
    """Wait until what is guarded counts as drawn, then let exactly the silence pass."""

    def counts() -> bool:
        screen = pilot.app.screen
        return isinstance(screen, DeskScreen | ConfirmScreen) and screen.arming.is_counting

    await until(counts, "it counts as drawn", pilot.app)
    clock.move(ARM_S)
    await until_shown(pilot.app, "● ready")


async def press(pilot: Pilot[None], clock: HandClock, *keys: str) -> None:
    """Press keys at a person's pace."""
    for key in keys:
        clock.move(KEY_GAP_S)
        await pilot.press(key)


@asynccontextmanager
async def piloted(
    playbook: OperatorPlaybook, clock: HandClock, size: tuple[int, int] = (80, 24)
) -> AsyncGenerator[tuple[PickerApp, Pilot[None]]]:
    """The app, attached."""
    app = PickerApp(playbook.path, clock)
    async with app.run_test(size=size) as pilot:
        yield app, pilot


class Stage:
    """A broker, a picker attached to it, a clock, and hands."""

    def __init__(
        self, broker: OperatorPlaybook, app: PickerApp, pilot: Pilot[None], clock: HandClock
    ) -> None:
        self.broker = broker
        self.app = app
        self.pilot = pilot
        self.clock = clock

    async def arm(self) -> None:
        await arm(self.pilot, self.clock)

    async def press(self, *keys: str) -> None:
        await press(self.pilot, self.clock, *keys)

    async def shows(self, *texts: str) -> None:
        await until_shown(self.app, *texts)

    @property
    def text(self) -> str:
        return screen_text(self.app)


Scene = Callable[[Stage], Awaitable[None]]


def play(broker: OperatorPlaybook, scene: Scene, size: tuple[int, int] = (80, 24)) -> None:
    """Run the scene on a fresh picker."""

    async def run() -> None:
        clock = HandClock()
        async with piloted(broker, clock, size) as (app, pilot):
            await scene(Stage(broker, app, pilot, clock))

    asyncio.run(run())
