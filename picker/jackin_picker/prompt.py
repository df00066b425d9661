"""One prompt and its keys: what is displayed, what was chosen, and whether a key decides.

It refuses to know widgets, the connection and the clock; times are passed in. Invariants: every
key passes the guard first; a decision names the digest of what was displayed; editing keys, a
paste and the mouse never make one; for how long a yes holds is chosen anew for every prompt, and
again when the ticks change that it was chosen with.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from textual.content import Content

from jackin_broker.operator_protocol import (
    ONCE,
    Decide,
    DenyAll,
    GrantOffer,
    RequestView,
    view_digest,
)

from .choices import Choices, Place
from .command import legibility_of
from .editor import LineEditor
from .guard import Guard, Press
from .sheet import Prompt
from .text import NOTHING, own


class Wish(Enum):
    """What the screen is to do after a key, besides drawing."""

    NOTHING = "nothing"
    READ = "read"
    HELP = "help"
    TERMS = "terms"
    NEXT = "next"
    PALETTE = "palette"
    LEAVE = "leave"


Outcome = Wish | Decide | DenyAll
_WISHES = {
    "v": Wish.READ,
    "g": Wish.TERMS,
    "n": Wish.NEXT,
    "colon": Wish.PALETTE,
    "ctrl+p": Wish.PALETTE,
    "q": Wish.LEAVE,
    "ctrl+c": Wish.LEAVE,
}


@dataclass(frozen=True, slots=True)
class Key:
    """A key that arrived at `at_s`."""

    name: str
    character: str | None
    at_s: float


class OpenPrompt:
    """The request that is asked about."""

    def __init__(self, view: RequestView, note: Content = NOTHING) -> None:
        self.view = view
        self.digest = view_digest(view)
        self.note = note
        self.guard = Guard()
        self.is_decided = False
        self.offer: GrantOffer | None = None
        self._legibility = legibility_of(view)
        self.choices = Choices(view.bindings, starts_on_command=not self._legibility.is_clear)
        self._filtering: LineEditor | None = None
        self._explaining: LineEditor | None = None
        self._is_sweep = False

    def face(
        self, *, waiting: int, expires_in_s: float, of_capsule: int = 1, behind: Content = NOTHING
    ) -> Prompt:
        """What the sheet draws.

        `of_capsule`: how many wait of this one's capsule; `behind`: what an earlier one is at.
        """
        return Prompt(
            view=self.view,
            choices=self.choices,
            waiting=waiting,
            expires_in_s=expires_in_s,
            legibility=self._legibility,
            is_armed=self.guard.is_armed,
            may_run=self.guard.may_run,
            note=self.note or behind,
            filtering=self._filtering,
            explaining=self._explaining,
            sweeping=of_capsule if self._is_sweep else 0,
            offer=self.offer,
        )

    def press(self, key: Key) -> Outcome:
        """What the key leads to: a decision, or something for the screen."""
        press = self.guard.press(key.at_s)
        editor = self._filtering or self._explaining
        if key.character == "?" and editor is None:
            return Wish.HELP
        if press is Press.IGNORED or self.is_decided:
            return Wish.NOTHING
        self.note = NOTHING
        decides = press is Press.ACTS
        if self._explaining is not None:
            return self._explain(key, self._explaining, decides=decides)
        if self._filtering is not None:
            self._filter(key, self._filtering)
            return Wish.NOTHING
        return self._act(key, decides=decides)

    def paste(self, text: str, at_s: float) -> None:
        """Pasted text is text for an editor, and never a key."""
        press = self.guard.press(at_s)
        self.guard.stray()
        if press is Press.IGNORED:
            return
        if self._explaining is not None:
            self._explaining.insert(text)
        elif self._filtering is not None:
            self._filtering.insert(text)
            self.choices.narrow(self._filtering.text)

    def click(self, place: Place, row: int) -> None:
        """Moves the cursor, and ticks a row; what follows still takes a key."""
        if not self.guard.is_armed or self.is_decided or self._explaining is not None:
            return
        self.guard.stray()
        self.choices.go(place, row)
        if self.choices.toggle():
            self._ticks_changed()

    def choose(self, offer: GrantOffer | None) -> None:
        """For how long the answer holds; it is not an answer."""
        self.offer = offer
        self.guard.stray()

    def sweep(self) -> None:
        """Ask for the words of a denial of all that waits from this capsule."""
        self.guard.stray()
        self._explaining, self._is_sweep = LineEditor(), True

    def _act(self, key: Key, *, decides: bool) -> Outcome:
        if key.name in _WISHES:
            self.guard.stray()
            return _WISHES[key.name]
        match key.name:
            case "space":
                self._tick()
            case "up" | "shift+tab" | "left":
                self._move(-1)
            case "down" | "tab" | "right":
                self._move(1)
            case "enter" | "escape" if not decides:
                self.note = own("keys that come together decide nothing: press it again")
            case "enter":
                return self._enter()
            case "escape":
                return self._decision(approve=False)
            case "slash" if self.choices.total:
                self.guard.stray()
                self._filtering = LineEditor()
                self._filtering.insert(self.choices.filter)
            case "d":
                self.guard.stray()
                self._explaining, self._is_sweep = LineEditor(), False
            case "D":
                self.sweep()
            case _:
                self.guard.stray()
        return Wish.NOTHING

    def _tick(self) -> None:
        if not self.choices.toggle():
            self.guard.stray()
            return
        self._ticks_changed()
        if self.choices.ticked:
            self.guard.deliberate()
        else:
            self.guard.stray()

    def _ticks_changed(self) -> None:
        if self.offer is not None and self.offer.approve:
            self.offer = None
            self.note = own("the ticks changed, so a yes holds once: g chooses again")

    def _move(self, step: int) -> None:
        self.choices.move(step)
        if self.choices.place is Place.RUN:
            self.guard.deliberate()
        elif not self.choices.ticked:
            self.guard.stray()

    def _enter(self) -> Outcome:
        if self.choices.place is Place.DENY:
            return self._decision(approve=False)
        if self.guard.may_run:
            return self._decision(approve=True)
        return Wish.NOTHING

    def _explain(self, key: Key, editor: LineEditor, *, decides: bool) -> Outcome:
        if key.name == "escape":
            self._explaining = None
        elif key.name == "enter":
            if decides and self._is_sweep:
                self.is_decided = True
                return DenyAll(seq=0, capsule=self.view.capsule, reason=editor.text.strip())
            if decides:
                return self._decision(approve=False, reason=editor.text.strip())
        else:
            editor.press(key.name, key.character)
        return Wish.NOTHING

    def _filter(self, key: Key, editor: LineEditor) -> None:
        self.guard.stray()
        if key.name == "escape":
            self._filtering = None
            self.choices.narrow("")
        elif key.name == "enter":
            self._filtering = None
        else:
            editor.press(key.name, key.character)
            self.choices.narrow(editor.text)

    def _decision(self, *, approve: bool, reason: str = "") -> Decide:
        self.is_decided = True
        offer = self.offer
        return Decide(
            seq=0,
            id=self.view.id,
            digest=self.digest,
            approve=approve,
            bindings=self.choices.ticked if approve else (),
            reason=reason,
            grant=offer.term if offer is not None and offer.approve is approve else ONCE,
        )
