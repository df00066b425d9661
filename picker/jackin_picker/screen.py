"""The one screen of the picker: the prompt while a request waits, else what goes on.

It refuses to know frames and sockets. Invariants: a prompt counts as drawn only after its lines
were painted, and is armed only by the painting that says so; when the request under the prompt
ends or changes, whatever lay over it is closed and the next one starts unarmed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

import msgspec
from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer

from jackin_broker.operator_protocol import (
    Attached,
    Decide,
    RequestState,
    RequestView,
    view_digest,
)

from .board import Board
from .guide import GuideScreen
from .idle import Idle, idle_sheet
from .inbox import Inbox
from .prompt import Key, OpenPrompt, Wish
from .reader import ReaderScreen
from .sheet import Sheet, prompt_sheet
from .text import NOTHING, literal, own, row

# The time left is shown in seconds.
CLOCK_S = 1.0


class Clock:
    """Seconds of the clock with which Textual stamps what arrives."""

    def now_s(self) -> float:
        return time.monotonic()

    def arrival_s(self, event: events.Event) -> float:
        """When it was read from the terminal, which may be long before it is handled."""
        return event.time


class Stage(Protocol):
    """What the screen needs of the program around it."""

    def decide(self, decision: Decide) -> None:
        """Take it to the broker; the outcome comes back as `decided`."""

    def put_over(self, screen: Screen[None]) -> None:
        """Show a screen over this one."""

    def uncover(self, screen: Screen[None]) -> None:
        """Close whatever lies over it."""

    def is_on_top(self, screen: Screen[None]) -> bool:
        """Whether nothing lies over it."""
        ...

    def leave(self) -> None:
        """End the picker; nothing else ends."""


class DeskScreen(Screen[None], inherit_bindings=False):
    """What waits, one at a time."""

    def __init__(self, stage: Stage, clock: Clock) -> None:
        super().__init__()
        self._stage = stage
        self._clock = clock
        self._inbox = Inbox()
        self._deadlines: dict[str, float] = {}
        self._prompt: OpenPrompt | None = None
        self._sheet = Sheet(())
        self._board = Board(self._paint)
        self._arming: Timer | None = None
        self._notices: tuple[str, ...] = ()
        self._note = NOTHING
        self._trouble = ""
        self._is_attached = False

    def compose(self) -> Iterator[Board]:
        yield self._board

    def on_mount(self) -> None:
        self.set_interval(CLOCK_S, self._board.refresh)

    # --- what the broker says ---------------------------------------------------------

    def attached(self, reply: Attached) -> None:
        """The desk as it is now."""
        self._is_attached, self._trouble = True, ""
        self._notices = reply.notices
        self.replaced(reply.requests)
        self._follow()

    def changed(self, view: RequestView) -> None:
        """A request is new, moved on or ended."""
        if self._prompt is None and view.state is RequestState.WAITING:
            # Said of an earlier request while nothing waited: on this one it would mislead.
            self._note = NOTHING
        self._inbox.take(view)
        self._heard(view)
        self._follow()

    def lost(self, reason: str) -> None:
        """The connection is gone, and with it everything that was displayed."""
        self._is_attached, self._trouble = False, reason
        self._inbox.replace(())
        self._deadlines.clear()
        self._note = NOTHING
        self._close()

    def decided(self, decision: Decide, refusal: str) -> None:
        """The broker took the decision, or says why not."""
        view = self._inbox.find(decision.id)
        if refusal:
            self._note = row(own("not taken: "), literal(refusal, limit=60))
        elif view is not None and view.state is RequestState.WAITING:
            state = RequestState.APPROVED if decision.approve else RequestState.DENIED
            self.changed(msgspec.structs.replace(view, state=state))
            return
        if self._prompt is not None and self._prompt.view.id == decision.id:
            self._prompt = None
        self._follow()

    def replaced(self, requests: tuple[RequestView, ...]) -> None:
        """The desk was read again."""
        self._inbox.replace(requests)
        for view in requests:
            self._heard(view)

    # --- which prompt -----------------------------------------------------------------

    def _heard(self, view: RequestView) -> None:
        if view.state is RequestState.WAITING:
            self._deadlines.setdefault(view.id, self._clock.now_s() + view.expires_in_s)
        else:
            self._deadlines.pop(view.id, None)

    def _follow(self) -> None:
        """Go on asking, ask about the next one, or rest."""
        shown = self._prompt
        if shown is not None:
            latest = self._inbox.find(shown.view.id)
            if latest is not None and latest.state is RequestState.WAITING:
                if latest is shown.view or view_digest(latest) == shown.digest:
                    self._board.refresh()
                    return
                self._note = own("the request changed: look again")
            else:
                self._note = _farewell(latest, is_ours=shown.is_decided)
            self._close()
        current = self._inbox.current
        if current is not None:
            self._open(current)
        self._board.refresh()

    def _open(self, view: RequestView) -> None:
        self._stage.uncover(self)
        self._prompt = OpenPrompt(view, self._note)
        self._note = NOTHING
        self._board.refresh()
        self._board.call_after_refresh(self._was_drawn)

    def _close(self) -> None:
        self._stage.uncover(self)
        self._prompt = None
        self._board.refresh()

    # --- arming -----------------------------------------------------------------------

    def _was_drawn(self) -> None:
        """The prompt's lines are on the screen."""
        prompt = self._prompt
        if prompt is None or not self._stage.is_on_top(self):
            return
        if self._sheet.can_decide:
            prompt.guard.drawn(prompt.digest, self._clock.now_s())
        else:
            prompt.guard.hidden()
        self._await_silence()

    def _await_silence(self) -> None:
        if self._arming is not None:
            self._arming.stop()
            self._arming = None
        prompt = self._prompt
        if prompt is not None and not prompt.guard.is_armed:
            left_s = prompt.guard.silence_left_s(self._clock.now_s())
            self._arming = self.set_timer(left_s, self._arm)

    def _arm(self) -> None:
        self._arming = None
        prompt = self._prompt
        if prompt is None or not self._stage.is_on_top(self):
            return
        if prompt.guard.poll(self._clock.now_s()):
            self._board.refresh()
        elif self._sheet.can_decide:
            self._await_silence()

    # --- what the operator does -------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        event.stop()
        prompt = self._prompt
        if prompt is None:
            self._idle_key(event)
            return
        outcome = prompt.press(Key(event.key, event.character, self._clock.arrival_s(event)))
        if isinstance(outcome, Decide):
            self._stage.decide(outcome)
        elif outcome is Wish.LEAVE:
            self._stage.leave()
        elif outcome is Wish.HELP:
            self._stage.put_over(GuideScreen())
        elif outcome is Wish.READ:
            self._stage.put_over(ReaderScreen(prompt.view))
        self._await_silence()
        self._board.refresh()

    def _idle_key(self, event: events.Key) -> None:
        if event.character == "?":
            self._stage.put_over(GuideScreen())
        elif event.key in {"q", "ctrl+c"}:
            self._stage.leave()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        if self._prompt is not None:
            self._prompt.paste(event.text, self._clock.arrival_s(event))
            self._board.refresh()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if self._prompt is None:
            return
        for spot in self._sheet.spots:
            if event.screen_y == spot.y and event.screen_x in spot.x:
                self._prompt.click(spot.place, spot.row)
        self._board.refresh()

    def on_screen_resume(self) -> None:
        """Back from help or the reader: what was deliberate before is over."""
        if self._prompt is not None:
            self._prompt.guard.stray()
            self._board.call_after_refresh(self._was_drawn)

    def on_resize(self) -> None:
        if self._prompt is not None:
            self._board.call_after_refresh(self._was_drawn)

    # --- drawing ----------------------------------------------------------------------

    def _paint(self, width: int, height: int) -> list[Content]:
        prompt = self._prompt
        if prompt is None:
            idle = Idle(
                under_way=self._inbox.under_way,
                recent=self._inbox.recent,
                notices=self._notices,
                note=self._note,
                trouble=self._trouble,
                is_attached=self._is_attached,
            )
            return idle_sheet(idle, width, height)
        left_s = self._deadlines.get(prompt.view.id, 0) - self._clock.now_s()
        face = prompt.face(waiting=len(self._inbox.waiting), expires_in_s=left_s)
        self._sheet = prompt_sheet(face, width, height)
        return list(self._sheet.lines)


def _farewell(view: RequestView | None, *, is_ours: bool) -> Content:
    """What became of the request that was displayed."""
    if view is None:
        return own("the request before this is gone")
    if view.state is RequestState.EXPIRED:
        return own("the request before this expired: nothing was run")
    if view.state is RequestState.CANCELLED:
        return own("the caller of the request before this went away")
    is_denied = view.state is RequestState.DENIED
    if is_ours:
        return own("you denied the one before") if is_denied else own("you approved the one before")
    if is_denied:
        return own("the request before this was denied elsewhere")
    return own("the request before this was approved elsewhere")
