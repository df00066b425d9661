"""One launch, from the first process to the last: start, record, release, relay, end.

It refuses to know what kind of capsule it is. Invariants: the agent does not start before its
init is on record; whatever ends first, the rest ends; the exit status is the command's; the
launcher's terminal is restored on every way out. If the launcher is killed outright, the kernel
ends the capsule (the launchers ask for that) and the broker sees the connection close.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

from ..errors import JackinError
from ..processes import is_alive
from ..protocol import EXIT_SIGNAL_BASE
from .base import Launcher, Plan, Prepared
from .terminal import OwnTerminal

# Between asking a capsule to end and ending it.
END_GRACE_S: Final = 3.0
# What the agent wrote last, after its last process ended.
DRAIN_S: Final = 2.0
_REPORT_BYTES: Final = 4096
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
# After these the capsule has END_GRACE_S to end by itself.
_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGHUP})

# The pid, and the engine's id of its container or nothing.
RecordInit = Callable[[int, str], None]


class Watch:
    """Something else to wait for while the capsule runs: the connection to the broker."""

    def fileno(self) -> int | None:
        """A descriptor whose readiness calls `ready`, or None."""
        return None

    def ready(self) -> None:
        """It was readable."""

    def tick(self) -> float | None:
        """Do what is due; seconds until the next call, or None."""
        return None


def run(launcher: Launcher, plan: Plan, record: RecordInit, watch: Watch) -> int:
    """The exit status of the agent's command, after the capsule is gone.

    Raises: ConfigError, JackinError when it could not be started; nothing is left then.
    """
    needs_terminal = launcher.has_boundary and any(os.isatty(fd) for fd in (0, 1, 2))
    prepared = launcher.prepare(plan)
    try:
        terminal = OwnTerminal(plan.uid) if needs_terminal else None
        with _Signals() as signals:
            return _Launch(launcher, prepared, terminal, signals).run(record, watch)
    finally:
        prepared.close()


class _Signals:
    """Signals as bytes on a pipe, in order, with the former handlers put back at the end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def __enter__(self) -> _Signals:
        numbers = (*_PASSED_ON, signal.SIGWINCH, signal.SIGCONT)
        self._former = {number: signal.signal(number, _note) for number in numbers}
        self._former_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._former_fd)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        os.close(self.reader)
        os.close(self._writer)

    def take(self) -> list[signal.Signals]:
        """The signals that came since the last call."""
        with suppress(BlockingIOError):
            return [signal.Signals(number) for number in os.read(self.reader, _REPORT_BYTES)]
        return []


def _note(_number: int, _frame: FrameType | None) -> None:
    """The wakeup descriptor has it; a handler must exist for that."""


class _Launch:
    """The processes of one launch."""

    def __init__(
        self,
        launcher: Launcher,
        prepared: Prepared,
        terminal: OwnTerminal | None,
        signals: _Signals,
    ) -> None:
        self._launcher = launcher
        self._prepared = prepared
        self._terminal = terminal
        self._signals = signals
        self._init_pidfd: int | None = None
        self._kill_at: float | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, record: RecordInit, watch: Watch) -> int:
        try:
            child = self._child = self._spawn()
            if self._terminal is not None:
                self._terminal.close_inner()
            self._prepared.close_child_fds()
            has_started = self._await_init(record)
            if has_started and self._terminal is not None:
                self._terminal.enter_raw()
            self._relay_until_end(watch)
            returned = child.wait()
            if not has_started:
                raise JackinError(
                    f"{os.path.basename(self._prepared.argv[0])} could not start the capsule",
                    hint="what it printed above says why",
                )
        finally:
            self._end_now()
            if self._terminal is not None:
                self._terminal.close()
        return returned if returned >= 0 else EXIT_SIGNAL_BASE - returned

    def _spawn(self) -> subprocess.Popen[bytes]:
        streams = [fd if self._terminal is None else self._terminal.stream(fd) for fd in (0, 1, 2)]
        try:
            return subprocess.Popen(
                self._prepared.argv,
                env=self._prepared.env,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                pass_fds=self._prepared.child_fds,
                # Out of our terminal's foreground group: Ctrl-C there must not end bubblewrap.
                start_new_session=self._launcher.has_boundary,
            )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise JackinError(f"cannot run {self._prepared.argv[0]}: {reason}") from error

    def _await_init(self, record: RecordInit) -> bool:
        """Have init recorded and let the agent start; False when the capsule ended before."""
        if not self._prepared.has_init:
            return True
        pid = self._find_init()
        if pid is None:
            return False  # it has said why on stderr, and its status says the rest
        try:
            pidfd = self._init_pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            record(pid, self._prepared.container)
        except JackinError:
            if is_alive(pidfd):
                raise
            return False
        assert self._prepared.gate_fd is not None
        os.write(self._prepared.gate_fd, b"\n")
        return True

    def _find_init(self) -> int | None:
        assert self._child is not None
        child = os.pidfd_open(self._child.pid)
        try:
            return self._launcher.find_init(self._prepared, child)
        finally:
            os.close(child)

    def _relay_until_end(self, watch: Watch) -> None:
        assert self._child is not None
        ended = os.pidfd_open(self._child.pid)
        try:
            with selectors.DefaultSelector() as selector:
                while not self._turn(selector, ended, watch):
                    pass
        finally:
            os.close(ended)
        self._drain()

    def _turn(self, selector: selectors.BaseSelector, ended: int, watch: Watch) -> bool:
        """Wait for one thing to happen and do it; True when the capsule has ended."""
        timeouts = [watch.tick()]  # which may open what is to be watched from now on
        self._register(selector, ended, watch)
        if self._kill_at is not None:
            timeouts.append(max(0.0, self._kill_at - time.monotonic()))
        events = selector.select(min((t for t in timeouts if t is not None), default=None))
        for key, mask in events:
            self._react(key.fd, mask, watch)
        for number in self._signals.take():
            self._pass_on(number)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._end_now()
        return any(key.fd == ended for key, _ in events)

    def _register(self, selector: selectors.BaseSelector, ended: int, watch: Watch) -> None:
        wanted = {ended: selectors.EVENT_READ, self._signals.reader: selectors.EVENT_READ}
        terminal, watched = self._terminal, watch.fileno()
        if watched is not None:
            wanted[watched] = selectors.EVENT_READ
        if terminal is not None:
            writes = selectors.EVENT_WRITE if terminal.has_typed else 0
            wanted[terminal.master] = selectors.EVENT_READ | writes
            if terminal.input_fd is not None:
                wanted[terminal.input_fd] = selectors.EVENT_READ
        for key in list(selector.get_map().values()):
            selector.unregister(key.fd)
        for fd, events in wanted.items():
            selector.register(fd, events)

    def _react(self, fd: int, mask: int, watch: Watch) -> None:
        terminal = self._terminal
        if terminal is not None and fd == terminal.master:
            if mask & selectors.EVENT_WRITE:
                terminal.give_keys()
            if mask & selectors.EVENT_READ:
                terminal.show()
        elif terminal is not None and fd == terminal.input_fd:
            if not terminal.take_keys():
                self._pass_on(signal.SIGHUP)
        elif fd == watch.fileno():
            watch.ready()

    def _pass_on(self, number: signal.Signals) -> None:
        if number is signal.SIGWINCH or number is signal.SIGCONT:
            if self._terminal is not None:
                self._terminal.resize()
                if number is signal.SIGCONT:
                    self._terminal.enter_raw()
            return
        if number in _ENDING and self._kill_at is None:
            self._kill_at = time.monotonic() + END_GRACE_S
        self._signal(number)

    def _signal(self, number: signal.Signals) -> None:
        """To the capsule's init, which passes it on; without one, to the command itself."""
        with suppress(ProcessLookupError):
            if self._init_pidfd is not None:
                try:
                    signal.pidfd_send_signal(self._init_pidfd, number)
                except PermissionError:  # an engine's, of another uid: its program passes it on
                    if self._child is not None and self._child.poll() is None:
                        self._child.send_signal(number)
            elif self._child is not None and self._child.poll() is None:
                if not self._launcher.has_boundary and number is signal.SIGINT:
                    return  # it shares our terminal, which has told it already
                self._child.send_signal(number)

    def _end_now(self) -> None:
        """Kill what is left; with init goes everything in its namespace."""
        self._kill_at = None
        child = self._child
        if child is not None and child.poll() is None:
            self._launcher.end(self._prepared)
            self._signal(signal.SIGKILL)
            if self._init_pidfd is None and self._launcher.has_boundary:
                # Where bubblewrap is killed as it starts, its child waits for it for ever.
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            try:
                child.wait(END_GRACE_S)  # it collects init, so that nothing is left after us
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self._init_pidfd is not None:
            os.close(self._init_pidfd)
            self._init_pidfd = None

    def _drain(self) -> None:
        """Relay what is still on the way from the agent's terminal, for a bounded time."""
        if self._terminal is None:
            return
        deadline = time.monotonic() + DRAIN_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._terminal.master, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0 and selector.select(left):
                if not self._terminal.show():
                    return
