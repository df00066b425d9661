"""The operator's own command that is told of a request, once a request.

It gets one more argument than is configured: the program's name, reduced to `[A-Za-z0-9._+-]`
and never an option. It refuses to know arguments and values. Invariants: no variable that a
source names, and none that is not listed here, reaches it; it ends within NOTIFY_LIMIT_S or is
killed, and no more than NOTIFY_AT_ONCE run at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Final

from .display import show_name
from .protocol import Text

_log = logging.getLogger(__name__)

# A desktop's notification takes milliseconds, a message to a phone a few seconds.
NOTIFY_LIMIT_S: Final = 10.0
# A burst of requests is told of one after the other.
NOTIFY_AT_ONCE: Final = 4
# What a program needs to reach the operator: their session's bus and display, their language.
VARIABLES: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"),
    *("XDG_RUNTIME_DIR", "XDG_SESSION_TYPE", "XDG_CURRENT_DESKTOP"),
)


def notice_name(command: Text) -> str:
    """The program's name as a notifier gets it: no path, no option, no other character."""
    text = command if isinstance(command, str) else show_name(command)
    name = show_name(text.rpartition("/")[2])
    return "_" + name[1:] if name.startswith("-") else name


class Notifier:
    """Runs the command; one a broker."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ: Final = environ
        self._argv: tuple[str, ...] = ()
        self._env: dict[str, str] = {}
        self._slots = asyncio.Semaphore(NOTIFY_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, argv: tuple[str, ...], consumed: Set[str]) -> None:
        """From now on this command; `consumed` are variables that sources name."""
        self._argv = argv
        self._env = {
            name: self._environ[name]
            for name in VARIABLES
            if name in self._environ and name not in consumed
        }

    def tell(self, command: Text, *, while_true: Callable[[], bool]) -> None:
        """Tell of a request, unless `while_true` does not hold any more when its turn comes."""
        if self._argv:
            task = asyncio.create_task(self._tell(notice_name(command), while_true))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tell(self, name: str, while_true: Callable[[], bool]) -> None:
        async with self._slots:
            if while_true():
                try:
                    await self._run((*self._argv, name))
                except OSError as error:
                    _log.warning("the notifier did not start: %s", error.strerror)

    async def _run(self, argv: tuple[str, ...]) -> None:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._env,
            cwd="/",
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(NOTIFY_LIMIT_S):
                status = await process.wait()
            if status:
                _log.warning("the notifier ended with status %d", status)
        except TimeoutError:
            _log.warning("the notifier did not end within %g s, killed", NOTIFY_LIMIT_S)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
