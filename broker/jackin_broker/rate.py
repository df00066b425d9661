"""A token bucket: so many at once, so many a second after that.

Pure: the time is passed in, as monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TokenBucket:
    """Holds at most `burst` tokens and gets `per_s` of them each second."""

    burst: float
    per_s: float
    _level: float = -1.0
    _at: float = 0.0

    def take(self, now: float, count: float = 1) -> bool:
        """Whether there were so many tokens; they are gone then."""
        if self._level < 0:
            self._level, self._at = self.burst, now
        self._level = min(self.burst, self._level + (now - self._at) * self.per_s)
        self._at = now
        if self._level < count:
            return False
        self._level -= count
        return True
