"""The caller's standard input: what kind it is, and reading it without ever waiting for it.

Loaded unless stdin is /dev/null or closed. It refuses to know frames and the broker.
Invariants: at most WAIT_S is spent before the command is asked for, none of it on a terminal or a
regular file; no more than CLOSED_MAX_BYTES is held; the descriptor's flags are never changed,
others share them.
"""

import posix
import select
import time

# protocol.py's CLOSED_STDIN_WAIT_MS and CLOSED_STDIN_MAX_BYTES; a test compares them.
WAIT_S = 0.05
CLOSED_MAX_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024  # what a pipe holds (pipe(7))
_REGULAR = 0o100000  # S_IFREG of inode(7)
_TYPE_MASK = 0o170000


class Stdin:
    """`kind` is `closed` when all of it is in `held`, else `live`."""

    def __init__(self, mode: int) -> None:
        self.is_terminal = posix.isatty(0)
        self.is_ended = False
        self.held = b""
        if self.is_terminal:
            return
        if mode & _TYPE_MASK == _REGULAR:
            self._gather(None)
        else:
            self._gather(time.monotonic() + WAIT_S)

    @property
    def kind(self) -> str:
        return "closed" if self.is_ended else "live"

    def _gather(self, deadline: "float | None") -> None:
        """Read until the end, the limit, or the deadline (none for what cannot block)."""
        pieces: list[bytes] = []
        room = CLOSED_MAX_BYTES + 1  # one more byte shows that it is not over
        poller = select.poll()
        poller.register(0, select.POLLIN)
        while room > 0 and not self.is_ended:
            if deadline is not None:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not poller.poll(left_s * 1000):
                    break
            piece = self._read(min(room, CHUNK_BYTES))
            pieces.append(piece)
            room -= len(piece)
        self.held = b"".join(pieces)

    def take(self, limit: int) -> bytes:
        """At most `limit` bytes that are here already or can be read now."""
        if self.held:
            piece, self.held = self.held[:limit], self.held[limit:]
            return piece
        return self._read(min(limit, CHUNK_BYTES))

    def _read(self, size: int) -> bytes:
        try:
            piece = posix.read(0, size)
        except BlockingIOError:
            return b""
        except OSError:  # a hung-up terminal, a directory, a descriptor for writing: no more comes
            piece = b""
        self.is_ended = not piece
        return piece

    @property
    def is_ours(self) -> bool:
        """Whether reading is not stopped with SIGTTIN, as it is in a terminal's background."""
        if not self.is_terminal:
            return True
        try:
            return posix.tcgetpgrp(0) == posix.getpgrp()
        except OSError:  # not our controlling terminal: no job control on it
            return True
