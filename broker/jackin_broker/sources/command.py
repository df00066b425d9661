"""Source `command`: the standard output of a command of the operator's, less one newline.

It runs in `/`, in a session of its own: no terminal, nothing on stdin, its stderr never passed on
(tools print values there), so only its exit status is ever told. When it is over, well or
not, its whole process group ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from ..bindings import CommandSource
from ..errors import SourceError, SourceFault
from .base import VALUE_MAX_BYTES, Lookup, SourceReader, one_newline_less

# After its exit, for a child of it that still holds the output open; all was written by then.
DRAIN_S: Final = 0.5
# One more than a value may have, and its newline: `check_size` refuses it.
_OUTPUT_MAX_BYTES: Final = VALUE_MAX_BYTES + 2


# Where a program says why, it says so at the beginning.
STDERR_BYTES: Final = 4096

# From the beginning of what a program wrote on stderr to an error in words of our own, or None.
Explain = Callable[[bytes, Lookup], SourceError | None]


class CommandReader(SourceReader[CommandSource]):
    """Runs commands with the environment that it was given."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)

    def __repr__(self) -> str:
        return "<command source>"

    async def read(self, source: CommandSource, lookup: Lookup) -> bytes:
        """What the command printed, less one newline.

        Raises: SourceError.
        """
        return one_newline_less(await output_of(source.argv, self._env, lookup))


async def output_of(
    argv: tuple[str, ...], env: Mapping[str, str], lookup: Lookup, explain: Explain | None = None
) -> bytes:
    """What a command printed on stdout; at most one byte more than a value's longest.

    `explain` makes words of our own from the beginning of its stderr, where it knows it.
    Raises: SourceError where it cannot start or exits with another status than 0.
    """
    if not argv:
        raise lookup.fault(SourceFault.FAILED, "the command is empty", hint="write its argv")
    try:
        process = _spawn(argv, env, reads_stderr=explain is not None)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise lookup.fault(
            SourceFault.UNAVAILABLE,
            f"{argv[0]} was not found",
            hint=f"install {argv[0]}, or write its whole path",
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its arguments cannot be passed"
        raise lookup.fault(
            SourceFault.UNAVAILABLE,
            f"{argv[0]} cannot be started: {reason}",
            hint="try it in a terminal, and write its whole path",
        ) from error
    output, said, status = await _finish(process)
    if len(output) >= _OUTPUT_MAX_BYTES:
        return output  # stopped in the middle: its status says nothing
    if status != 0:
        known = explain(said, lookup) if explain is not None else None
        raise known or lookup.fault(
            SourceFault.FAILED,
            f"{argv[0]} {_in_words(status)}",
            hint="run it by hand to see what it says",
        )
    return output


def _spawn(
    argv: tuple[str, ...], env: Mapping[str, str], *, reads_stderr: bool
) -> subprocess.Popen[bytes]:
    """Start it; returns at its exec, in about a millisecond."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if reads_stderr else subprocess.DEVNULL,
        cwd="/",
        env=dict(env),
        start_new_session=True,
    )


async def _finish(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, int]:
    """Its output, the beginning of its stderr, its status, when it ended or printed too much.

    Then its group is gone.
    """
    loop = asyncio.get_running_loop()
    output, said = _Output(loop, _OUTPUT_MAX_BYTES), _Output(loop, STDERR_BYTES)
    stderr: asyncio.ReadTransport | None = None
    try:
        transport, _ = await loop.connect_read_pipe(lambda: output, process.stdout)
        try:
            if process.stderr is not None:
                stderr, _ = await loop.connect_read_pipe(lambda: said, process.stderr)
            with _watched(process, loop) as exited:
                await asyncio.wait((exited, output.is_full), return_when=asyncio.FIRST_COMPLETED)
            if not output.is_full.done():
                streams = (output.is_over, *([said.is_over] if stderr is not None else []))
                await asyncio.wait(streams, timeout=DRAIN_S)
        finally:
            transport.close()
            if stderr is not None:
                stderr.close()
    finally:
        if process.stderr is not None and stderr is None:  # cancelled before its turn
            process.stderr.close()
        _end(process)
    return bytes(output.received), bytes(said.received), process.returncode or 0


@contextmanager
def _watched(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop
) -> Generator[asyncio.Future[None], None, None]:
    """A future that is done when the process has ended; it is not reaped by that."""
    exited: asyncio.Future[None] = loop.create_future()
    pidfd = os.pidfd_open(process.pid)
    loop.add_reader(pidfd, _settle, exited)
    try:
        yield exited
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill its group and reap it, without ever waiting for it here."""
    # Not reaped yet, so the group's number cannot be anybody else's. A command that became
    # another uid (sudo) cannot be killed; it ends when it next writes.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        threading.Thread(target=process.wait, name="jackin-reaper", daemon=True).start()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Output(asyncio.Protocol):
    """Keeps what comes, up to the limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int) -> None:
        self.received = bytearray()
        self._limit_bytes = limit_bytes
        self.is_full: asyncio.Future[None] = loop.create_future()
        self.is_over: asyncio.Future[None] = loop.create_future()

    def __repr__(self) -> str:
        return "<output of a source>"

    def data_received(self, data: bytes) -> None:
        self.received += data[: self._limit_bytes - len(self.received)]
        if len(self.received) >= self._limit_bytes:
            _settle(self.is_full)

    def connection_lost(self, exc: Exception | None) -> None:
        _settle(self.is_over)


def _in_words(status: int) -> str:
    if status < 0:
        return f"was ended by signal {-status}"
    return f"exited with status {status}"
