"""The streaming matcher: bytes in, bytes out, every needle replaced by a marker.

Pure. Refuses to know processes, terminals and time: `idle` is told that some has passed.

Invariants
- how the input is cut into `feed`s never changes the whole output;
- what is held is the longest tail that a needle could still begin with (an unfinished escape
  included) or the rest of a masked run; so memory is bounded by the longest needle, and a byte
  that cannot begin a needle leaves at once;
- one marker for each union of overlapping occurrences; it leaves when its start is certain,
  `_cover` remembers how many held bytes it stands for;
- bytes outside every occurrence leave as they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from jackin_broker.redact.budget import Depth, NearMisses, depth_of
from jackin_broker.redact.matching import NOBODY, Begun, Matching, Span, unions
from jackin_broker.redact.needles import MAX_IDLE_BYTES, NeedleSet
from jackin_broker.redact.projection import project, unfinished_escape

# A needle added late is looked for in this much of what was already shown, to mask its rest.
_SHOWN_BYTES: Final = 1024
# An escape is a `%` and two digits: this much text in front may change how digits read.
_CONTEXT_BYTES: Final = 2


class Verdict(NamedTuple):
    """What became of the next `size` raw bytes: shown (None), or masked by this marker.

    The rest of a masked run has an empty one.
    """

    size: int
    marker: bytes | None


class Redactor:
    """One stream's redactor. `redacted_count` is the number of markers so far."""

    def __init__(self, needles: NeedleSet, *, keeps_verdicts: bool = False) -> None:
        self._set = needles
        self._held = b""
        self._cover = 0  # so many held bytes a marker stands for that has left already
        self._done = 0  # so many held bytes have themselves left already
        self._context = b""
        self._shown = b""
        self._suspects: dict[tuple[int, str], Depth] = {}
        self._misses: dict[str, NearMisses] = {}
        self._verdicts: list[Verdict] | None = [] if keeps_verdicts else None
        self.redacted_count = 0

    def __repr__(self) -> str:
        return f"<redactor, {len(self._held)} bytes held>"

    @property
    def held_bytes(self) -> int:
        """How many bytes wait for what follows them."""
        return len(self._held)

    def feed(self, data: bytes) -> bytes:
        """What may leave now. With nothing to look for, `data` itself."""
        if not self._held and not len(self._set):
            self._say(len(data), None)
            return data
        raw = self._held + data if self._held else data
        cut = unfinished_escape(raw)
        matching = Matching(self._set, raw[:cut] if cut < len(raw) else raw, self._context)
        begun, missed = matching.tail()
        text = matching.view.text
        gone = min((b.at for b in begun), default=len(text))
        self._context = (self._context + text[:gone])[-_CONTEXT_BYTES:]
        limit = min((b.start for b in begun), default=cut)
        out = self._let_go(raw, limit, matching.spans(), missed)
        self._suspect(begun, limit)
        return out

    def idle(self) -> bytes:
        """What may leave because no data came for a while: at most MAX_IDLE_BYTES of a needle.

        They stay in the match: what completes a needle is still masked. For terminals only.
        """
        out = self.feed(b"")
        held = self._held
        seen = held if self._set.has_escapes else held[: unfinished_escape(held)]
        text = project(seen)
        if len(text) > MAX_IDLE_BYTES:
            return out
        if any(text[at:] in self._set.short_heads for at in range(len(text))):
            return out
        shown = held[max(self._done, self._cover) :]
        self._say(self._cover - self._done, b"")
        self._say(len(shown), None)
        out += shown
        self._done = len(held)
        return out

    def finish(self) -> bytes:
        """The rest, at the end of the stream, at a kill, at a limit.

        A held head of a needle is masked if it is long: the end of the stream cut it off.
        """
        matching = Matching(self._set, self._held, self._context)
        spans = matching.spans()
        whole = unions(spans, self._cover)
        begun, missed = matching.tail()
        spans = spans + matching.cut_off(begun)
        out = self._let_go(self._held, len(self._held), spans, missed)
        self._suspect([head for head in begun if not _is_within(head.start, whole)], 0)
        self._count((name, depth) for (_, name), depth in self._suspects.items())
        self._suspects = {}
        return out

    def replace_needles(self, needles: NeedleSet) -> None:
        """Look for these from now on, also in what is held and in what was last shown."""
        moved = len(self._shown)
        self._suspects = {(at + moved, who): depth for (at, who), depth in self._suspects.items()}
        self._held = self._shown + self._held
        self._done += moved
        self._shown = b""
        self._context = b""
        self._set = needles

    def take_near_misses(self) -> dict[str, NearMisses]:
        """The near misses of each binding since the last call (see `budget`)."""
        misses, self._misses = self._misses, {}
        return misses

    def take_verdicts(self) -> list[Verdict]:
        """What became of every byte since the last call, in order; those held are not in it.

        Only for a redactor that keeps them.
        """
        if self._verdicts is None:
            return []
        verdicts, self._verdicts = self._verdicts, []
        return verdicts

    def _let_go(self, raw: bytes, limit: int, spans: list[Span], missed: list[Begun]) -> bytes:
        """raw[:limit] with markers; the rest is held."""
        out: list[bytes] = []
        end = 0
        masked = [u for u in unions(spans, self._cover) if u.start < limit or u.owner == NOBODY]
        for union in masked:
            out.append(raw[max(end, self._done) : union.start])
            if union.owner != NOBODY:
                out.append(self._set.markers[union.owner])
                self.redacted_count += 1
            end = union.end
        if self._verdicts is not None:
            self._say_of(limit, masked)
        rest = raw[end:limit]
        self._shown = (rest if masked else self._shown + rest)[-_SHOWN_BYTES:]
        out.append(raw[max(end, self._done) : limit])
        self._settle(limit, masked, missed)
        self._held = raw[limit:]
        self._cover = max(0, end - limit)
        self._done = max(0, self._done - limit)
        return b"".join(out)

    def _say_of(self, limit: int, masked: Iterable[Span]) -> None:
        """Say of raw[done:limit] what becomes of it."""
        said = self._done
        for start, end, owner in masked:
            self._say(start - said, None)
            said = max(said, start)
            marker = b"" if owner == NOBODY else self._set.markers[owner]
            self._say(min(end, limit) - said, marker)
            said = max(said, min(end, limit))
        self._say(limit - said, None)

    def _say(self, size: int, marker: bytes | None) -> None:
        if size > 0 and self._verdicts is not None:
            self._verdicts.append(Verdict(size, marker))

    def _suspect(self, begun: Iterable[Begun], limit: int) -> None:
        """Remember the heads that wait, to count them if they leave."""
        for head in begun:
            depth = self._depth(head)
            key = (head.start - limit, self._name(head))
            if depth is not None and self._suspects.get(key) is not Depth.DEEP:
                self._suspects[key] = depth

    def _settle(self, limit: int, masked: list[Span], missed: list[Begun]) -> None:
        """Count what leaves unmasked, heads that waited and such as never did; others wait on."""
        gone: list[tuple[str, Depth]] = []
        waiting: dict[tuple[int, str], Depth] = {}
        for (at, name), depth in self._suspects.items():
            if at >= limit:
                waiting[at - limit, name] = depth
            elif not _is_within(at, masked):
                gone.append((name, depth))
        for head in missed:
            failed = self._depth(head)
            if failed is not None and head.start < limit and not _is_within(head.start, masked):
                gone.append((self._name(head), failed))
        self._suspects = waiting
        self._count(gone)

    def _depth(self, head: Begun) -> Depth | None:
        size = len(head.needle.text)
        if head.head_bytes == size:
            return None
        return depth_of(head.head_bytes, size, head.needle.public)

    def _name(self, head: Begun) -> str:
        return self._set.names[head.needle.owner]

    def _count(self, gone: Iterable[tuple[str, Depth]]) -> None:
        """One miss for each binding, however many of its forms were begun: one guess was made."""
        deepest: dict[str, Depth] = {}
        for name, depth in gone:
            if deepest.get(name) is not Depth.DEEP:
                deepest[name] = depth
        for name, depth in deepest.items():
            self._misses.setdefault(name, NearMisses()).add(depth)


def redact_all(needles: NeedleSet, data: bytes) -> bytes:
    """`data` as a whole stream of its own, redacted."""
    redactor = Redactor(needles)
    return redactor.feed(data) + redactor.finish()


def redact_parts(needles: NeedleSet, parts: Sequence[bytes]) -> tuple[bytes, ...]:
    """Each part redacted. Shape: no part holds a NUL.

    An agent gives a command 65,536 arguments, a redactor each takes seconds: so all of them go
    through one, and only where a value reaches from one part into the next each has its own.
    """
    together = redact_all(needles, b"\0".join(parts)).split(b"\0")
    if len(together) == len(parts):
        return tuple(together)
    return tuple(redact_all(needles, part) for part in parts)


def _is_within(at: int, spans: Iterable[Span]) -> bool:
    return any(span.start <= at < span.end for span in spans)
