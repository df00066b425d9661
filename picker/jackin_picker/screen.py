"""The desk's screen: the prompt while a request waits, else what goes on.

It refuses to know frames and sockets. Invariants: a prompt counts as drawn only after its lines
were painted, and is armed only by the painting that says so; out of sight it is unarmed; when the
request under the prompt ends or changes, whatever belonged to it is closed and the next one starts
unarmed.
"""

from __future__ import annotations

from typing import Final

import msgspec
from textual import events
from textual.content import Content

from jackin_broker.operator_protocol import (
    Decide,
    DenyAll,
    RequestState,
    RequestView,
    view_digest,
)

from .arming import Arming, Guarded
from .board import BoardScreen
from .choosing import TermsScreen
from .ends import end_words
from .glimpse import resolving_words
from .idle import Idle, idle_sheet
from .prompt import Key, OpenPrompt, Outcome, Wish
from .reader import read_request
from .sheet import Sheet, prompt_sheet
from .stage import Stage
from .tabs import page_of
from .text import NOTHING, literal, own, row

# The time left is shown in seconds.
CLOCK_S: Final = 1.0


class DeskScreen(BoardScreen):
    """What waits, one at a time."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self._prompt: OpenPrompt | None = None
        self._sheet = Sheet(())
        self.arming = Arming(self, stage, self._guarded)
        self.note: Content = NOTHING

    def on_mount(self) -> None:
        self.set_interval(CLOCK_S, self.repaint)

    # --- what the broker says ---------------------------------------------------------

    def changed(self, view: RequestView) -> None:
        """A request is new, moved on or ended; the inbox knows it already."""
        if self._prompt is None and view.state is RequestState.WAITING:
            # Said of an earlier request while nothing waited: on this one it would mislead.
            self.note = NOTHING
        self.follow()

    def lost(self) -> None:
        """The connection is gone, and with it everything that was displayed."""
        self.note = NOTHING
        self._close()

    def decided(self, decision: Decide, refusal: str, trouble: str = "") -> None:
        """The broker took the decision, or says why not; `trouble`: what was not stored."""
        view = self._stage.inbox.find(decision.id)
        if refusal:
            self.note = row(own("not taken: "), literal(refusal, limit=60))
        elif view is not None and view.state is RequestState.WAITING:
            state = RequestState.APPROVED if decision.approve else RequestState.DENIED
            moved = msgspec.structs.replace(view, state=state)
            self._stage.inbox.take(moved, self._stage.clock.now_s())
            self.changed(moved)
        elif self._prompt is not None and self._prompt.view.id == decision.id:
            self._prompt = None
            self.follow()
        if refusal:
            self.again()
        if trouble:
            self.note = row(own("not stored: "), literal(trouble, limit=60))

    def again(self) -> None:
        """What was decided was not taken: ask anew, unarmed."""
        self._prompt = None
        self.follow()

    # --- which prompt -----------------------------------------------------------------

    def follow(self) -> None:
        """Go on asking, ask about the next one, or rest."""
        inbox, shown = self._stage.inbox, self._prompt
        if shown is not None:
            latest = inbox.find(shown.view.id)
            if latest is not None and latest.state is RequestState.WAITING:
                is_same = latest is shown.view or view_digest(latest) == shown.digest
                if is_same and inbox.current is latest:
                    self.repaint_soon()  # how many wait
                    return
                self.note = NOTHING if is_same else own("the request changed: look again")
            else:
                self.note = _farewell(latest, is_ours=shown.is_decided)
            self._close()
        current = inbox.current
        if current is not None:
            self._open(current)
        else:
            self.repaint_soon()  # what goes on; `_close` asked for what is urgent

    def _open(self, view: RequestView) -> None:
        self._stage.uncover(self)
        self._prompt = OpenPrompt(view, self.note)
        self.note = NOTHING
        self.arming.draw()

    def _close(self) -> None:
        self._stage.uncover(self)
        self._prompt = None
        self.repaint()

    def _guarded(self) -> Guarded | None:
        prompt = self._prompt
        if prompt is None:
            return None
        return Guarded(prompt.guard, prompt.digest, self._sheet.can_decide)

    # --- what the operator does -------------------------------------------------------

    def pressed(self, event: events.Key) -> None:
        prompt = self._prompt
        if prompt is None:
            self._idle_key(event)
            return
        key = Key(event.key, event.character, self._stage.clock.arrival_s(event))
        self._obey(prompt, prompt.press(key))
        self.arming.await_silence()

    def _obey(self, prompt: OpenPrompt, outcome: Outcome) -> None:
        inbox = self._stage.inbox
        match outcome:
            case Decide():
                self._stage.decide(outcome)
            case DenyAll(_, capsule, reason):
                self._stage.deny_all(capsule, reason)
            case Wish.LEAVE:
                self._stage.leave()
            case Wish.HELP:
                self._stage.help()
            case Wish.PALETTE:
                self._stage.open_palette()
            case Wish.READ:
                self._stage.put_over(read_request(prompt.view))
            case Wish.TERMS:
                self.choose_term()
            case Wish.NEXT:
                after = inbox.after(prompt.view.id)
                if after is not None:
                    inbox.choose(after.id)
                    self.follow()
            case Wish.NOTHING:
                pass

    def choose_term(self) -> None:
        """For how long the answer to what is shown holds."""
        prompt = self._prompt
        if prompt is None:
            return
        offers, ticked = prompt.view.offers, prompt.choices.ticked
        self._stage.put_over(TermsScreen(offers, ticked, prompt.offer, prompt.choose))

    def read_all(self) -> None:
        """All of the request that is shown."""
        if self._prompt is not None:
            self._stage.put_over(read_request(self._prompt.view))

    def sweep(self) -> None:
        """Ask for the words of a denial of everything from this capsule."""
        if self._prompt is not None:
            self._prompt.sweep()
            self.repaint()

    def next(self) -> None:
        """The request that waits behind this one."""
        if self._prompt is not None:
            self._obey(self._prompt, Wish.NEXT)

    def _idle_key(self, event: events.Key) -> None:
        page = page_of(event.key)
        if page is not None:
            self._stage.go(page)
        elif event.character == "?":
            self._stage.help()
        elif event.character == ":" or event.key == "ctrl+p":
            self._stage.open_palette()
        elif event.key in {"q", "ctrl+c"}:
            self._stage.leave()

    def pasted(self, event: events.Paste) -> None:
        if self._prompt is not None:
            self._prompt.paste(event.text, self._stage.clock.arrival_s(event))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if self._prompt is None:
            return
        for spot in self._sheet.spots:
            if event.screen_y == spot.y and event.screen_x in spot.x:
                self._prompt.click(spot.place, spot.row)
        self.repaint()

    def on_screen_suspend(self) -> None:
        """Out of sight: nothing can be decided, and what was deliberate before is over."""
        if self._prompt is not None:
            self._prompt.guard.hidden()

    def on_screen_resume(self) -> None:
        self.arming.draw()

    def on_resize(self) -> None:
        self.arming.draw()

    # --- drawing ----------------------------------------------------------------------

    def paint(self, width: int, height: int) -> list[Content]:
        prompt, inbox, now_s = self._prompt, self._stage.inbox, self._stage.clock.now_s()
        if prompt is None:
            idle = Idle(
                under_way=inbox.under_way,
                recent=inbox.recent,
                notices=self._stage.notices,
                note=self.note,
                trouble=self._stage.trouble,
                has_broker=self._stage.has_broker,
                lasted_s=lambda view: inbox.lasted_s(view, now_s),
            )
            return idle_sheet(idle, width, height)
        waiting = inbox.waiting
        face = prompt.face(
            waiting=len(waiting),
            expires_in_s=inbox.left_s(prompt.view, now_s),
            of_capsule=sum(view.capsule == prompt.view.capsule for view in waiting),
            behind=self._behind(now_s),
        )
        self._sheet = prompt_sheet(face, width, height)
        return list(self._sheet.lines)

    def _behind(self, now_s: float) -> Content:
        """What an approved request still waits for, while the next one is asked about."""
        inbox = self._stage.inbox
        words = (resolving_words(view, inbox.lasted_s(view, now_s)) for view in inbox.under_way)
        first = next((each for each in words if each), NOTHING)
        return row(own("the one before: "), first) if first else NOTHING


def _farewell(view: RequestView | None, *, is_ours: bool) -> Content:
    """What became of the request that was displayed."""
    if view is None:
        return own("the request before this is gone")
    if view.state is RequestState.EXPIRED:
        return own("the request before this expired: nothing was run")
    if view.state is RequestState.CANCELLED:
        return own("the caller of the request before this went away")
    is_denied = view.state is RequestState.DENIED
    if is_denied and view.outcome not in ("", "operator_denied"):  # nobody's answer
        return row(own("the one before was not run, "), end_words(view))
    if is_ours:
        return own("you denied the one before") if is_denied else own("you approved the one before")
    if is_denied:
        return own("the request before this was denied elsewhere")
    return own("the request before this was approved elsewhere")
