"""The picker as a Textual program: its look, its connection, its end.

It refuses to know keys and requests; the screen does. Invariants: it can be killed at any moment
without harm to what runs; a crash prints where it happened and never what a variable held; no
credential's value ever enters this process.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual.app import App
from textual.screen import Screen
from textual.theme import Theme

from jackin_broker.errors import BrokerUnreachable, JackinError
from jackin_broker.operator_protocol import (
    Attached,
    Decide,
    Decided,
    Goodbye,
    ListRequests,
    Push,
    RequestChanged,
    Requests,
)

from .link import Link
from .screen import Clock, DeskScreen

# Enough to find the place; the message of an exception may quote a request and is left out.
CRASH_FRAMES: Final = 6

if TYPE_CHECKING:
    from rich.console import RenderableType

THEME: Final = Theme(
    name="jackin-dark",
    dark=True,
    primary="#8ab4f8",
    success="#8fc9a3",
    warning="#e6c07b",
    error="#e58a8a",
    foreground="#d8dee6",
    background="#14181f",
    surface="#14181f",
    panel="#232a35",
    variables={
        "quiet": "#7f8a99",
        "label": "#9aa7b8",
        "rule": "#323b48",
        "button-text": "#14181f",
    },
)


class PickerApp(App[None], inherit_bindings=False):
    """Attached to the broker at `socket_path`. `failure` says why it ended, or is empty."""

    TITLE = "jackin-exec"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    CSS = "Screen { background: $background; color: $foreground; }"

    def __init__(self, socket_path: Path, clock: Clock | None = None) -> None:
        super().__init__()
        self.failure = ""
        self.hint = ""
        self._link = Link(socket_path)
        self._desk = DeskScreen(self, clock or Clock())

    async def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        await self.push_screen(self._desk)
        self.run_worker(self._stay_attached(), name="link")

    # --- the link's desk --------------------------------------------------------------

    def attached(self, reply: Attached) -> None:
        self._desk.attached(reply)

    def pushed(self, push: Push) -> None:
        if isinstance(push, RequestChanged):
            self._desk.changed(push.request)
        elif isinstance(push, Goodbye):
            self._desk.lost(push.reason)

    def lost(self, reason: str) -> None:
        self._desk.lost(reason)

    # --- the screen's stage -----------------------------------------------------------

    def decide(self, decision: Decide) -> None:
        self.run_worker(self._answer(decision), name="answer")

    def put_over(self, screen: Screen[None]) -> None:
        self.push_screen(screen)

    def uncover(self, screen: Screen[None]) -> None:
        while screen in self.screen_stack and not self.is_on_top(screen):
            self.pop_screen()

    def is_on_top(self, screen: Screen[None]) -> bool:
        return self.screen is screen

    def leave(self) -> None:
        self.exit()

    # --- its own work -----------------------------------------------------------------

    async def _stay_attached(self) -> None:
        try:
            await self._link.run(self)
        except JackinError as error:
            self._fail(str(error), error.hint)

    async def _answer(self, decision: Decide) -> None:
        try:
            reply = await self._link.call(decision)
        except JackinError as error:
            refusal = str(error)
        else:
            is_taken = isinstance(reply, Decided) and reply.accepted
            refusal = "" if is_taken else getattr(reply, "reason", "") or "no reason was given"
        if refusal:
            await self._look_again()
        self._desk.decided(decision, refusal)

    async def _look_again(self) -> None:
        """After a decision that was not taken: show what is there now, not what was."""
        try:
            reply = await self._link.call(ListRequests(seq=0))
        except BrokerUnreachable:
            return
        if isinstance(reply, Requests):
            self._desk.replaced(reply.requests)

    def end_by_signal(self, number: int) -> None:
        """Leave the terminal as it was; the status says which signal it was."""
        self.exit(return_code=128 + number)

    def _fail(self, failure: str, hint: str) -> None:
        self.failure, self.hint = failure, hint
        self.exit(return_code=1)

    # --- crashes ----------------------------------------------------------------------

    def _fatal_error(self) -> None:
        """Instead of Textual's traceback, which shows local variables."""
        self.failure = _crash_words()
        self.hint = "what waits goes on waiting; open the picker again with: jackin-broker attach"
        self._close_messages_no_wait()

    def panic(self, *renderables: RenderableType) -> None:
        """As `_fatal_error`: what Textual would print may quote a request."""
        self._fatal_error()


def _crash_words() -> str:
    """What happened and where, in one line without a variable's value."""
    error = sys.exception()
    if error is None:
        return "the picker crashed"
    frames = traceback.extract_tb(error.__traceback__)[-CRASH_FRAMES:]
    way = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"the picker crashed: {type(error).__name__} at {way}"
