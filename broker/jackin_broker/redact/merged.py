"""Both streams of a command in one view: a value whose halves lie on two of them is masked too.

Each stream has a redactor of its own; whoever looks at both sees them joined in the order in
which they were written, so that order is redacted once more, and a byte is shown only where both
agree. Until somebody looks (`start`) nothing is searched: the last of what was written is kept as
it came, with what its stream's redactor said of it.

Pure. Refuses to know watchers and terminals.

Invariants
- what leaves is each stream's bytes in order, with markers for what either redactor masks, and in
  the order of writing but for what a stream's own redactor still holds;
- before `start` at most `backlog_bytes` and what a value may reach back are kept, after it no more
  than the redactors hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from jackin_broker.redact.needles import NeedleSet
from jackin_broker.redact.projection import MAX_ESCAPE_BYTES, MAX_IGNORED_BYTES
from jackin_broker.redact.stream import Redactor, Verdict

# Output that dribbles is joined up to this size: a piece costs more than its bytes.
_PIECE_BYTES: Final = 2048

S = TypeVar("S")


class Piece(NamedTuple, Generic[S]):
    """Bytes of one stream that may be shown."""

    stream: S
    data: bytes


class MergedView(Generic[S]):
    """What one command writes to all its streams, joined and redacted once more."""

    def __init__(self, needles: NeedleSet, *, backlog_bytes: int) -> None:
        self._needles: Final = needles
        self._backlog_bytes: Final = backlog_bytes
        # Of a value that reaches into what is shown, the beginning must be there to be seen.
        self._margin_bytes: Final = needles.longest + MAX_IGNORED_BYTES + MAX_ESCAPE_BYTES
        self._written: deque[tuple[S, bytearray]] = deque()  # no verdict of all of them yet
        self._size_bytes = 0
        self._dropped_bytes = 0
        self._position = 0
        self._lanes: dict[S, _Lane] = {}
        self._together: Redactor | None = None
        self._of_all = _Verdicts()

    def __repr__(self) -> str:
        return f"<merged view, {self._size_bytes} bytes>"

    @property
    def is_started(self) -> bool:
        """Whether somebody looks."""
        return self._together is not None

    @property
    def dropped_bytes(self) -> int:
        """How much was written and never shown, because nobody looked."""
        return self._dropped_bytes

    @property
    def held_bytes(self) -> int:
        """How much waits for what follows it, when somebody looks."""
        return self._size_bytes if self.is_started else 0

    def put(self, stream: S, raw: bytes, verdicts: Iterable[Verdict]) -> list[Piece[S]]:
        """What may be shown now that a stream wrote this and its redactor said that."""
        self._lane(stream).own.add(verdicts)
        most = self._backlog_bytes + self._margin_bytes
        if len(raw) > most and not self.is_started:  # a flood nobody looks at: not even copied
            self._drop(self._size_bytes)
            self._lane(stream).own.skip(len(raw) - most)
            self._dropped_bytes += len(raw) - most
            self._written.append((stream, bytearray(memoryview(raw)[-most:])))
            self._size_bytes += most
            return []
        if raw:
            newest = self._written[-1] if self._written else None
            if newest and newest[0] == stream and len(newest[1]) + len(raw) <= _PIECE_BYTES:
                newest[1].extend(raw)
            else:
                self._written.append((stream, bytearray(raw)))
            self._size_bytes += len(raw)
        if self._together is None:
            self._drop(self._size_bytes - most)
            return []
        if raw:
            self._together.feed(raw)
        return self._shown()

    def start(self) -> list[Piece[S]]:
        """From now on `put` shows what may be shown; here is the last of what was before."""
        self._together = Redactor(self._needles, keeps_verdicts=True)
        for _, raw in self._written:
            self._together.feed(bytes(raw))
        excess = max(0, self._size_bytes - self._backlog_bytes)
        self._of_all.skip(excess)
        self._drop(excess)
        return self._shown()

    def idle(self) -> list[Piece[S]]:
        """What may be shown because nothing came for a while."""
        if self._together is None:
            return []
        self._together.idle()
        return self._shown()

    def finish(self) -> list[Piece[S]]:
        """The rest, when every stream has ended."""
        if self._together is None:
            return []
        self._together.finish()
        return self._shown()

    def _lane(self, stream: S) -> _Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            lane = self._lanes[stream] = _Lane()
        return lane

    def _drop(self, size: int) -> None:
        """Forget the oldest bytes, and what is or will be said of them; without a copy."""
        while size > 0:
            stream, raw = self._written[0]
            count = min(size, len(raw))
            if count == len(raw):
                self._written.popleft()
            else:
                del raw[:count]
            self._size_bytes -= count
            self._lane(stream).own.skip(count)
            self._dropped_bytes += count
            size -= count

    def _take(self, most: int) -> tuple[S, bytes]:
        """The oldest bytes, of one stream."""
        stream, raw = self._written[0]
        taken = bytes(raw[:most])
        del raw[:most]
        if not raw:
            self._written.popleft()
        self._size_bytes -= len(taken)
        return stream, taken

    def _shown(self) -> list[Piece[S]]:
        if self._together is not None:
            self._of_all.add(self._together.take_verdicts())
        while self._written and (most := self._of_all.next_bytes):
            stream, data = self._take(most)
            marker = self._of_all.take(len(data))
            self._lane(stream).waiting.append(_Waiting(self._position, data, marker))
            self._position += len(data)
        shown = [
            (position, stream, data)
            for stream, lane in self._lanes.items()
            for position, data in lane.leave()
        ]
        return [Piece(stream, data) for _, stream, data in sorted(shown, key=itemgetter(0))]


class _Waiting(NamedTuple):
    """Bytes of which it is known what they are together with the other streams'."""

    position: int
    data: bytes
    marker: bytes | None


class _Lane:
    """One stream: what its own redactor said, and what waits for that.

    It waits alone: a stream that goes on is shown before one of which the end is held.
    """

    def __init__(self) -> None:
        self.own: Final = _Verdicts()
        self.waiting: Final[deque[_Waiting]] = deque()

    def leave(self) -> Iterator[tuple[int, bytes]]:
        """What may be shown, each with its position among all that was written."""
        while self.waiting:
            position, data, joint = self.waiting[0]
            count = min(len(data), self.own.next_bytes)
            if count:
                markers = [self.own.take(count), joint]
            elif joint is not None:  # masked, whatever its own redactor will say
                count, markers = len(data), [joint]
                self.own.skip(count)
            else:
                break
            self.waiting.popleft()
            if rest := data[count:]:
                after = None if joint is None else b""
                self.waiting.appendleft(_Waiting(position + count, rest, after))
            if all(marker is None for marker in markers):
                yield position, data[:count]
            elif marker := _marker(markers):
                yield position, marker


def _marker(markers: Iterable[bytes | None]) -> bytes:
    """One for each union: none where one of both goes on, the stream's own where both begin."""
    begun = [marker for marker in markers if marker is not None]
    return begun[0] if all(begun) else b""


class _Verdicts:
    """What was said of bytes that have not left, in their order."""

    def __init__(self) -> None:
        self._waiting: deque[Verdict] = deque()
        self._skipped = 0  # so many bytes are gone already

    @property
    def next_bytes(self) -> int:
        """For how many bytes the same is known."""
        return self._waiting[0].size if self._waiting else 0

    def add(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            last = self._waiting[-1] if self._waiting else None
            if last is not None and last.marker is None and verdict.marker is None:
                self._waiting[-1] = Verdict(last.size + verdict.size, None)
            else:
                self._waiting.append(verdict)
        self.skip(0)

    def skip(self, size: int) -> None:
        """Leave out what is said of the next bytes, now or later."""
        self._skipped += size
        while self._skipped and self._waiting:
            count = min(self._skipped, self.next_bytes)
            self.take(count)
            self._skipped -= count

    def take(self, count: int) -> bytes | None:
        """Of the next `count` bytes: None if they are shown, else the marker, once."""
        verdict = self._waiting.popleft()
        if verdict.size > count:
            rest = None if verdict.marker is None else b""
            self._waiting.appendleft(Verdict(verdict.size - count, rest))
        return verdict.marker
