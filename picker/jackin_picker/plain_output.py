"""Plain mode's live output: what one running command writes, line by line.

It refuses to know pipes and what is typed. Invariants: it is redacted by the broker and shown as
escapes, indented, so that no line of it begins at the margin; nothing is said while a request is
being answered; however much comes, no more is said at once than can be listened to, and what is
left out is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, Protocol

from textual.content import Content

from jackin_broker.errors import JackinError
from jackin_broker.operator_protocol import FINAL_STATES, Call, Output, RequestView, Watch

from .ends import end_words
from .tail import Tail, TailLine
from .text import fitted, literal, number, own, row, size

# Lines come in bursts: as many as a glance takes, a few times a second.
SAID_EVERY_S: Final = 0.25
LINES_AT_ONCE: Final = 40
# A longer line is clipped with a count; the agent has all of it.
_LINE_ROWS_MAX: Final = 4
_STDERR: Final = 2
_GUTTER_CELLS: Final = 8


class Speaker(Protocol):
    """What can say lines, when nothing is being answered."""

    @property
    def is_asking(self) -> bool: ...

    @property
    def width(self) -> int: ...

    def say(self, lines: Iterable[Content]) -> None: ...


class PlainOutput:
    """Follows one command at a time. `ask` takes a call to the broker."""

    def __init__(self, speaker: Speaker, ask: Callable[[Call], Awaitable[object]]) -> None:
        self._speaker: Final = speaker
        self._ask: Final = ask
        self._view: RequestView | None = None
        self._tail = Tail()
        self._timer: asyncio.TimerHandle | None = None

    async def follow(self, view: RequestView) -> None:
        """Say what it writes, from what the broker still has of it. Raises: JackinError."""
        await self.leave()
        self._view, self._tail = view, Tail()
        self._speaker.say([own("Its output follows, every value taken out; silent stops it.")])
        try:
            await self._ask(Watch(0, view.id, on=True))
        except JackinError:
            self.forget()
            raise

    async def leave(self) -> bool:
        """Stop; whether anything was followed. Raises: JackinError."""
        view = self._view
        self.forget()
        if view is None:
            return False
        await self._ask(Watch(0, view.id, on=False))
        return True

    def forget(self) -> bool:
        """Say no more of it; whether anything was followed."""
        was_on = self._view is not None
        self._view = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return was_on

    def take(self, push: Output) -> None:
        """More output, of whichever command."""
        if self._view is None or push.id != self._view.id:
            return
        if push.skipped_bytes:
            skipped = size(push.skipped_bytes)
            self._speaker.say([row(own("  ! "), skipped, own(" of it were not kept"))])
        self._tail.feed(push.data, is_stderr=push.stream == _STDERR)
        self._say_soon()

    def heard(self, view: RequestView) -> None:
        """News of a request: the one that is followed may have ended."""
        if self._view is not None and view.id == self._view.id:
            self._view = view
            self._say_soon()

    def _say_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SAID_EVERY_S, self._say)

    def _say(self) -> None:
        self._timer = None
        view = self._view
        if view is None:
            return
        if self._speaker.is_asking:  # later: a request is being answered
            self._say_soon()
            return
        is_over = view.state in FINAL_STATES
        if is_over:
            self._tail.end()
        lines, left_out = self._tail.drain(), self._tail.take_dropped()
        left_out += max(0, len(lines) - LINES_AT_ONCE)
        said: list[Content] = []
        if left_out:
            said.append(row(own("  ! "), number(left_out), own(" lines of it are left out")))
        for line in lines[-LINES_AT_ONCE:]:
            said += line_lines(line, self._speaker.width)
        if is_over:
            self.forget()
            said.append(row(own("Its output is over: "), end_words(view)))
        self._speaker.say(said)


def line_lines(line: TailLine, width: int) -> Iterator[Content]:
    """One line of output, behind the name of its stream."""
    gutter = own("  err │ ") if line.is_stderr else own("  out │ ")
    if not line.data:
        yield gutter
        return
    folded = fitted(line.data, width - _GUTTER_CELLS, _LINE_ROWS_MAX)
    for turn, part in enumerate(folded):
        yield row(own("      ┊ ") if turn else gutter, part)


def refusal_line(error: JackinError) -> Content:
    """The broker's words for what it did not do."""
    return row(own("Not done: "), literal(str(error)))
