"""When a key may decide: the arming of a prompt (DESIGN §7).

It refuses to know keys, widgets and the clock: times are passed in, in seconds of one monotonic
clock, of the moment when a key arrived and not when it was handled.
Invariants:
- a prompt is armed after ARM_S without a key since it was drawn, and only by `poll`, after which
  its owner shows it; a key that arrived earlier never acts;
- armed, it stays armed until another subject is drawn or it was out of sight;
- running takes a deliberate key since arming, and no key without meaning since that one: typing
  that was meant for a shell decides nothing;
- keys that arrive together were not pressed one by one: the last of them decides nothing.
Pure.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

# DESIGN §7. Longer than the gap between two keys of someone who types without looking.
ARM_S: Final = 0.4
# A paste without brackets arrives in one read, its keys at one moment (`reading.py`), or in two
# that follow each other at once. The fastest fingers leave 20 ms between two keys, and a terminal
# repeats a held one every 30 ms.
BURST_S: Final = 0.015


class Press(Enum):
    """What a key may do."""

    IGNORED = "ignored"
    ACTS = "acts"
    ACTS_BUT_NEVER_DECIDES = "acts, but never decides"


class Guard:
    """The arming of the one prompt on the screen."""

    def __init__(self) -> None:
        self._subject = ""
        self._silent_since_s: float | None = None
        self._armed_at_s: float | None = None
        self._last_key_s: float | None = None
        self._is_deliberate = False

    @property
    def is_armed(self) -> bool:
        return self._armed_at_s is not None

    @property
    def is_counting(self) -> bool:
        """Whether it is drawn, and the silence before it is armed goes on."""
        return self._silent_since_s is not None and not self.is_armed

    @property
    def may_run(self) -> bool:
        """Whether Enter runs, if the press itself may decide."""
        return self.is_armed and self._is_deliberate

    def drawn(self, subject: str, at_s: float) -> None:
        """`subject` is on the screen since `at_s`; the same one again changes nothing."""
        if subject == self._subject and self._silent_since_s is not None:
            return
        self._subject = subject
        self._silent_since_s = at_s
        self._armed_at_s = None
        self._is_deliberate = False

    def hidden(self) -> None:
        """Nothing that can be decided is on the screen now."""
        self._silent_since_s = None
        self._armed_at_s = None
        self._is_deliberate = False

    def poll(self, at_s: float) -> bool:
        """Whether the prompt became armed by this look at the clock."""
        if self.is_armed or self._silent_since_s is None:
            return False
        if at_s - self._silent_since_s < ARM_S:
            return False
        self._armed_at_s = at_s
        return True

    def silence_left_s(self, at_s: float) -> float:
        """How long until `poll` may arm; 0 when it may now."""
        if self._silent_since_s is None:
            return ARM_S
        return max(0.0, self._silent_since_s + ARM_S - at_s)

    def press(self, at_s: float) -> Press:
        """What the key that arrived at `at_s` may do; before arming it starts the silence anew."""
        is_burst = self._last_key_s is not None and at_s - self._last_key_s < BURST_S
        self._last_key_s = at_s
        if self._armed_at_s is None:
            if self._silent_since_s is not None:
                self._silent_since_s = max(self._silent_since_s, at_s)
            return Press.IGNORED
        if at_s < self._armed_at_s:
            return Press.IGNORED
        return Press.ACTS_BUT_NEVER_DECIDES if is_burst else Press.ACTS

    def deliberate(self) -> None:
        """The operator ticked something, or moved to *Run*, with a key of the picker."""
        self._is_deliberate = self.is_armed

    def stray(self) -> None:
        """A key without meaning here, a paste, an edit: what was deliberate before is over."""
        self._is_deliberate = False
