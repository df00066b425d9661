"""Whether a stream comes so fast that waiting for more of it is cheaper than taking it at once.

Who is faster than a busy writer gets each of its writes on its own, a few KiB, and pays a turn of
the loop, a frame and a reader's wake-up for each (measured: half of what output cost in all). It
refuses to know descriptors. Invariant: what comes slowly, or in one short burst, is no flood.
Pure: time is passed in.
"""

from __future__ import annotations

from typing import Final

# So much within so long, 64 MiB/s: a build's log, a prompt and a full screen stay far below.
FLOOD_BYTES: Final = 256 * 1024
WINDOW_S: Final = 0.004


class Flood:
    """How much of one stream came lately."""

    def __init__(self) -> None:
        self._began_at = float("-inf")
        self._size_bytes = 0

    def rises(self, now: float, size_bytes: int) -> bool:
        """Whether the stream floods, now that so many bytes came."""
        if now - self._began_at > WINDOW_S:
            self._began_at, self._size_bytes = now, 0
        self._size_bytes += size_bytes
        return self._size_bytes >= FLOOD_BYTES
