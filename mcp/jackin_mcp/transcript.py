"""What is kept of one output stream: all of it up to a bound, and always its head and tail.

It refuses to know requests. Invariants: the true size is counted whatever is kept; what is shown
inline is cut between characters, and says how much is left out.
"""

from __future__ import annotations

from typing import Final

# In a tool's result: what an agent reads and pays for. Half is the head, half the tail.
INLINE_MAX_BYTES: Final = 64 * 1024
_HALF: Final = INLINE_MAX_BYTES // 2
# Of one stream, for the resource: a long build's log.
KEPT_MAX_BYTES: Final = 4 * 1024 * 1024
# Of all streams of one server, which lives as long as the agent's session.
SESSION_MAX_BYTES: Final = 64 * 1024 * 1024
_CHARACTER_MAX_BYTES: Final = 4


class Budget:
    """The bytes that one server may still keep beyond what it shows inline."""

    def __init__(self, size_bytes: int = SESSION_MAX_BYTES) -> None:
        self.left = size_bytes

    def take(self, size: int) -> int:
        """As much of `size` as there is."""
        taken = min(size, self.left)
        self.left -= taken
        return taken

    def give_back(self, size: int) -> None:
        """What was kept is forgotten."""
        self.left += size


class Transcript:
    """One stream of one request, as far as it is kept."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._kept = bytearray()  # from the beginning on
        self._tail = bytearray()  # the last bytes of what was not kept
        self._charged = 0
        self.size = 0

    def add(self, data: bytes) -> None:
        """The next bytes."""
        self.size += len(data)
        if len(self._kept) == self.size - len(data):  # nothing was left out so far
            room = self._room(len(data))
            self._kept += data[:room]
            data = data[room:]
        if data:
            self._tail = (self._tail + data)[-_HALF:]

    def _room(self, wanted: int) -> int:
        free = max(0, INLINE_MAX_BYTES - len(self._kept))
        more = min(wanted, KEPT_MAX_BYTES - len(self._kept)) - free
        if more <= 0:
            return min(wanted, free)
        taken = self._budget.take(more)
        self._charged += taken
        return free + taken

    def forget(self) -> None:
        """Nobody can ask for it any more."""
        self._budget.give_back(self._charged)
        self._charged = 0
        self._kept.clear()
        self._tail.clear()

    @property
    def is_whole(self) -> bool:
        """Whether every byte is kept."""
        return len(self._kept) == self.size

    @property
    def is_long(self) -> bool:
        """Whether it is more than what is shown inline."""
        return self.size > INLINE_MAX_BYTES

    def whole(self) -> bytes:
        """All that is kept, with a line in place of what is not."""
        if self.is_whole:
            return bytes(self._kept)
        missing = self.size - len(self._kept) - len(self._tail)
        return bytes(self._kept) + _left_out(missing, "were not kept") + bytes(self._tail)

    def inline(self, where: str) -> str:
        """Its text for a result; where it is too long, head and tail. `where` names the rest."""
        if not self.is_long:
            return self._kept.decode("utf-8", "replace")
        head = _cut_end(bytes(self._kept[:_HALF]))
        tail = _cut_start(bytes((self._kept[-_HALF:] + self._tail)[-_HALF:]))
        missing = self.size - len(head) - len(tail)
        cut = _left_out(missing, f"are left out here; {where}")
        return (head + cut + tail).decode("utf-8", "replace")


def _left_out(size: int, words: str) -> bytes:
    return f"\n[{size} bytes {words}]\n".encode()


def _cut_end(data: bytes) -> bytes:
    """Without a character that is not whole at its end."""
    for back in range(1, min(_CHARACTER_MAX_BYTES, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return data
        if byte >= 0xC0:  # the first of a character: how long is it?
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data if length == back else data[:-back]
    return data


def _cut_start(data: bytes) -> bytes:
    """Without the rest of a character at its start."""
    start = 0
    while start < min(_CHARACTER_MAX_BYTES - 1, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:]
