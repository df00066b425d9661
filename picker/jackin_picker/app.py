"""The picker as a Textual program: its screens, its connection, its end.

It refuses to know keys and requests; the screens do. Invariants: it can be killed at any moment
without harm to what runs; a crash prints where it happened and never what a variable held; no
credential's value ever enters this process.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual.app import App, SuspendNotSupported
from textual.content import Content
from textual.screen import Screen
from textual.theme import Theme

from jackin_broker.errors import BrokerUnreachable, JackinError
from jackin_broker.operator_protocol import (
    Attached,
    Call,
    Decide,
    Decided,
    DenyAll,
    ListRequests,
    Output,
    Push,
    Reply,
    RequestChanged,
    Requests,
    RequestView,
)

from .bell import Bell
from .board import BoardScreen
from .commands import commands_of
from .guide import GuideScreen
from .handover import Handover
from .inbox import Inbox
from .link import Link
from .pages import PAGES, OutputScreen, PageScreen
from .pages.page import IDLE_S
from .palette import PaletteScreen
from .reading import ReadDriver
from .screen import DeskScreen
from .stage import Clock
from .tabs import Page
from .text import NOTHING, literal, own, row
from .theme import DARK, LIGHT, theme_for

# Enough to find the place; the message of an exception may quote a request and is left out.
CRASH_FRAMES: Final = 6
# How often a page that nobody touches is asked whether it gives way to a request.
_LOOK_S: Final = 1.0

if TYPE_CHECKING:
    from rich.console import RenderableType


class PickerApp(App[None], inherit_bindings=False):
    """Attached to the broker at `socket_path`. `failure` says why it ended, or is empty."""

    TITLE = "jackin-exec"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    CSS = "Screen { background: $background; color: $foreground; }"

    def __init__(
        self,
        socket_path: Path,
        clock: Clock | None = None,
        look: str = "auto",
        is_popup: bool = False,
    ) -> None:
        """`is_popup`: it leaves by itself when nothing waits any more."""
        super().__init__(driver_class=ReadDriver)
        self._is_popup = is_popup
        self._answers_open = 0
        self._bell = Bell(os.environ)
        self.failure = ""
        self.hint = ""
        self.inbox: Final = Inbox()
        self.clock: Final = clock or Clock()
        self.has_broker = False
        self.trouble = ""
        self.notices: tuple[str, ...] = ()
        self.handover: Final = Handover()
        self._look = look
        self._link = Link(socket_path)
        self._desk = DeskScreen(self)

    async def on_mount(self) -> None:
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.theme = theme_for(self._look).name
        self.theme_changed_signal.subscribe(self, self._recolour)
        await self.push_screen(self._desk)
        self.set_interval(_LOOK_S, self._give_way)
        self.run_worker(self._stay_attached(), name="link")

    # --- the link's desk --------------------------------------------------------------

    def attached(self, reply: Attached) -> None:
        self.has_broker, self.trouble, self.notices = True, "", reply.notices
        self.inbox.replace(reply.requests, self.clock.now_s())
        self._desk.follow()
        for view in reply.requests:
            self._ring(view)
        self._leave_if_done()
        for screen in self.screen_stack:
            if isinstance(screen, OutputScreen):
                screen.watch_again()
            elif isinstance(screen, PageScreen):
                screen.note = NOTHING
                screen.reload()

    def pushed(self, push: Push) -> None:
        if isinstance(push, RequestChanged):
            self.inbox.take(push.request, self.clock.now_s())
            self._desk.changed(push.request)
            self._ring(push.request)
            self._tell_screens()
            self._leave_if_done()
        elif isinstance(push, Output):
            for screen in self.screen_stack:
                if isinstance(screen, OutputScreen):
                    screen.take(push)
        else:
            self.lost(push.reason)

    def lost(self, reason: str) -> None:
        self.has_broker, self.trouble = False, reason
        self.inbox.replace((), self.clock.now_s())
        self._desk.lost()
        self._tell_screens()
        self._leave_if_done()

    def _ring(self, view: RequestView) -> None:
        """Let the terminal call, once a request."""
        words = self._bell.heard(view)
        if words and self._driver is not None and not self.is_headless:
            self._driver.write(words)

    def _leave_if_done(self) -> None:
        """A popup has nothing to show where nothing waits, unless somebody opened a page."""
        is_idle = self.inbox.current is None and not self._answers_open
        if self._is_popup and is_idle and self.screen is self._desk:
            self.exit()

    def _tell_screens(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, PageScreen | OutputScreen):
                screen.heard()

    # --- the screens' stage -----------------------------------------------------------

    def decide(self, decision: Decide) -> None:
        self.run_worker(self._answer(decision), name="answer")

    def deny_all(self, capsule: str, reason: str) -> None:
        self.run_worker(self._sweep(capsule, reason), name="answer")

    async def ask(self, call: Call) -> Reply:
        return await self._link.call(call)

    def go(self, page: Page) -> None:
        while self.screen is not self._desk:
            self.pop_screen()
        if page is not Page.DESK:
            self.push_screen(PAGES[page](self))
        else:
            self._desk.follow()

    def put_over(self, screen: Screen[None]) -> None:
        self.push_screen(screen)

    def uncover(self, screen: Screen[None]) -> None:
        """Close what belongs to a prompt and lies over it; a page is somebody's own choice."""
        over = self.screen_stack[self.screen_stack.index(screen) + 1 :]
        if all(isinstance(one, BoardScreen) and one.belongs_to_prompt for one in over):
            while not self.is_on_top(screen):
                self.pop_screen()

    def is_on_top(self, screen: Screen[None]) -> bool:
        return self.screen is screen

    def open_palette(self) -> None:
        self.push_screen(PaletteScreen(commands_of(self, self._desk, self.flip_theme)))

    def help(self) -> None:
        self.push_screen(GuideScreen())

    def background(self, job: Coroutine[None, None, None]) -> None:
        self.run_worker(job, name="job")

    def say(self, words: Content) -> None:
        screen = self.screen
        if isinstance(screen, PageScreen | OutputScreen | DeskScreen):
            screen.note = words
            screen.repaint()

    def in_terminal(self, words: Sequence[str]) -> int:
        try:
            with self.suspend():
                return self.handover.run(words)
        except SuspendNotSupported:  # a terminal that cannot be lent: the command was not run
            return 1

    def leave(self) -> None:
        self.exit()

    def flip_theme(self) -> None:
        """Light instead of dark, or the other way round."""
        self.theme = DARK.name if self.theme == LIGHT.name else LIGHT.name

    def _recolour(self, _: Theme) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, BoardScreen):
                screen.board.recolour()

    # --- its own work -----------------------------------------------------------------

    def _give_way(self) -> None:
        """Show a request that waits, where a page has not been touched for a while."""
        waits = self._desk in self.screen_stack and self.inbox.current is not None
        used_s = [
            screen.last_used_s
            for screen in self.screen_stack
            if isinstance(screen, PageScreen | OutputScreen)
        ]
        if waits and used_s and self.clock.now_s() - max(used_s) >= IDLE_S:
            self.go(Page.DESK)

    async def _stay_attached(self) -> None:
        try:
            await self._link.run(self)
        except JackinError as error:
            self._fail(str(error), error.hint)

    async def _answer(self, decision: Decide) -> None:
        trouble = ""
        self._answers_open += 1
        try:
            reply = await self._link.call(decision)
        except JackinError as error:
            refusal = str(error)
        else:
            is_taken = isinstance(reply, Decided) and reply.accepted
            words = reply.reason if isinstance(reply, Decided) else ""
            refusal = "" if is_taken else words or "no reason was given"
            trouble = words if is_taken else ""
        if refusal:
            await self._look_again()
        self._answers_open -= 1
        self._desk.decided(decision, refusal, trouble)
        if not trouble:
            self._leave_if_done()

    async def _sweep(self, capsule: str, reason: str) -> None:
        try:
            await self._link.call(DenyAll(seq=0, capsule=capsule, reason=reason))
        except JackinError as error:
            await self._look_again()
            self._desk.again()
            self.say(row(own("not taken: "), literal(str(error), limit=60)))
        else:
            self.say(own("denied: all that waited from that capsule"))

    async def _look_again(self) -> None:
        """After a decision that was not taken: show what is there now, not what was."""
        try:
            reply = await self._link.call(ListRequests(seq=0))
        except BrokerUnreachable:
            return
        if isinstance(reply, Requests):
            self.inbox.replace(reply.requests, self.clock.now_s())

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
