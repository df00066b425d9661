"""The guard's way to a screen: when something counts as drawn, and when it is looked at again.

It refuses to know what is guarded and which keys there are. Invariants: what a guard guards counts
as drawn only after its lines were painted and while nothing lies over them; it is armed only by
the painting that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from textual.timer import Timer

from .board import BoardScreen
from .guard import Guard
from .stage import Stage

# Textual's timer of no time at all dies of a division, and nothing would ever be armed: a key that
# was handled long after it was pressed leaves none.
LOOK_MIN_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Guarded:
    """What is on the screen now. `is_whole`: nothing of it that has to be seen is left out."""

    guard: Guard
    subject: str
    is_whole: bool


class Arming:
    """Arms whatever `guarded` names, and paints the screen again when it does."""

    def __init__(
        self, screen: BoardScreen, stage: Stage, guarded: Callable[[], Guarded | None]
    ) -> None:
        self._screen = screen
        self._stage = stage
        self._guarded = guarded
        self._timer: Timer | None = None

    @property
    def is_counting(self) -> bool:
        """Whether what is guarded counts as drawn, and is not armed yet."""
        guarded = self._guarded()
        return guarded is not None and guarded.guard.is_counting

    def draw(self) -> None:
        """Paint, and begin to count when it is painted."""
        self._screen.repaint()
        self._screen.board.call_after_refresh(self._was_drawn)

    def await_silence(self) -> None:
        """Look again when the silence may be over: after drawing, and after every key."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        guarded = self._guarded()
        if guarded is not None and not guarded.guard.is_armed:
            left_s = guarded.guard.silence_left_s(self._stage.clock.now_s())
            left_s = max(left_s, LOOK_MIN_S)
            self._timer = self._screen.set_timer(left_s, self._look)

    def _was_drawn(self) -> None:
        guarded = self._guarded()
        if guarded is None or not self._stage.is_on_top(self._screen):
            return
        if guarded.is_whole:
            guarded.guard.drawn(guarded.subject, self._stage.clock.now_s())
        else:
            guarded.guard.hidden()
        self.await_silence()

    def _look(self) -> None:
        self._timer = None
        guarded = self._guarded()
        if guarded is None or not self._stage.is_on_top(self._screen):
            return
        if guarded.guard.poll(self._stage.clock.now_s()):
            self._screen.repaint()
        elif guarded.is_whole:
            self.await_silence()
