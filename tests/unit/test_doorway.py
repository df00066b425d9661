"""A capsule's door under a flood: what one agent does takes nothing from the others."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from jackin_broker import doorway
from jackin_broker.daemon import Daemon
from jackin_broker.doorway import REFUSED_MAX
from jackin_broker.doorways import LISTEN_BACKLOG
from support.real import START_LIMIT_S

LIMIT = 8
CONFIG = f"""\
schema = 1
[broker]
keyring = "vault"
[capsules.web]
kind = "none"
[limits]
connections_per_capsule = {LIMIT}
"""


def play(scene: Callable[[Daemon, str], Awaitable[None]]) -> str:
    """The log of a broker in this process, in which the scene was played."""

    async def go() -> str:
        daemon = Daemon(dict(os.environ))
        try:
            await daemon.start()
            async with asyncio.timeout(START_LIMIT_S):
                await scene(daemon, str(daemon.paths.capsule_socket("web")))
        finally:
            await daemon.close()
        return daemon.paths.log_file.read_text()

    config = Path(os.environ["XDG_CONFIG_HOME"]) / "jackin-exec" / "config.toml"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.touch(mode=0o600)
    config.write_text(CONFIG)
    return asyncio.run(go())


@pytest.mark.usefixtures("private_home")
def test_callers_that_are_refused_and_stay_are_bounded() -> None:
    """They are told no, do not close, and come back: each would be a descriptor of the broker."""
    most = LIMIT + REFUSED_MAX + LISTEN_BACKLOG + doorway.ACCEPT_BATCH

    async def scene(daemon: Daemon, path: str) -> None:
        with ExitStack() as callers:
            connected = 0
            for _ in range(2 * most):
                caller = callers.enter_context(socket.socket(socket.AF_UNIX))
                caller.setblocking(False)
                with suppress(BlockingIOError):
                    caller.connect(path)
                    connected += 1
                await asyncio.sleep(0)
            assert LIMIT + REFUSED_MAX < connected <= most
        with socket.socket(socket.AF_UNIX) as caller:
            await asyncio.to_thread(caller.connect, path)  # asyncio's own does not wait for room
            caller.sendall(b"\0\0\0\0")
            assert await asyncio.to_thread(caller.recv, 4096)  # their places came back

    play(scene)


@pytest.mark.usefixtures("private_home")
def test_without_descriptors_the_door_waits_instead_of_spinning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A level-triggered listener that cannot accept would take a whole core, and fill the log."""
    monkeypatch.setattr(doorway, "RETRY_S", 0.2)

    async def scene(daemon: Daemon, path: str) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket(socket.AF_UNIX) as caller:
            resource.setrlimit(resource.RLIMIT_NOFILE, (caller.fileno() + 1, hard))
            try:
                caller.setblocking(False)
                caller.connect(path)
                for _ in range(100):
                    await asyncio.sleep(0)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await asyncio.get_running_loop().sock_sendall(caller, b"\0\0\0\0")
            assert await asyncio.get_running_loop().sock_recv(caller, 4096)

    assert 1 <= play(scene).count("accept failed") <= 2
