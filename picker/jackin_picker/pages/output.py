"""What a running command writes, as it writes it: redacted by the broker, shown as it is safe.

It refuses to know pipes and terminals. Invariants: every line is an escape-free line of
`display.py`; watching changes nothing for the command; leaving ends the watching.
"""

from __future__ import annotations

from typing import Final

from textual import events
from textual.content import Content

from jackin_broker.errors import JackinError
from jackin_broker.operator_protocol import FINAL_STATES, Output, RequestState, RequestView, Watch

from ..board import BoardScreen
from ..ends import end_words
from ..glimpse import command_line
from ..stage import Stage
from ..tail import Tail, TailLine
from ..text import (
    BAR,
    CAREFUL,
    GOOD,
    LABEL,
    NOTHING,
    QUIET,
    STRONG,
    clock,
    fitted,
    key_line,
    literal,
    number,
    own,
    row,
    size,
    spread,
)
from .ending import ask_to_kill

_FRAME_LINES: Final = 4
# A longer line is clipped with a count; the agent has all of it.
_LINE_ROWS_MAX: Final = 4
_STDERR: Final = 2
_GUTTER_CELLS: Final = 7


class OutputScreen(BoardScreen):
    """Follows the end until somebody scrolls up."""

    belongs_to_prompt = False

    def __init__(self, stage: Stage, view: RequestView) -> None:
        super().__init__()
        self._stage = stage
        self._view = view
        self._tail = Tail()
        self._up = 0
        self.note: Content = NOTHING
        self.last_used_s = stage.clock.now_s()

    def on_mount(self) -> None:
        self.set_interval(1.0, self.repaint)
        self.watch_again()

    def on_unmount(self) -> None:
        self._stage.background(self._ask(on=False))

    def watch_again(self) -> None:
        """Ask the broker for the output, from what it still has of it."""
        self._tail = Tail()
        self._stage.background(self._ask(on=True))

    async def _ask(self, *, on: bool) -> None:
        try:
            await self._stage.ask(Watch(seq=0, id=self._view.id, on=on))
        except JackinError as error:
            self.note = literal(str(error), CAREFUL, limit=200)
            self.repaint()

    def take(self, push: Output) -> None:
        """More output, of whichever command."""
        if push.id == self._view.id:
            is_stderr = push.stream == _STDERR
            before = len(self._tail.lines)
            self._tail.feed(push.data, is_stderr=is_stderr)
            if self._up:  # the lines that are being read stay where they are
                self._up += len(self._tail.lines) - before
            self.repaint_soon()

    def heard(self) -> None:
        """The desk changed, perhaps this request too."""
        latest = self._stage.inbox.find(self._view.id)
        if latest is not None:
            self._view = latest
        self.repaint_soon()

    # --- keys -------------------------------------------------------------------------

    def pressed(self, event: events.Key) -> None:
        self.last_used_s = self._stage.clock.now_s()
        page = max(1, self.size.height - _FRAME_LINES - 1)
        steps = {"up": 1, "k": 1, "down": -1, "j": -1, "pageup": page, "pagedown": -page}
        match event.key:
            case "escape" | "q" | "enter" | "ctrl+c":
                self.dismiss()
            case "home":
                self._scroll(len(self._tail.lines))
            case "end":
                self._up = 0
            case "x" if self._view.state is RequestState.RUNNING:
                ask_to_kill(self._stage, self._view)
            case key:
                self._scroll(steps.get(key, 0))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll(-3)
        self.repaint()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll(3)
        self.repaint()

    def _scroll(self, step: int) -> None:
        room = max(1, self.size.height - _FRAME_LINES)
        self._up = max(0, min(self._up + step, len(self._tail.lines) - room))

    # --- drawing ----------------------------------------------------------------------

    def paint(self, width: int, height: int) -> list[Content]:
        room = max(1, height - _FRAME_LINES)
        body = self._body(width, room)
        body += [NOTHING] * (room - len(body))
        keys = [(own("↑↓ PgUp PgDn Home"), own("scroll")), (own("End"), own("follow"))]
        if self._view.state is RequestState.RUNNING:
            keys.append((own("x"), own("end it")))
        keys.append((own("Esc"), own("back")))
        return [self._header(width), *body, *self._status(width), key_line(keys, is_live=True)]

    def _body(self, width: int, room: int) -> list[Content]:
        """The last lines that fit, made from the end."""
        lines = self._tail.lines
        shown: list[Content] = []
        for line in reversed(lines[: len(lines) - self._up]):
            shown = [*_drawn(line, width), *shown]
            if len(shown) >= room:
                return shown[-room:]
        return shown or [own("  nothing was written yet", QUIET)]

    def _header(self, width: int) -> Content:
        view = self._view
        right = row(literal(view.state.value, STRONG), own("  "))
        if view.state is RequestState.RUNNING:
            lasted_s = self._stage.inbox.lasted_s(view, self._stage.clock.now_s())
            right = row(own("running ", GOOD), clock(lasted_s, STRONG), own("  "))
        elif view.state in FINAL_STATES:
            right = row(end_words(view), own("  "))
        room = width - right.cell_length - 12
        left = row(own("  Output  ", STRONG), command_line(view, room))
        return spread(left, right, width, BAR)

    def _status(self, width: int) -> list[Content]:
        waiting = len(self._stage.inbox.waiting)
        banner = own("  ! A request waits for your answer: Esc, Esc shows it", CAREFUL)
        told = [
            own("  "),
            size(self._tail.size_bytes, QUIET),
            own(" so far, every value taken out", QUIET),
        ]
        if self._tail.dropped:
            told += [own("; the first "), number(self._tail.dropped), own(" lines are not kept")]
        if self._up:
            told += [own("; ", QUIET), number(self._up, LABEL), own(" lines below", LABEL)]
        note = row(own("  "), self.note) if self.note else row(*told)
        return [banner if waiting else NOTHING, note.truncate(width)]


def _drawn(line: TailLine, width: int) -> list[Content]:
    gutter = own("  err │", CAREFUL) if line.is_stderr else own("      │", QUIET)
    if not line.data:
        return [gutter]
    folded = fitted(line.data, max(8, width - _GUTTER_CELLS - 2), _LINE_ROWS_MAX)
    blank = own("      ┊", QUIET)
    return [row(blank if turn else gutter, own(" "), x) for turn, x in enumerate(folded)]
