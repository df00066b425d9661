"""The streaming matcher: bytes in, bytes out, every needle replaced by its marker.

Pure. Bytes without a needle leave as they came. What is held back is exactly the longest tail
that could still become a needle; how the input is cut never changes the whole output.
"""

from __future__ import annotations

from jackin_broker.redact.needles import MIN_NEEDLE_BYTES, NeedleSet


class Redactor:
    """One stream's redactor."""

    def __init__(self, needles: NeedleSet) -> None:
        self._needles = needles
        self._held = b""
        self._cover = 0
        self.redacted_count = 0

    def __repr__(self) -> str:
        return f"<redactor, {len(self._held)} bytes held>"

    def feed(self, data: bytes) -> bytes:
        """What may leave now."""
        if not self._needles and not self._held:
            return data
        data = self._held + data if self._held else data
        return self._emit(data, self._limit(data), self._spans(data))

    def idle(self) -> bytes:
        """Called after some time without data: what may leave although it is held."""
        return b""

    def finish(self) -> bytes:
        """The rest. A held tail of MIN_NEEDLE_BYTES or more is masked (the stream was cut)."""
        data = self._held
        limit, spans = self._limit(data), self._spans(data)
        if len(data) - limit >= MIN_NEEDLE_BYTES:
            tail = data[limit:]
            name = next(o for t, o in self._needles.owner_of.items() if t.startswith(tail))
            spans.append((limit, len(data), name))
        return self._emit(data, len(data), spans)

    def replace_needles(self, needles: NeedleSet) -> None:
        """Use these needles from now on; held bytes are searched again."""
        self._needles = needles

    def _limit(self, data: bytes) -> int:
        first = max(0, len(data) - self._needles.longest + 1)
        for at in range(first, len(data)):
            if self._needles.begins_with(data[at:]):
                return at
        return len(data)

    def _spans(self, data: bytes) -> list[tuple[int, int, str]]:
        spans: list[tuple[int, int, str]] = []
        for text, name in self._needles.owner_of.items():
            at = data.find(text)
            while at >= 0:
                spans.append((at, at + len(text), name))
                at = data.find(text, at + 1)
        return spans

    def _emit(self, data: bytes, limit: int, spans: list[tuple[int, int, str]]) -> bytes:
        out: list[bytes] = []
        end = self._cover
        for start, stop, name in sorted(spans, key=lambda s: (s[0], -s[1])):
            if start >= limit:
                break
            if start >= end:
                out.append(data[end:start])
                out.append(self._needles.markers[name])
                self.redacted_count += 1
            end = max(end, stop)
        if end < limit:
            out.append(data[end:limit])
        self._held, self._cover = data[limit:], max(0, end - limit)
        return b"".join(out)


def redact_all(needles: NeedleSet, data: bytes) -> bytes:
    """`data` as a whole stream of its own, redacted."""
    redactor = Redactor(needles)
    return redactor.feed(data) + redactor.finish()
