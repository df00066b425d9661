"""The broker's end of the warden: start it, have it fork, let it go.

It refuses to know what is forked. Invariants: one warden a loop; a warden that died is replaced
at the next request, and what it had started goes on, for every leader has its own connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .spec import SpawnFailed

# A fork takes a millisecond; only a machine that swaps needs seconds.
FORK_LIMIT_S: Final = 15.0
# The warden lets leaders end their trees for LINGER_S (1.5 s), then leaves.
CLOSE_LIMIT_S: Final = 5.0
_ANSWER_MAX_BYTES: Final = 64
_PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = """\
import sys
sys.path.append(sys.argv[1])
from jackin_broker.runner.warden_process import main
main(int(sys.argv[2]), sys.argv[3])
"""


class Forked(NamedTuple):
    """A process of ours. The pidfd is the receiver's to close."""

    pid: int
    pidfd: int


class Warden:
    """One warden process and the requests that it has not answered yet.

    `sweeps`: how the paths begin that it removes at its end; none where the text is empty.
    """

    def __init__(self, sweeps: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        try:
            self._pid = _start_process(theirs, sweeps)
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self._answers: dict[int, asyncio.Future[Forked]] = {}
        self._sending = asyncio.Lock()
        self._last_number = 0
        self._pidfd = os.pidfd_open(self._pid)
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._pidfd, self._reaped)
        self._loop.add_reader(self._channel, self._answered)

    @property
    def is_usable(self) -> bool:
        """Whether it can be asked: alive, and of this loop."""
        if self._ended.done() or self._loop is not asyncio.get_running_loop():
            return False
        return not _has_ended(self._pidfd)

    async def fork(self, descriptors: Sequence[int]) -> Forked:
        """The new leader (or bubblewrap); the descriptors stay the caller's to close.

        Raises: SpawnFailed when the warden does not answer.
        """
        self._last_number += 1
        number = self._last_number
        answer: asyncio.Future[Forked] = self._loop.create_future()
        self._answers[number] = answer
        try:
            async with asyncio.timeout(FORK_LIMIT_S):
                async with self._sending:
                    await self._send(b"%d" % number, descriptors)
                return await answer
        except BaseException as error:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                os.close(answer.result().pidfd)  # it came in the moment in which we gave up
            if isinstance(error, OSError):  # TimeoutError is one, too
                raise _no_answer(error) from error
            raise
        finally:
            self._answers.pop(number, None)

    async def close(self) -> None:
        """Let it go and wait for its end; it ends whatever still runs."""
        self._close_channel()
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await asyncio.shield(self._ended)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, 9)
            await self._ended

    def abandon(self) -> None:
        """Let one go that is not usable; a loop that still runs sees to the rest itself."""
        if not self._ended.done() and self._loop.is_closed():
            self._channel.close()
            os.close(self._pidfd)

    async def _send(self, words: bytes, descriptors: Sequence[int]) -> None:
        while True:
            try:
                socket.send_fds(self._channel, [words], list(descriptors))
            except BlockingIOError:
                await _writable(self._loop, self._channel)
            else:
                return

    def _answered(self) -> None:
        try:
            words, descriptors, _, _ = socket.recv_fds(
                self._channel, _ANSWER_MAX_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            words, descriptors = b"", []
        if not words:
            self._close_channel()
            return
        number, *pid = (int(word) for word in words.split())
        answer = self._answers.get(number)
        if answer is None or answer.done():
            for fd in descriptors:
                os.close(fd)  # nobody waits any more; its control socket is closed too
        elif pid and descriptors:
            answer.set_result(Forked(pid[0], descriptors[0]))
        else:  # here or there is no room for one more; a leader ends with its control socket
            answer.set_exception(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))

    def _close_channel(self) -> None:
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._channel.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the warden is gone"))

    def _reaped(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._close_channel()
        self._ended.set_result(None)


def _no_answer(error: OSError) -> SpawnFailed:
    if error.errno in (errno.EAGAIN, errno.EMFILE, errno.ETOOMANYREFS):
        return SpawnFailed(
            "no process or descriptor is left for the command",
            hint="end some of what runs: ulimit -u and ulimit -n are the limits",
        )
    return SpawnFailed(
        "the process that starts commands does not answer",
        hint="try again; if it stays so, restart the broker",
    )


def _has_ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def _start_process(theirs: socket.socket, sweeps: str) -> int:
    number = 3
    argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_PACKAGE_ROOT), str(number), sweeps]
    # No variable of the broker's goes along: some are credentials' sources.
    fd = theirs.fileno()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, null, 0),
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, 2, 2),
            (os.POSIX_SPAWN_DUP2, fd, number),
        ]
        return os.posix_spawn(sys.executable, argv, {}, file_actions=actions, setsid=True)
    finally:
        os.close(null)


async def _writable(loop: asyncio.AbstractEventLoop, channel: socket.socket) -> None:
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(channel, _set_ready, ready)
    try:
        await ready
    finally:
        loop.remove_writer(channel)


def _set_ready(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
