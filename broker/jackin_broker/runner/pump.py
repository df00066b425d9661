"""Bytes through one pipe or terminal, without ever blocking and without ever holding the whole.

It refuses to know processes and redaction. Invariants: at most one read's worth of output is in
our hands at a time; a paused pump reads nothing, so the writer blocks and we do not; only what
floods waits for more of it, and never longer than REST_S; input is written when the pipe takes it
and dropped when nobody will read it; input that is held back waits in the queue, which the
caller's credit bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

from ..frames import Stream
from ..protocol import DATA_FRAME_MAX_BYTES
from .flood import Flood
from .spec import OutputSink

# A pipe's default capacity: one read takes all that one write of a busy child left there.
READ_BYTES: Final = 64 * 1024
# A terminal gives no more at a read (pty(7)); what lies behind it is taken too, or each line would
# cost a turn of the loop, a frame and a redaction (measured: 2.5 times as long in all).
TERMINAL_READ_BYTES: Final = 4096
# What the pipe of a command that fills it is widened to: the redactor and the loop cost less a byte
# (measured: 1.3 times as fast in all). More would be cold in the cache before it is read.
BUSY_PIPE_BYTES: Final = 256 * 1024
# And where we are the faster ones: what any user may have (pipe(7)), and what a fast writer fills
# while we rest.
WIDE_PIPE_BYTES: Final = 1024 * 1024
# All of them together: the kernel counts a user's pipes, and shrinks whatever that user opens
# beyond 64 MiB to two pages, the operator's own programs too. The others keep their 64 KiB.
WIDENED_MAX_BYTES: Final = 24 * WIDE_PIPE_BYTES
# How long a flood that we have caught up with gathers: the loop's own resolution.
REST_S: Final = 0.001
# What is read of it at once: whole pages, and no more than fits one frame.
BUSY_READ_BYTES: Final = DATA_FRAME_MAX_BYTES - 4096
# What is read before the loop gets its turn; more starves the other commands.
_TURN_BYTES: Final = 256 * 1024
# What a closed-off pipe may still hold: twice the largest that an ordinary user can set (1 MiB).
_SWEEP_MAX_BYTES: Final = 2 * 1024 * 1024
# Ctrl-C, Ctrl-Z and Ctrl-\, where nobody set other keys (termios(3)).
_STOPPING_KEYS: Final = b"\x03\x1a\x1c"


class OutputPump:
    """Reads one stream of a command into the sink. Owns `fd`, which is non-blocking."""

    _widened: ClassVar[dict[OutputPump, int]] = {}  # to how many bytes

    def __init__(
        self, fd: int, stream: Stream, sink: OutputSink, on_end: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._stream = stream
        self._sink = sink
        self._on_end = on_end
        self._is_reading = False
        self._is_paused = False
        self._read_bytes = self._asked_bytes = READ_BYTES
        self._flood = Flood()
        self._rest: asyncio.TimerHandle | None = None
        self.is_ended = False

    def start(self) -> None:
        """Begin to read, unless paused."""
        if not (self._is_reading or self._is_paused or self.is_ended):
            self._is_reading = True
            self._loop.add_reader(self._fd, self._readable)

    def pause(self) -> None:
        """Read no more until `resume`."""
        self._is_paused = True
        self._unregister()

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        self.start()

    def finish(self) -> None:
        """Take what the pipe holds at this moment, then end the stream."""
        left = _SWEEP_MAX_BYTES
        while left > 0 and not self.is_ended:
            size = self._read()
            if size == 0:
                break
            left -= size
        self._end()

    def close(self) -> None:
        """End the stream without a look at what is left in it."""
        self._end()

    def discard(self) -> None:
        """End without a word to anyone: the command never ran."""
        if not self.is_ended:
            self.is_ended = True
            self._leave()

    def _readable(self) -> None:
        left = _TURN_BYTES
        while left > 0 and self._is_reading:
            size = self._read()
            floods = self._flood.rises(self._loop.time(), size)
            is_caught_up = size < self._read_bytes
            if is_caught_up:
                if floods:
                    self._let_gather()
                return
            left -= size
            self._widen(BUSY_PIPE_BYTES)

    def _let_gather(self) -> None:
        """Look again when there is more to see, if there is room for it."""
        self._widen(WIDE_PIPE_BYTES)
        if self._is_reading and self._widened.get(self) == WIDE_PIPE_BYTES:
            self._loop.remove_reader(self._fd)
            self._rest = self._loop.call_later(REST_S, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> int:
        """How many bytes went to the sink; 0 when there are none now, or none any more."""
        try:
            data = os.read(self._fd, self._read_bytes)
        except BlockingIOError:
            return 0
        except OSError:  # a pipe's read end fails only when it is gone: that is its end
            data = b""
        if not data:
            self._end()
            return 0
        if len(data) <= TERMINAL_READ_BYTES:
            data = self._gather(data)
        self._sink.output(self._stream, data)
        return len(data)

    def _widen(self, size_bytes: int) -> None:
        """Have more come at a read; where there is no more to give, once is enough to ask."""
        if self.is_ended or self._asked_bytes >= size_bytes:
            return
        self._asked_bytes = size_bytes
        self._read_bytes = BUSY_READ_BYTES
        others = sum(self._widened.values()) - self._widened.get(self, 0)
        if others + size_bytes <= WIDENED_MAX_BYTES:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, size_bytes)
                self._widened[self] = size_bytes

    def _gather(self, first: bytes) -> bytes:
        """A small piece, and the small pieces that are there already; an end is left to be read."""
        pieces, room = [first], READ_BYTES - len(first)
        while room > 0:
            try:
                more = os.read(self._fd, room)
            except OSError:
                break
            if not more:
                break
            pieces.append(more)
            room -= len(more)
        return b"".join(pieces)

    def _unregister(self) -> None:
        if self._is_reading:
            self._is_reading = False
            if self._rest is not None:
                self._rest.cancel()
                self._rest = None
            else:
                self._loop.remove_reader(self._fd)

    def _leave(self) -> None:
        self._unregister()
        self._widened.pop(self, None)
        os.close(self._fd)

    def _end(self) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        self._leave()
        self._sink.output_end(self._stream)
        self._on_end()


class InputPump:
    """Writes a command's stdin. Owns `fd`, which is non-blocking; -1 stands for no stdin.

    `last_words` says, at the end of input, what a terminal is told instead of closing it.
    """

    def __init__(
        self, fd: int, sink: OutputSink, last_words: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._sink = sink
        self._last_words = last_words
        self._last_byte = b"\n"
        # Pairs: the piece, and whether it counts as the caller's.
        self._queue: deque[tuple[memoryview, bool]] = deque()
        self._held: list[bytes] | None = None
        self._is_waiting = False
        self._ends = False

    def write(self, data: bytes) -> None:
        """Pass on or queue; what nobody will read is dropped and counts as consumed."""
        if self._fd < 0 or self._ends:
            self._sink.stdin_consumed(len(data))
        elif self._held is not None:
            self._hold(data)
        elif data:
            self._last_byte = data[-1:]
            self._enqueue(data, is_callers=True)

    def _hold(self, data: bytes) -> None:
        """Keep it for `release`, but for the keys with which a person stops a command."""
        assert self._held is not None
        keys = bytes(byte for byte in data if byte in _STOPPING_KEYS)
        if keys:
            self._enqueue(keys, is_callers=True)
        if len(keys) < len(data):
            self._held.append(bytes(byte for byte in data if byte not in _STOPPING_KEYS))

    def type(self, data: bytes) -> None:
        """Write what is not the caller's, also while the caller's input is held back."""
        if self._fd >= 0:
            self._enqueue(data, is_callers=False)

    def hold(self) -> None:
        """What the caller writes waits from now on."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Pass on what waited, and what comes."""
        held, self._held = self._held or [], None
        ends, self._ends = self._ends, False
        for data in held:
            self.write(data)
        if ends:
            self.close_after_queue()

    def close_after_queue(self) -> None:
        """End of input, once what is queued has been written; a terminal stays open."""
        if self._held is None and not self._ends and self._last_words is not None:
            self.type(self._last_words(self._last_byte))
        self._ends = True
        if not self._queue and self._held is None and self._last_words is None:
            self.close()

    def close(self) -> None:
        """End of input at once; what is queued is dropped."""
        if self._fd < 0:
            return
        if self._is_waiting:
            self._loop.remove_writer(self._fd)
            self._is_waiting = False
        os.close(self._fd)
        self._fd = -1
        dropped = sum(len(piece) for piece, is_callers in self._queue if is_callers)
        dropped += sum(map(len, self._held or ()))
        self._queue.clear()
        self._held = None
        if dropped:
            self._sink.stdin_consumed(dropped)

    def _enqueue(self, data: bytes, *, is_callers: bool) -> None:
        self._queue.append((memoryview(data), is_callers))
        if not self._is_waiting:
            self._flush()

    def _flush(self) -> None:
        while self._queue:
            piece, is_callers = self._queue[0]
            try:
                size = os.write(self._fd, piece)
            except BlockingIOError:
                self._wait()
                return
            except OSError:  # the command closed its stdin: its right, and no error
                self.close()
                return
            if size == len(piece):
                self._queue.popleft()
            else:
                self._queue[0] = (piece[size:], is_callers)
            if is_callers:
                self._sink.stdin_consumed(size)
        if self._is_waiting:
            self._loop.remove_writer(self._fd)
            self._is_waiting = False
        if self._ends and self._held is None and self._last_words is None:
            self.close()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.add_writer(self._fd, self._flush)
