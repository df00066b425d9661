"""Bytes through one pipe, without ever blocking and without ever holding the whole.

It refuses to know processes and redaction. Invariants: at most one read's worth of output is in
our hands at a time; a paused pump reads nothing, so the writer blocks and we do not; input is
written when the pipe takes it and dropped when nobody will read it.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from ..frames import Stream
from .spec import OutputSink

# A pipe's default capacity: one read takes all that one write of a busy child left there.
READ_BYTES: Final = 64 * 1024
# Reads before the loop gets its turn; more starve the other commands, fewer cost a poll each.
_READS_PER_TURN: Final = 4
# What a closed-off pipe may still hold: twice the largest that an ordinary user can set (1 MiB).
_SWEEP_MAX_BYTES: Final = 2 * 1024 * 1024


class OutputPump:
    """Reads one stream of a command into the sink. Owns `fd`, which is non-blocking."""

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
            self._unregister()
            os.close(self._fd)

    def _readable(self) -> None:
        for _ in range(_READS_PER_TURN):
            if self._is_paused or self.is_ended or self._read() < READ_BYTES:
                return

    def _read(self) -> int:
        """How many bytes went to the sink; 0 when there are none now, or none any more."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:  # a pipe's read end fails only when it is gone: that is its end
            data = b""
        if not data:
            self._end()
            return 0
        self._sink.output(self._stream, data)
        return len(data)

    def _unregister(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _end(self) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        self._unregister()
        os.close(self._fd)
        self._sink.output_end(self._stream)
        self._on_end()


class InputPump:
    """Writes a command's stdin. Owns `fd`, which is non-blocking; -1 stands for no stdin."""

    def __init__(self, fd: int, sink: OutputSink) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._sink = sink
        self._queue: deque[memoryview] = deque()
        self._is_waiting = False
        self._ends = False

    def write(self, data: bytes) -> None:
        """Pass on or queue; what nobody will read is dropped and counts as consumed."""
        if self._fd < 0 or self._ends:
            self._sink.stdin_consumed(len(data))
        elif data:
            self._queue.append(memoryview(data))
            if not self._is_waiting:
                self._flush()

    def close_after_queue(self) -> None:
        """End of input, once what is queued has been written."""
        self._ends = True
        if not self._queue:
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
        dropped = sum(len(piece) for piece in self._queue)
        self._queue.clear()
        if dropped:
            self._sink.stdin_consumed(dropped)

    def _flush(self) -> None:
        while self._queue:
            piece = self._queue[0]
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
                self._queue[0] = piece[size:]
            self._sink.stdin_consumed(size)
        if self._is_waiting:
            self._loop.remove_writer(self._fd)
            self._is_waiting = False
        if self._ends:
            self.close()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.add_writer(self._fd, self._flush)
