"""Runs commands with the real runner: a sink that remembers, a directory, the tidy end.

It refuses to know the wire. Every wait is bounded by `within`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from jackin_broker.config import BinaryConfig, Mount
from jackin_broker.frames import Stream
from jackin_broker.protocol import StdinKind, TerminalSize
from jackin_broker.runner import host
from jackin_broker.runner.confine import UNCONFINED, Confinement, confinement
from jackin_broker.runner.running import Running
from jackin_broker.runner.spec import DRAIN_S, GRACE_S, Ended, RunSpec
from jackin_broker.workdir import WorkDir

# A command of these tests takes milliseconds; only a hang takes longer.
LIMIT_S: Final = 30.0
PATH: Final = {b"PATH": b"/usr/bin:/bin:/usr/sbin:/sbin"}

T = TypeVar("T")


class Sink:
    """An output sink that remembers: all bytes, or with `keep=False` their digest alone."""

    def __init__(self, *, keep: bool = True) -> None:
        self.kept = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
        self.digests = {Stream.STDOUT: hashlib.sha256(), Stream.STDERR: hashlib.sha256()}
        self.sizes = {Stream.STDOUT: 0, Stream.STDERR: 0}
        self.ended: list[Stream] = []
        self.consumed = 0
        self.exit_code: int | None = None
        self._keep = keep
        self._news = asyncio.Event()

    @property
    def out(self) -> bytes:
        return bytes(self.kept[Stream.STDOUT])

    @property
    def err(self) -> bytes:
        return bytes(self.kept[Stream.STDERR])

    def output(self, stream: Stream, data: bytes) -> None:
        assert data
        assert stream not in self.ended
        self.sizes[stream] += len(data)
        self.digests[stream].update(data)
        if self._keep:
            self.kept[stream] += data
        self._news.set()

    def output_end(self, stream: Stream) -> None:
        assert stream not in self.ended
        self.ended.append(stream)

    def stdin_consumed(self, size: int) -> None:
        self.consumed += size
        self._news.set()

    async def until_out(self, text: bytes) -> None:
        """Return when stdout contains `text`."""
        async with asyncio.timeout(LIMIT_S):
            while text not in self.out:
                self._news.clear()
                await self._news.wait()

    async def until_consumed(self, size: int) -> None:
        """Return when so many bytes of stdin are gone."""
        async with asyncio.timeout(LIMIT_S):
            while self.consumed < size:
                self._news.clear()
                await self._news.wait()


def within(work: Coroutine[Any, Any, T], *, limit_s: float = 4 * LIMIT_S) -> T:
    """The result of `work` in a loop of its own, which leaves no warden behind."""

    async def bounded() -> T:
        async with asyncio.timeout(limit_s):
            try:
                return await work
            finally:
                await host.shut_down()

    return asyncio.run(bounded())


def workdir_at(path: Path, *, root: Path | None = None, read_only: bool = False) -> WorkDir:
    """`path` held open, in a mount at `root`."""
    here = os.path.realpath(path)
    top = os.path.realpath(root or path)
    below = os.path.relpath(here, top).encode()
    return WorkDir(
        os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
        host_path=os.fsencode(here),
        capsule_path=b"/space",
        mount=Mount("/space", top, read_only),
        root=(os.stat(top).st_dev, os.stat(top).st_ino),
        below=tuple(part for part in below.split(b"/") if part != b"."),
        is_agent_writable=not read_only,
    )


def confined(
    workdir: WorkDir, config: BinaryConfig | None = None, hidden: tuple[str, ...] = ()
) -> Confinement:
    """How a command with this configuration is confined; the defaults without one."""
    return confinement(config or BinaryConfig(), workdir, hidden, binary="tool", capsule="web")


async def start(
    argv: list[str | bytes],
    sink: Sink,
    *,
    workdir: WorkDir | None = None,
    how: Confinement = UNCONFINED,
    stdin: StdinKind = StdinKind.NONE,
    env: dict[bytes, bytes] | None = None,
    terminal: TerminalSize | None = None,
    run_s: float = 0,
    address_space_bytes: int = 0,
    processes: int = 0,
    grace_s: float = GRACE_S,
    drain_s: float = DRAIN_S,
) -> Running:
    """Start `argv[0]`, an absolute path, with `argv` as its arguments; `workdir` stays open."""
    words = tuple(os.fsencode(word) for word in argv)
    with workdir_at(Path("/")) as root:
        cwd = workdir or root
        spec = RunSpec(
            executable=os.fsdecode(words[0]),
            argv=words,
            cwd=cwd,
            env=PATH if env is None else env,
            confinement=how,
            stdin=stdin,
            terminal=terminal,
            run_s=run_s,
            address_space_bytes=address_space_bytes,
            processes=processes,
            grace_s=grace_s,
            drain_s=drain_s,
        )
        return await host.start(spec, sink)


async def finish(running: Running) -> Ended:
    """How it ended, once nothing of it is left."""
    async with asyncio.timeout(LIMIT_S):
        ended = await running.wait()
        await running.gone()
    return ended


async def run(argv: list[str | bytes], sink: Sink | None = None, **options: Any) -> Ended:
    """Run a command to its end."""
    return await finish(await start(argv, sink or Sink(), **options))


def shell(script: str) -> list[str | bytes]:
    """A command line that runs a script."""
    return ["/bin/sh", "-c", script]
