"""What every page shares: the bar, a list with a cursor and a filter, a note, the keys.

It refuses to know what is listed. Invariants: no key of a page answers a request; what ends or
revokes something asks again first; a page that is looked at is not covered, it says that a
request waits, and gives way by itself when nobody has touched it for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, LiteralString

from textual import events
from textual.content import Content

from jackin_broker.errors import JackinError
from jackin_broker.operator_protocol import Call, Reply

from ..board import BoardScreen
from ..editor import LineEditor
from ..listing import Entry, Listing
from ..stage import Stage
from ..tabs import NAMES, Page, next_page, page_of, tab_bar
from ..text import CAREFUL, NOTHING, literal, own, row, rule
from .frame import KeyPair, Question, banner_line, fitting, keys_line, status_line, title_line

# Nobody reads a page this long without a key; a request that waits is shown then.
IDLE_S: Final = 10.0
# Bar, banner, title, a gap, note and keys.
_FRAME_LINES: Final = 6
# Half of the list's room at most: the list is what the page is for.
_DETAIL_SHARE: Final = 2
_WHEEL_LINES: Final = 3
_TICK_S: Final = 1.0
_FILTER: Final = "filter"


class PageScreen(BoardScreen):
    """One page. Subclasses say what is listed and what keys do."""

    belongs_to_prompt = False
    page: Page
    title_words: LiteralString = ""
    empty_words: LiteralString = "nothing here"
    lines_each = 1
    # Whether its list comes from the broker and changes with the desk.
    follows_desk = False

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.listing = Listing(self.lines_each)
        self.note: Content = NOTHING
        self.last_used_s = stage.clock.now_s()
        self._is_stale = False
        self._question: Question | None = None
        self._answer: Callable[[str], None] | None = None
        self._busy_since_s: float | None = None
        self._list_spots: list[tuple[int, int]] = []
        self._tab_spots: list[tuple[Page, range]] = []
        self._list_top = 4

    # --- for subclasses ---------------------------------------------------------------

    def entries(self) -> Sequence[Entry]:
        """What is listed now."""
        return ()

    def about(self, width: int) -> list[Content]:
        """Lines for the top, below the title."""
        return []

    def detail(self, width: int) -> list[Content]:
        """Lines about the entry under the cursor."""
        return []

    def keys(self) -> list[KeyPair]:
        """What the page's own keys do."""
        return []

    def act(self, key: str) -> None:
        """A key that is not every page's."""

    async def load(self) -> None:
        """Ask the broker for what is listed. Raises: JackinError."""

    def heard(self) -> None:
        """The desk changed, and with it perhaps what the broker would list."""
        self._is_stale = self.follows_desk
        self.repaint_soon()

    def _tick(self) -> None:
        """Once a second, however much changes: read a stale list again, show the time."""
        if self._is_stale:
            self._is_stale = False
            self.reload()
        self.repaint()

    # --- the broker -------------------------------------------------------------------

    def on_mount(self) -> None:
        self.reload()
        self.set_interval(_TICK_S, self._tick)

    def reload(self) -> None:
        """Read the list again."""
        self.work(self.load())

    def work(self, job: Coroutine[None, None, None]) -> None:
        """Do it while the page stays usable; a failure becomes the note."""
        self.run_worker(self._do(job), name="page")

    async def ask(self, call: Call) -> Reply:
        return await self.stage.ask(call)

    async def _do(self, job: Coroutine[None, None, None]) -> None:
        self._busy_since_s = self.stage.clock.now_s()
        try:
            await job
        except JackinError as error:
            self.note = literal(str(error), CAREFUL, limit=200)
        except asyncio.CancelledError:
            raise
        finally:
            self._busy_since_s = None
            self.repaint()

    # --- keys -------------------------------------------------------------------------

    def pressed(self, event: events.Key) -> None:
        self.last_used_s = self.stage.clock.now_s()
        self.listing.show(self.entries())
        if self._question is not None:
            self._edit(self._question, event.key, event.character)
            return
        self.note = NOTHING
        if not self._moved(event.key) and not self._left(event.key, event.character):
            self.act(event.key)

    def _moved(self, key: str) -> bool:
        page = max(1, len(self._list_spots) // self.lines_each - 1)
        steps = {
            "down": 1,
            "j": 1,
            "up": -1,
            "k": -1,
            "pagedown": page,
            "pageup": -page,
            "home": -self.listing.total,
            "end": self.listing.total,
        }
        if key not in steps:
            return False
        self.listing.move(steps[key])
        return True

    def _left(self, key: str, character: str | None) -> bool:
        page = page_of(key)
        if page is not None:
            self.stage.go(page)
        elif key in {"tab", "right", "shift+tab", "left"}:
            self.stage.go(next_page(self.page, 1 if key in {"tab", "right"} else -1))
        elif key == "escape" and self.listing.filter:
            self.listing.narrow("")
        elif key in {"escape", "0"}:
            self.stage.go(Page.DESK)
        elif key in {"q", "ctrl+c"}:
            self.stage.leave()
        elif key == "ctrl+p" or character in {":", "?"}:
            self.stage.help() if character == "?" else self.stage.open_palette()
        elif character == "/":
            self._filter()
        else:
            return False
        return True

    def _filter(self) -> None:
        self.edit(_FILTER, self.listing.narrow, self.listing.filter)

    def edit(self, asked: LiteralString, answer: Callable[[str], None], text: str = "") -> None:
        """Let the operator type a line; `answer` gets it at Enter."""
        self._question, self._answer = Question(asked, LineEditor()), answer
        self._question.editor.insert(text)

    def _edit(self, question: Question, key: str, character: str | None) -> None:
        is_filter = question.asked == _FILTER
        if key == "escape":
            self._question = None
            if is_filter:
                self.listing.narrow("")
        elif key == "enter":
            self._question = None
            if self._answer is not None:
                self._answer(question.editor.text)
        elif key in {"up", "down"} and is_filter:
            self.listing.move(1 if key == "down" else -1)
        else:
            question.editor.press(key, character)
            self._narrow(question)

    def pasted(self, event: events.Paste) -> None:
        if self._question is not None:
            self._question.editor.insert(event.text)
            self._narrow(self._question)

    def _narrow(self, question: Question) -> None:
        if question.asked == _FILTER:
            self.listing.narrow(question.editor.text)

    # --- the mouse --------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.last_used_s = self.stage.clock.now_s()
        if event.screen_y == 0:
            for page, x in self._tab_spots:
                if event.screen_x in x:
                    self.stage.go(page)
        for y, index in self._list_spots:
            if event.screen_y == self._list_top + y:
                self.listing.go(index)
        self.repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, _WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -_WHEEL_LINES)

    def _wheel(self, event: events.MouseEvent, step: int) -> None:
        event.stop()
        self.last_used_s = self.stage.clock.now_s()
        self.listing.move(step)
        self.repaint()

    # --- drawing ----------------------------------------------------------------------

    def paint(self, width: int, height: int) -> list[Content]:
        self.listing.show(self.entries())
        waiting = len(self.stage.inbox.waiting)
        bar, self._tab_spots = tab_bar(
            self.page, width, waiting=waiting, has_broker=self.stage.has_broker
        )
        about = self.about(width)
        detail = self.detail(width - 4)
        room = max(1, height - _FRAME_LINES - len(about))
        detail = fitting(detail, room // _DETAIL_SHARE)
        if detail:
            detail = [rule(width), *(row(own("  "), line) for line in detail)]
        room -= len(detail)
        body, self._list_spots = self.listing.lines(width, room)
        self._list_top = 4 + len(about)
        if not body:
            words = self._empty()
            body = [NOTHING, row(own("  "), own(words))]
        body += [NOTHING] * (room - len(body))
        question = self._question
        keys = keys_line(self.keys(), width, is_typing=question is not None)
        return [
            bar,
            banner_line(0 if self.page is Page.WAITING else waiting),
            title_line(NAMES[self.page], self.title_words, self.listing, width),
            *about,
            NOTHING,
            *body[:room],
            *detail,
            status_line(question, self.note, self._busy_s(), self.listing.filter, width),
            keys,
        ]

    def _empty(self) -> LiteralString:
        if not self.stage.has_broker:
            return "not connected to the broker"
        if self.listing.filter:
            return "no entry matches the filter"
        return "reading …" if self._busy_since_s is not None else self.empty_words

    def _busy_s(self) -> float:
        if self._busy_since_s is None:
            return 0.0
        return self.stage.clock.now_s() - self._busy_since_s
