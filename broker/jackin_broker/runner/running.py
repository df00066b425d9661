"""One command that runs: its streams, its signals, its end.

It refuses to know how it was started and what is done with its output. The state is in three
steps: started, ended (the command was reaped; its output drains), settled (`wait` answers).
Invariants: the first reason to end is the one that is told; while its reader is paused, the clock
of the drain stands still, so that a slow reader loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ..frames import Stream
from ..protocol import EXIT_ENDED, EXIT_SIGNAL_BASE, EndedBy
from . import leader
from .descriptors import MESSAGE_MAX_BYTES, Ours, read_diagnosis, receive
from .failures import refusal_for, unexplained
from .pump import InputPump, OutputPump
from .spec import Ended, OutputSink, RunSpec
from .terminal import Terminal
from .warden import Forked

# After KILL was ordered of the leader: it may be stopped, or itself be dead to the world.
_LAST_RESORT_S: Final = 2.0
# A leader that was let go: TERM, its grace, KILL; then it is its own turn.
_LEAVE_LIMIT_S: Final = leader.LEFTOVER_GRACE_S + 3.0
# DESIGN §9: within two seconds of its caller's end nothing of the command is left.
_CALLER_GONE_GRACE_S: Final = leader.LEFTOVER_GRACE_S
# A command that was ended for these does not wait for a reader who stopped reading.
_FORFEITING: Final = frozenset(
    {
        EndedBy.CALLER_GONE,
        EndedBy.CANCELLED,
        EndedBy.OPERATOR,
        EndedBy.BROKER_STOPPING,
        EndedBy.GUESSING,
    }
)


class Running:
    """A command. Made by `host.start` alone."""

    def __init__(self, spec: RunSpec, sink: OutputSink, ours: Ours, forked: Forked) -> None:
        self._loop = asyncio.get_running_loop()
        # Without values: they are not kept for as long as a command runs.
        self._spec = replace(spec, env={}, files=(), prompts=())
        self.pid = forked.pid
        # The command's own number where it runs; `pid` is bubblewrap's for a confined one.
        self.inner_pid = 0
        # The bindings whose values were typed so far (prompting.py).
        self.typed: Sequence[str] = ()
        # Called with the signal's number when the command was stopped, not ended.
        self.on_stopped: Callable[[int], None] | None = None
        self._pidfd = forked.pidfd
        self._control, self._diagnosis = ours.control, ours.diagnosis
        self._sink = sink
        # Of a command with a terminal, once it was made; it is there when `start` returns.
        self.terminal: Terminal | None = None
        self._stdin = InputPump(ours.stdin, sink)
        self._outputs: tuple[OutputPump, ...] = ()
        if spec.terminal is None:
            self._outputs = (
                OutputPump(ours.stdout, Stream.STDOUT, sink, self._output_ended),
                OutputPump(ours.stderr, Stream.STDERR, sink, self._output_ended),
            )
        self._is_paused = False
        self._end_by: EndedBy | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._drain_timer: asyncio.TimerHandle | None = None
        self._drain_left_s = spec.drain_s
        self._drain_since = 0.0
        self._drain_ends_at = float("inf")
        self._started_at = self._loop.time()
        self._ended_at: float | None = None
        self._status: int | None = None
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._settled: asyncio.Future[Ended] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._control, self._reported)
        self._loop.add_reader(self._pidfd, self._left)

    def __repr__(self) -> str:
        return f"<running {self._spec.name} {self.pid}>"

    @property
    def has_ended(self) -> bool:
        """Whether the command was reaped; its output may still drain."""
        return self._ended_at is not None

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end: nothing is typed for it any more."""
        return self._end_by is not None

    # --- for host.start -----------------------------------------------------------------

    async def started(self) -> None:
        """Return when the command runs.

        Raises: Refusal when it could not be started.
        """
        await self._started

    def abort(self) -> None:
        """It did not start, or nobody wants it: leave nothing behind, tell the sink nothing."""
        for pump in self._outputs:
            pump.discard()
        self._settle()

    # --- what a session does ------------------------------------------------------------

    def write_stdin(self, data: bytes) -> None:
        """Pass input on; what is queued is bounded by the caller's credit, not here."""
        self._stdin.write(data)

    def close_stdin(self) -> None:
        """End of input, after what was written before."""
        self._stdin.close_after_queue()

    def hold_stdin(self) -> None:
        """What the caller writes reaches the command only after `release_stdin`."""
        self._stdin.hold()

    def release_stdin(self) -> None:
        """Pass on what was held, and what comes."""
        self._stdin.release()

    def type_in(self, data: bytes) -> None:
        """Type what is not the caller's, also while the caller's input is held."""
        self._stdin.type(data)

    def resize(self, rows: int, cols: int) -> None:
        """Give the terminal this size; nothing without one."""
        if self.terminal is not None:
            self.terminal.resize(rows, cols)

    def send_signal(self, number: int) -> None:
        """Deliver a signal to the command's process group, once."""
        if self._ended_at is None:
            self._order(b"signal %d" % number)

    def pause_output(self) -> None:
        """Read no more output: the command blocks when its pipe is full, and we do not."""
        self._is_paused = True
        for pump in self._outputs:
            pump.pause()
        if self._end_by not in _FORFEITING:
            self._stop_drain_clock()

    def resume_output(self) -> None:
        """Read again."""
        self._is_paused = False
        self._run_drain_clock()
        for pump in self._outputs:
            pump.resume()

    def end(self, by: EndedBy) -> None:
        """TERM for the whole tree, then KILL after the grace; `wait` says how it went."""
        if self._settled.done():
            return
        if self._ended_at is not None:
            if by in _FORFEITING:
                self._forfeit()
            return
        if self._end_by is not None:
            return
        self._end_by = by
        grace_s = self._spec.grace_s
        if by is EndedBy.CALLER_GONE:
            grace_s = min(grace_s, _CALLER_GONE_GRACE_S)
            # Its tree gets KILL at that time, also where the command itself ended before.
            self._drain_ends_at = self._loop.time() + grace_s
        self._order(b"end")
        self._later(grace_s, lambda: self._order(b"kill"))
        self._later(grace_s + _LAST_RESORT_S, self._kill_leader)

    async def wait(self) -> Ended:
        """How the command ended, once its output is out. May be awaited more than once."""
        return await asyncio.shield(self._settled)

    async def gone(self) -> None:
        """Return when nothing of the command's tree is left."""
        await asyncio.shield(self._gone)

    # --- what the leader reports --------------------------------------------------------

    def _reported(self) -> None:
        try:
            if self._awaits_descriptor:
                message, descriptor = receive(self._control)
                if descriptor >= 0:
                    self._take_descriptor(message, descriptor)
                    return
            else:
                message = os.read(self._control, MESSAGE_MAX_BYTES)
            words = message.split()
        except BlockingIOError:
            return
        except OSError:  # gone, or no descriptor left for the terminal
            words = []
        try:
            self._take_report(words)
        except ValueError:
            # A command may take over the leader of its own namespace; that ends it, no more.
            self._leader_left()

    @property
    def _awaits_descriptor(self) -> bool:
        """Whether the next message may bring one."""
        return self._spec.terminal is not None and self.terminal is None

    def _take_descriptor(self, message: bytes, fd: int) -> None:
        """What came with a message of the leader's: its terminal."""
        _ = message
        self._take_terminal(fd)

    def _take_report(self, words: list[bytes]) -> None:
        """Raises: ValueError for what no leader of ours says."""
        has_started = self._started.done()
        match words:
            case [b"started", pid] if not has_started and self._outputs:
                self._begin(int(pid))
            case [b"failed", stage, code] if not has_started:
                self._fail(refusal_for(stage, int(code), self._spec.executable))
            case [b"stopped", number] if has_started:
                if self.on_stopped is not None:
                    self.on_stopped(int(number))
            case [b"ended", status] if has_started and self._ended_at is None:
                self._command_ended(int(status))
            case _:
                self._leader_left()

    def _take_terminal(self, master: int) -> None:
        """It comes before the command is started, so no code of the command's sent it."""
        if not os.isatty(master):
            os.close(master)
            self._leader_left()
            return
        os.set_blocking(master, False)
        self.terminal = Terminal(master)
        typed = os.dup(master)
        self._stdin = InputPump(typed, self._sink, self.terminal.end_of_input)
        self._outputs = (OutputPump(master, Stream.STDOUT, self._sink, self._output_ended),)

    def _begin(self, pid: int) -> None:
        self.inner_pid = pid
        if not self._spec.confinement.is_confined:
            self.pid = pid
        self._started_at = self._loop.time()
        if self._spec.run_s:
            self._later(self._spec.run_s, lambda: self.end(EndedBy.TIME_LIMIT))
        self._started.set_result(None)
        self._close_diagnosis()
        for pump in self._outputs:
            pump.start()

    def _fail(self, refusal: Exception) -> None:
        if not self._started.done():
            self._started.set_exception(refusal)

    def _leader_left(self) -> None:
        """The end of the control socket: no report will follow."""
        self._loop.remove_reader(self._control)
        if not self._started.done():
            diagnosis = read_diagnosis(self._diagnosis)
            self._fail(unexplained(diagnosis, is_confined=self._spec.confinement.is_confined))
        elif self._ended_at is None:
            self._kill_leader()  # bubblewrap, should it have outlived the leader
            self._command_ended(signal.SIGKILL)

    def _command_ended(self, status: int) -> None:
        self._status = status
        self._ended_at = self._loop.time()
        self._cancel_timers()
        if self._is_paused and self._end_by in _FORFEITING:
            self._forfeit()
        else:
            self._output_ended()
            self._run_drain_clock()

    # --- the end ------------------------------------------------------------------------

    def _output_ended(self) -> None:
        if self._ended_at is not None and all(pump.is_ended for pump in self._outputs):
            self._settle()

    def _run_drain_clock(self) -> None:
        if self._ended_at is not None and not self._is_paused and not self._settled.done():
            self._drain_since = self._loop.time()
            left_s = min(self._drain_left_s, max(0.0, self._drain_ends_at - self._drain_since))
            self._drain_timer = self._loop.call_later(left_s, self._drain_over)

    def _stop_drain_clock(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
            self._drain_left_s -= self._loop.time() - self._drain_since

    def _drain_over(self) -> None:
        """What still holds the streams open is not waited for."""
        for pump in self._outputs:
            pump.finish()

    def _forfeit(self) -> None:
        """Nobody reads the output any more."""
        for pump in self._outputs:
            pump.close()

    def _settle(self) -> None:
        """Answer `wait`, let the leader go; idempotent."""
        if self._settled.done():
            return
        self._settled.set_result(self._outcome())
        self._stop_drain_clock()
        self._cancel_timers()
        self._stdin.close()
        if self.terminal is not None:
            self.terminal.close()
        self._forfeit()
        self._loop.remove_reader(self._control)
        os.close(self._control)
        self._control = -1
        self._close_diagnosis()
        if not self._gone.done():
            self._later(_LEAVE_LIMIT_S, self._kill_leader)

    def _close_diagnosis(self) -> None:
        if self._diagnosis >= 0:
            os.close(self._diagnosis)
            self._diagnosis = -1

    def _outcome(self) -> Ended:
        status = self._status if self._status is not None else int(signal.SIGKILL)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if number is None else EXIT_SIGNAL_BASE + number
        if self._end_by is not None:
            # Ended from outside is never the command's own word: it may have taken TERM well and
            # left with 0. Source: the seed's "124 if the bridge killed the child".
            code = EXIT_ENDED
        by = self._end_by or (EndedBy.EXIT if number is None else EndedBy.SIGNAL)
        ended_at = self._ended_at if self._ended_at is not None else self._loop.time()
        return Ended(code, number, by, max(0.0, ended_at - self._started_at))

    def _left(self) -> None:
        """Leader and bubblewrap are reaped, and with them the tree."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        if self._settled.done():
            self._cancel_timers()
        self._gone.set_result(None)

    # --- orders and timers --------------------------------------------------------------

    def _order(self, words: bytes) -> None:
        if self._control >= 0:
            # Full only when the leader is stopped, which KILL of last resort is for.
            with contextlib.suppress(BlockingIOError, ConnectionError):
                os.write(self._control, words)

    def _kill_leader(self) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _later(self, delay_s: float, action: Callable[[], object]) -> None:
        self._timers.append(self._loop.call_later(delay_s, action))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
