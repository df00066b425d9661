"""The broker's side of its helper processes: start, ask, kill, and one kept warm.

It refuses to know what is asked. Invariants: a helper serves one conversation at a time; one
whose conversation did not end well is killed, never used again; killing it takes milliseconds,
whatever it waits for.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from .helper_wire import HEADER_BYTES, MESSAGE_MAX_BYTES, frame

# One blocked look-up must not stop all others; each costs some 30 MB while it runs.
HELPERS_MAX: Final = 4
# A cold start costs 106 ms, a look-up 12 ms: so long, waiting for a busy helper is cheaper.
PATIENCE_S: Final = 0.25
# A killed process is gone in 2 ms; longer only where the kernel itself is stuck.
REAP_S: Final = 2.0

T = TypeVar("T")


class HelperGone(Exception):
    """The helper ended in the middle of a conversation."""


class HelperProcess:
    """One helper: `python -m MODULE ARGS` with a socket as its stdin, and no terminal."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process: Final = process
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @classmethod
    async def start(cls, argv: tuple[str, ...], env: Mapping[str, str]) -> HelperProcess:
        """Start it. Nothing of the working directory can be imported by it (`-P`).

        Raises: OSError.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                helper = cls(_spawn(argv, env, theirs))
        except BaseException:
            ours.close()
            raise
        try:
            helper._streams = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            helper.kill()
            raise
        return helper

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def ask(self, body: bytes) -> bytes:
        """Send one message; the one that comes back.

        Raises: HelperGone.
        """
        if self._streams is None:
            raise HelperGone
        try:
            self._streams[1].write(frame(body))
            await self._streams[1].drain()
        except OSError:
            raise HelperGone from None
        return await self.receive()

    async def receive(self) -> bytes:
        """Its next message.

        Raises: HelperGone.
        """
        if self._streams is not None:
            try:
                header = await self._streams[0].readexactly(HEADER_BYTES)
                size = int.from_bytes(header, "big")
                if size <= MESSAGE_MAX_BYTES:
                    return await self._streams[0].readexactly(size)
            except (OSError, asyncio.IncompleteReadError):
                pass  # raised below: an incomplete read carries the part that was read
        raise HelperGone

    def kill(self) -> None:
        """End it now."""
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # the kernel is stuck; it will be killed
            self._process.wait(REAP_S)


def _spawn(
    argv: tuple[str, ...], env: Mapping[str, str], stdin: socket.socket
) -> subprocess.Popen[bytes]:
    """Start `python -m ARGV`; returns at its exec, in about a millisecond."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", *argv],
        stdin=stdin.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=dict(env),
        start_new_session=True,
    )


class HelperPool:
    """Helpers of one kind, started when needed; the last one to be idle is kept warm."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str]) -> None:
        self._argv = argv
        self._env = dict(env)
        self._running: set[HelperProcess] = set()
        self._idle: HelperProcess | None = None
        self._starting = 0
        self._is_closed = False
        self._news = asyncio.Event()

    @property
    def pids(self) -> frozenset[int]:
        """The process ids of all that run."""
        return frozenset(helper.pid for helper in self._running)

    async def run(self, conversation: Callable[[HelperProcess], Awaitable[T]]) -> T:
        """What the conversation with a helper gives.

        However it fails, cancelled included, that helper is killed.
        Raises: HelperGone, OSError.
        """
        helper = await self._take()
        try:
            result = await conversation(helper)
        except BaseException:
            self._end(helper)
            raise
        if self._idle is None and not self._is_closed:
            self._idle = helper
            self._tell()
        else:
            self._end(helper)
        return result

    def close(self) -> None:
        """Keep none warm any more: the idle one ends now, each other after its conversation."""
        self._is_closed = True
        if self._idle is not None:
            self._end(self._idle)

    async def _take(self) -> HelperProcess:
        loop = asyncio.get_running_loop()
        patient_until = loop.time() + PATIENCE_S
        while True:
            if self._idle is not None:
                helper, self._idle = self._idle, None
                return helper
            count = len(self._running) + self._starting
            is_patient = loop.time() < patient_until
            if count == 0 or (count < HELPERS_MAX and not is_patient):
                return await self._start()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(patient_until if is_patient else None):
                    await self._news.wait()

    async def _start(self) -> HelperProcess:
        self._starting += 1
        try:
            helper = await HelperProcess.start(self._argv, self._env)
        except BaseException:
            self._starting -= 1
            self._tell()  # there is room again
            raise
        self._starting -= 1
        self._running.add(helper)
        return helper

    def _end(self, helper: HelperProcess) -> None:
        if helper is self._idle:
            self._idle = None
        self._running.discard(helper)
        helper.kill()
        self._tell()

    def _tell(self) -> None:
        """Wake all that wait for a helper, or for room to start one."""
        self._news.set()
        self._news = asyncio.Event()
