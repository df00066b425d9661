"""`attach --plain`: the picker without a screen, line by line, for screen readers and plain logs.

It refuses to know frames. Invariants: one request is asked about at a time, in the prompt's words
(`plain_lines.py`) and under its guard (`plain_prompt.py`); while it is not ready, keys are heard
and dropped; when it ends or changes, half a line that was typed is dropped; what ends something
takes a number that was just shown; a bell for each request; no value enters this process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from textual.content import Content

from jackin_broker.errors import JackinError
from jackin_broker.operator_protocol import (
    Attached,
    Output,
    Push,
    RequestChanged,
    RequestState,
    RequestView,
    view_digest,
)

from .bell import Bell
from .inbox import Inbox
from .link import Link
from .plain_answers import PlainAnswers
from .plain_lines import credential_lines, over_line, ready_line, request_lines
from .plain_prompt import PlainPrompt
from .plain_terminal import PlainTerminal
from .plain_words import order_in
from .text import literal, own, row

_FINAL: Final = (signal.SIGTERM, signal.SIGHUP)


def run_plain(socket_path: Path) -> PlainSession:
    """Serve the operator until they leave; the session has the status, and what went wrong."""
    # One that is stopped would count as an operator who can answer.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    terminal = PlainTerminal()
    try:
        return asyncio.run(_run(socket_path, terminal))
    finally:
        terminal.give_back()


async def _run(socket_path: Path, terminal: PlainTerminal) -> PlainSession:
    session = PlainSession(terminal, Link(socket_path, "plain"))
    await session.run()
    return session


class PlainSession:
    """What goes on between the broker and one terminal."""

    def __init__(self, terminal: PlainTerminal, link: Link) -> None:
        self.terminal: Final = terminal
        self.inbox: Final = Inbox()
        self.status = 0
        self.failure: JackinError | None = None
        self.prompt: PlainPrompt | None = None
        self._link: Final = link
        self._answers: Final = PlainAnswers(self, link)
        self._bell: Final = Bell(os.environ)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._left = asyncio.Event()
        self._news: list[Content] = []

    async def run(self) -> None:
        """Until the operator leaves, the terminal goes or the broker refuses."""
        for number in _FINAL:
            self._loop.add_signal_handler(number, self.leave, 128 + number)
        self._loop.add_signal_handler(signal.SIGINT, self.leave)
        self.terminal.listen()
        self.say([own("Plain mode: help says what can be typed, quit leaves.")])
        self._loop.add_reader(0, self._guarded(self._typed))
        following = asyncio.create_task(self._follow(), name="link")
        try:
            await self._left.wait()
        finally:
            self._loop.remove_reader(0)
            following.cancel()
            await asyncio.wait([following])
            await self._answers.close()

    def leave(self, status: int = 0) -> None:
        """End; nothing that waits or runs is harmed."""
        self.status = status
        self._left.set()

    def say(self, lines: Iterable[Content]) -> None:
        """Write lines; a terminal that has gone is left."""
        try:
            self.terminal.say(lines)
        except OSError:
            self.leave(128 + signal.SIGHUP)

    def tell(self, line: Content) -> None:
        """Say it now, or between two requests: not while one is being answered."""
        if self.prompt is None:
            self.say([line])
        else:
            self._news.append(line)

    @property
    def width(self) -> int:
        """Cells of a line."""
        return self.terminal.width

    @property
    def is_asking(self) -> bool:
        """Whether a request is being answered: news and output wait then."""
        return self.prompt is not None

    def now_s(self) -> float:
        return time.monotonic()

    async def _follow(self) -> None:
        try:
            await self._link.run(self)
        except JackinError as error:
            self.failure = error
            self.leave(1)

    def _guarded(self, handler: Callable[[], None]) -> Callable[[], None]:
        """A terminal that hangs up while it is read is left."""

        def handle() -> None:
            try:
                handler()
            except OSError:
                self.leave(128 + signal.SIGHUP)

        return handle

    # --- the link's desk --------------------------------------------------------------

    def attached(self, reply: Attached) -> None:
        self.inbox.replace(reply.requests, self.now_s())
        self.say(row(own("! "), literal(notice)) for notice in reply.notices)
        if self.inbox.current is None:
            self.say([own("Nothing waits for an answer.")])
        for view in reply.requests:
            self._ring(view)
        self.follow()

    def pushed(self, push: Push) -> None:
        if isinstance(push, RequestChanged):
            self.inbox.take(push.request, self.now_s())
            self._ring(push.request)
            self._answers.heard(push.request)
            self.follow()
        elif isinstance(push, Output):
            self._answers.pages.output.take(push)

    def lost(self, reason: str) -> None:
        if self.prompt is not None:
            self._close()
        self.inbox.replace((), self.now_s())
        self.say([row(own("The broker is not there: "), literal(reason))])
        if self._answers.pages.output.forget():
            self.say([own("No output is said any more.")])

    def _ring(self, view: RequestView) -> None:
        sequence = self._bell.heard(view)
        if sequence:
            self.terminal.ring(sequence)

    # --- which request ----------------------------------------------------------------

    def follow(self) -> None:
        """Go on asking, ask about the next one, or rest."""
        prompt = self.prompt
        if self._answers.is_busy:
            return
        if prompt is not None:
            latest = self.inbox.find(prompt.view.id)
            is_open = latest is not None and latest.state is RequestState.WAITING
            if latest is not None and is_open and view_digest(latest) == prompt.digest:
                if self.inbox.current is latest:
                    return
            elif is_open:
                self.say([own("The request changed, and what was typed is dropped: listen again.")])
            elif not prompt.is_decided:
                self._farewell(latest)
            self._close()
        current = self.inbox.current
        if current is not None:
            self.prompt = PlainPrompt(current)
            self.ask()

    def ask(self) -> None:
        """Say the request that is open, from the start; it is not ready then."""
        prompt, width = self.prompt, self.terminal.width
        if prompt is None:
            return
        self.terminal.hush()
        left_s = self.inbox.left_s(prompt.view, self.now_s())
        waiting = len(self.inbox.waiting)
        self.say(
            [
                *request_lines(prompt.view, width, waiting=waiting, left_s=left_s),
                *credential_lines(prompt.rows, set(prompt.ticked), width),
                own("Not ready: pause for a moment, what you type now is dropped."),
            ]
        )
        prompt.draw(self.now_s())
        self._await_silence()

    def ask_anew(self) -> None:
        """After a decision that was not taken: what is there now, not ready."""
        self._close()
        self.follow()

    def _farewell(self, latest: RequestView | None) -> None:
        self.say([own("The request is over, and what was typed is dropped.")])
        if latest is not None and latest.state is not RequestState.WAITING:
            self.say([over_line(latest, self.terminal.width)])

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.prompt = None
        self.terminal.listen()
        news, self._news = self._news, []
        self.say(news)

    # --- what is typed ----------------------------------------------------------------

    def _typed(self) -> None:
        data = self.terminal.read()
        if self.terminal.is_hushed:
            if self.prompt is not None:
                self.prompt.guard.press(self.now_s())
            return
        if not data:
            self.leave()
            return
        if self.terminal.has_more:
            self.terminal.drop()
            if self.prompt is not None:
                self.prompt.guard.press(self.now_s())
                self.prompt.guard.stray()
            self.say([own("Lines that come together do nothing: they were dropped.")])
            return
        self._answers.obey(order_in(data.decode("utf-8", "replace").rstrip("\n")))

    def _await_silence(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        prompt = self.prompt
        if prompt is not None:
            left_s = prompt.guard.silence_left_s(self.now_s())
            self._timer = self._loop.call_later(left_s, self._look_whether_ready)

    def _look_whether_ready(self) -> None:
        prompt = self.prompt
        if prompt is None or prompt.guard.is_armed:
            return
        if not prompt.guard.poll(self.now_s()):
            self._await_silence()
            return
        self.terminal.listen()
        self.say([ready_line(prompt.number)])
