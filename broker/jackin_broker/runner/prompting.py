"""Typing a value when the command asks for it, and only then (delivery `prompt`).

It stands before the output's sink and sees what the command writes. A value is typed when all of
this holds: the terminal takes whole lines and shows none of them, nobody but the pinned binary
reads from it, the question matches, and it was never typed before. It refuses to know what the
output means otherwise. Invariants: the output reaches the sink as it came; the agent's input waits
until the question was answered, so that nothing of it mixes with the value; no value is in a repr.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final, Protocol, cast

from pexpect.expect import Expecter, searcher_re

from ..deliveries import Prompt
from ..frames import Stream
from .spec import OutputSink
from .terminal import Terminal

# A question is a line or two; older output is no part of it.
WINDOW_BYTES: Final = 2048
# Some programs write the question first and switch the echo off after it.
LOOK_AGAIN_S: Final = 0.02
# After which a question that stays visible, or is another program's, is not looked at again.
LOOK_LIMIT_S: Final = 10.0
# From the answer to the agent's input, where a command leaves the echo off after it.
SETTLE_S: Final = 2.0
# A command that has not asked by then will not: its agent's input goes through, and nothing is
# typed any more. Longer than a connection takes to fail (127 s with Linux's six retries).
WITHDRAW_S: Final = 130.0
# Something was written on a later line than the question.
_LATER_LINE: Final = re.compile(rb"\n\s*\S")


class Asking(Protocol):
    """What of a running command is needed here."""

    terminal: Terminal | None

    def hold_stdin(self) -> None: ...
    def release_stdin(self) -> None: ...
    def type_in(self, data: bytes) -> None: ...


class _Buffers:
    """What pexpect's expecter keeps its place in; stands for pexpect's `spawn`."""

    buffer_type = BytesIO

    def __init__(self) -> None:
        self._buffer = BytesIO()
        self._before = BytesIO()
        self.searchwindowsize = WINDOW_BYTES

    @property
    def rest(self) -> bytes:
        """What came since the last match, as far as it is kept."""
        return self._buffer.getvalue()

    def forget_before(self) -> None:
        """The expecter keeps all that came before a match; nobody asks for it."""
        self._before = BytesIO()

    def start_again(self) -> None:
        """Nothing of what came so far is part of a question."""
        self._buffer = BytesIO()
        self.forget_before()


class _Question:
    """One prompt: looks for its question in what is written."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt: Final = prompt
        self._is_complete = False
        self._buffers = _Buffers()
        searcher = searcher_re([re.compile(prompt.pattern)])
        # It asks nothing else of pexpect's own `spawn`, and its types do not say None.
        expecter: Any = Expecter(cast("Any", self._buffers), searcher, WINDOW_BYTES)
        self._expecter = expecter

    def look_at(self, data: bytes) -> bool:
        """Whether the question stands there, complete, now that this was written."""
        if self._expecter.new_data(data) is not None:
            self._is_complete = True
        self._buffers.forget_before()
        # After a match the buffer holds what follows it.
        if self._is_complete and _LATER_LINE.search(self._buffers.rest):
            self._is_complete = False
        return self._is_complete

    def start_again(self) -> None:
        """Nothing of what was written so far is the question."""
        self._is_complete = False
        self._buffers.start_again()


class Prompter:
    """The sink of a command that will ask; the next sink is `sink`."""

    def __init__(self, prompts: Sequence[Prompt], sink: OutputSink) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._is_reader: Callable[[int], bool] = lambda _: False
        self._questions = [_Question(prompt) for prompt in prompts]
        self._asked: _Question | None = None
        self._running: Asking | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look_until = self._leave_at = 0.0
        self._withdrawal: asyncio.TimerHandle | None = None
        self.answered: Final[list[str]] = []

    def attach(self, running: Asking, is_reader: Callable[[int], bool]) -> None:
        """From now on questions are answered, and the agent's input waits.

        `is_reader` says whether the process group of that number is the pinned binary alone.
        """
        self._running, self._is_reader = running, is_reader
        running.hold_stdin()
        self._withdrawal = self._loop.call_later(WITHDRAW_S, self._leave)
        self._look()

    # --- OutputSink ---------------------------------------------------------------------

    def output(self, stream: Stream, data: bytes) -> None:
        self._sink.output(stream, data)
        if not self._questions:
            return
        asked = [question for question in self._questions if question.look_at(data)]
        self._asked = asked[0] if asked else None
        self._look_until = self._loop.time() + LOOK_LIMIT_S
        self._look()

    def output_end(self, stream: Stream) -> None:
        self._leave()
        self._sink.output_end(stream)

    def stdin_consumed(self, size: int) -> None:
        self._sink.stdin_consumed(size)

    # --- the four conditions ------------------------------------------------------------

    def _look(self) -> None:
        """Answer the question that stands there, or look again in a moment."""
        self._stop_looking()
        asked, running = self._asked, self._running
        if asked is None or running is None or running.terminal is None:
            return
        modes = running.terminal.modes()
        is_hidden = modes.is_canonical and not modes.echoes
        if is_hidden and self._is_reader(running.terminal.foreground_group()):
            self._answer(asked, running)
        elif self._loop.time() < self._look_until:
            self._timer = self._loop.call_later(LOOK_AGAIN_S, self._look)
        else:
            asked.start_again()
            self._asked = None

    def _answer(self, asked: _Question, running: Asking) -> None:
        self._asked = None
        self._questions.remove(asked)
        for other in self._questions:
            other.start_again()
        running.type_in(asked.prompt.answer + b"\n")
        self.answered.append(asked.prompt.binding)
        if not self._questions:
            self._leave_at = self._loop.time() + SETTLE_S
            self._leave_when_taken()

    def _leave_when_taken(self) -> None:
        """Leave once the command has read the answer: with the echo it drops what was typed."""
        self._stop_looking()
        if self._running is None or self._running.terminal is None:
            return
        modes = self._running.terminal.modes()
        if modes.is_canonical and not modes.echoes and self._loop.time() < self._leave_at:
            self._timer = self._loop.call_later(LOOK_AGAIN_S, self._leave_when_taken)
        else:
            self._leave()

    def _leave(self) -> None:
        """Answer nothing any more; the agent's input goes through."""
        self._stop_looking()
        self._questions.clear()
        self._asked = None
        if self._withdrawal is not None:
            self._withdrawal.cancel()
            self._withdrawal = None
        if self._running is not None:
            running, self._running = self._running, None
            running.release_stdin()

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
