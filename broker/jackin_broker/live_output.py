"""What running commands write, as operators watch it: redacted, bounded, never in the way.

One feed a command. It refuses to know sockets. Invariants: what is shown was let go by its stream's
redactor and by that of both streams together (`redact/merged.py`), which only works once somebody
watches; the last BACKLOG_MAX_BYTES are kept and no more to be shown, what is left out is counted; a
watcher is called and never waited for.
Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from .frames import Stream
from .redact.merged import MergedView, Piece
from .redact.needles import NeedleSet
from .redact.stream import Verdict

# A few screens of any terminal for somebody who looks in late; 200 commands take 6 MiB.
BACKLOG_MAX_BYTES: Final = 32 * 1024
# Output that dribbles is joined up to this size: a piece costs more than its bytes.
PIECE_BYTES: Final = 2048

# Called with a stream, its bytes, and how many bytes were left out before them.
Watcher = Callable[[Stream, bytes, int], None]


class Feed:
    """The output of one running command."""

    def __init__(self, needles: NeedleSet) -> None:
        self._view: Final[MergedView[Stream]] = MergedView(needles, backlog_bytes=BACKLOG_MAX_BYTES)
        self._backlog: deque[tuple[Stream, bytearray]] = deque()
        self._size_bytes = 0
        self._skipped_bytes = 0
        self._watchers: dict[object, Watcher] = {}

    @property
    def holds(self) -> bool:
        """Whether watchers wait for something that `idle` could show."""
        return self._view.held_bytes > 0

    def put(self, stream: Stream, raw: bytes, verdicts: Sequence[Verdict]) -> None:
        """Take what a stream wrote, and what its own redactor says of it and what it held."""
        self._show(self._view.put(stream, raw, verdicts))

    def idle(self) -> None:
        """Nothing came for a while."""
        self._show(self._view.idle())

    def finish(self) -> None:
        """Nothing more will come."""
        self._show(self._view.finish())

    def _show(self, pieces: Iterable[Piece[Stream]]) -> None:
        for stream, data in pieces:
            self._keep(stream, data)
            for watcher in tuple(self._watchers.values()):
                watcher(stream, data, 0)

    def watch(self, who: object, watcher: Watcher) -> None:
        """Tell `watcher` the last of what was written, and from now on everything."""
        if not self._view.is_started:
            self._show(self._view.start())
            self._skipped_bytes += self._view.dropped_bytes
        skipped = self._skipped_bytes
        for stream, data in self._backlog:
            watcher(stream, bytes(data), skipped)
            skipped = 0
        self._watchers[who] = watcher

    def unwatch(self, who: object) -> None:
        """Tell this one no more."""
        self._watchers.pop(who, None)

    def _keep(self, stream: Stream, data: bytes) -> None:
        last = data[-BACKLOG_MAX_BYTES:]
        self._skipped_bytes += len(data) - len(last)
        newest = self._backlog[-1] if self._backlog else None
        if newest and newest[0] is stream and len(newest[1]) + len(last) <= PIECE_BYTES:
            newest[1].extend(last)
        else:
            self._backlog.append((stream, bytearray(last)))
        self._size_bytes += len(last)
        while self._size_bytes > BACKLOG_MAX_BYTES:
            _, oldest = self._backlog.popleft()
            self._size_bytes -= len(oldest)
            self._skipped_bytes += len(oldest)


class LiveOutput:
    """The feeds of everything that runs, by request."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}

    def open(self, request_id: str, needles: NeedleSet) -> Feed:
        """The feed of a command that is about to run."""
        return self._feeds.setdefault(request_id, Feed(needles))

    def close(self, request_id: str) -> None:
        """The command ended: who watches has had all of it."""
        self._feeds.pop(request_id, None)

    def feed(self, request_id: str) -> Feed | None:
        """The feed of a command that runs."""
        return self._feeds.get(request_id)
