"""A question before something is ended: yes takes a key that was pressed after reading it.

It refuses to know what is ended. Invariants: Enter, a paste and the mouse do nothing; `y` does
what was asked only when the question has been on the screen, without a key, for as long as a
prompt takes to be ready.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from textual import events
from textual.content import Content

from jackin_broker.errors import JackinError

from .arming import Arming, Guarded
from .board import BoardScreen
from .guard import Guard, Press
from .stage import Stage
from .text import BAR, CAREFUL, GOOD, NOTHING, QUIET, STRONG, key_line, literal, own, row, spread

Lines = Callable[[int, int], Sequence[Content]]
_FRAME_LINES = 5


class ConfirmScreen(BoardScreen):
    """`act` does what was asked and gives the words for it."""

    belongs_to_prompt = False

    def __init__(self, stage: Stage, lines: Lines, act: Callable[[], Awaitable[Content]]) -> None:
        super().__init__()
        self._stage = stage
        self._lines = lines
        self._act = act
        self._guard = Guard()
        self.arming = Arming(self, stage, lambda: Guarded(self._guard, "question", True))

    def on_mount(self) -> None:
        self.arming.draw()

    def on_screen_suspend(self) -> None:
        self._guard.hidden()

    def on_screen_resume(self) -> None:
        self.arming.draw()

    def pressed(self, event: events.Key) -> None:
        press = self._guard.press(self._stage.clock.arrival_s(event))
        if event.key in {"escape", "n", "q", "ctrl+c"}:
            self.dismiss()
        elif press is Press.ACTS and event.key == "y":
            self.dismiss()
            self._stage.background(self._do())
        else:
            self.arming.await_silence()

    async def _do(self) -> None:
        try:
            self._stage.say(await self._act())
        except JackinError as error:
            self._stage.say(literal(str(error), CAREFUL, limit=200))

    def paint(self, width: int, height: int) -> list[Content]:
        body = [row(own("  "), line) for line in self._lines(width - 4, height - _FRAME_LINES)]
        body = body[: height - _FRAME_LINES]
        body += [NOTHING] * (height - _FRAME_LINES - len(body))
        state = row(
            own("  ○ not ready  ", QUIET),
            own("y does nothing for a moment, Esc leaves all as it is", QUIET),
        )
        if self._guard.is_armed:
            state = row(own("  ● ready  ", GOOD), own("y does it, Esc leaves all as it is"))
        keys = [(own("y"), own("yes, end it")), (own("Esc"), own("no"))]
        bar = spread(own("  Sure?", STRONG), NOTHING, width, BAR)
        return [bar, NOTHING, *body, NOTHING, state, key_line(keys, is_live=self._guard.is_armed)]
