"""How much of what a peer sends is worked on at once, and how long it then rests.

What costs is not bytes but pieces: a quarter megabyte that arrives as one-byte chunks is tens of
thousands of them, and while they are taken apart nobody else is served. So a turn of the loop takes
a slice of them; one that holds more pieces than its size excuses is paid for with a rest. Whoever
shares a pace shares its rests. It refuses to know what pieces are. Invariant: pieces of a sensible
size never rest. Pure: time is passed in.
"""

from __future__ import annotations

from typing import Final

# Worked on in one turn, as bytes where pieces can only be found by taking them, or as pieces: ten
# milliseconds of tiny ones.
SLICE_BYTES: Final = 4096
SLICE_PIECES: Final = 512
# What a slice's bytes may be without a rest: pieces of a few hundred bytes, as programs write them.
FREE_PIECES: Final = 16
# More than any client needs that writes line by line; a twentieth of the loop's time.
PIECES_PER_S: Final = 5000


class Pace:
    """The rests of those who share it."""

    def __init__(self) -> None:
        self._is_paid_at = 0.0

    def rest_s(self, now: float, pieces: int, size_bytes: int) -> float:
        """For how long the peer is not listened to after so many pieces that were so many bytes."""
        charged = pieces - FREE_PIECES * max(1.0, size_bytes / SLICE_BYTES)
        if charged <= 0:
            return 0.0
        self._is_paid_at = max(self._is_paid_at, now) + charged / PIECES_PER_S
        return self._is_paid_at - now
