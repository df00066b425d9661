"""The end of a command's output, as lines that are ready to be shown.

It refuses to know the screen. What comes in is redacted already; it is still an agent's command
that wrote it, so that every line is shown by `display.py`. Invariants: memory is bounded, however
much comes; the two streams never share a line; what was dropped is counted.
Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

# What an operator scrolls back through; the agent has all of it.
LINES_MAX: Final = 2000
# A longer line is cut into pieces of this size, so that all of it is 16 MiB at most.
LINE_MAX_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class TailLine:
    """One line, without its end. `is_stderr` tells which stream it came on."""

    is_stderr: bool
    data: bytes


class Tail:
    """Feed it what a command writes."""

    def __init__(self) -> None:
        self._lines: deque[TailLine] = deque(maxlen=LINES_MAX)
        self._open: dict[bool, bytes] = {False: b"", True: b""}
        self.dropped = 0
        self.size_bytes = 0

    def feed(self, data: bytes, *, is_stderr: bool) -> None:
        """More of one stream."""
        self.size_bytes += len(data)
        *whole, rest = (self._open[is_stderr] + data).split(b"\n")
        for line in whole:
            self._put(line.removesuffix(b"\r"), is_stderr)
        while len(rest) > LINE_MAX_BYTES:
            self._put(rest[:LINE_MAX_BYTES], is_stderr)
            rest = rest[LINE_MAX_BYTES:]
        self._open[is_stderr] = rest

    @property
    def lines(self) -> list[TailLine]:
        """All that is kept, oldest first; lines without an end come last."""
        unended = [TailLine(which, data) for which, data in self._open.items() if data]
        return [*self._lines, *unended]

    def drain(self) -> list[TailLine]:
        """The whole lines that came since the last time; they are not kept any more."""
        lines = list(self._lines)
        self._lines.clear()
        return lines

    def take_dropped(self) -> int:
        """How many lines were dropped since the last time."""
        count, self.dropped = self.dropped, 0
        return count

    def end(self) -> None:
        """Nothing more comes: lines without an end are whole."""
        for is_stderr, rest in self._open.items():
            if rest:
                self._put(rest, is_stderr)
        self._open = {False: b"", True: b""}

    def _put(self, line: bytes, is_stderr: bool) -> None:
        for start in range(0, max(1, len(line)), LINE_MAX_BYTES):
            self.dropped += len(self._lines) == LINES_MAX
            self._lines.append(TailLine(is_stderr, line[start : start + LINE_MAX_BYTES]))
