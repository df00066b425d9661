"""Every capsule's own door, open as the configuration in force says.

It refuses to know who comes through. Invariants: whatever a configuration can be refused for is
found out by `prepare`, which changes nothing that is in force; a door that is closed to newcomers
lets what runs behind it go on.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress

from . import doorways
from .capsule_status import has_socket
from .capsules import CapsuleRegistry
from .config import CapsuleConfig, CapsuleKind
from .doorway import Doorway
from .errors import ConfigError
from .paths import Paths
from .services import Services
from .session import McpServing


class Doors:
    """One a broker; the bridges' doors are `bridge/bridges.py`."""

    def __init__(
        self, services: Services, registry: CapsuleRegistry, paths: Paths, mcp: McpServing
    ) -> None:
        self._services = services
        self._registry = registry
        self._paths = paths
        self._mcp = mcp
        self._open: dict[str, Doorway] = {}
        self._retired: list[Doorway] = []  # closed to newcomers, what runs behind them goes on

    def prepare(self, configs: Mapping[str, CapsuleConfig]) -> dict[str, socket.socket]:
        """Sockets for the capsules that have none yet, and room for the uids of the others.

        Raises: ConfigError; the doors are then as they were.
        """
        fresh: dict[str, socket.socket] = {}
        touched: list[str] = []
        try:
            for name, config in configs.items():
                if name in self._open:
                    touched.append(name)
                    doorways.prepare_doorway(name, config.uids, self._paths)
                elif config.kind is not CapsuleKind.REMOTE:
                    fresh[name] = doorways.open_doorway(name, config.uids, self._paths)
        except BaseException:
            self._undo(fresh, touched)
            raise
        return fresh

    def follow(self, fresh: dict[str, socket.socket]) -> None:
        """Open and close as the registry says now; `fresh` is from `prepare`."""
        wanted = {one.name: one for one in self._registry if has_socket(one)}
        for name in self._open.keys() - wanted.keys():
            door = self._open.pop(name)
            door.stop_listening()
            self._retired.append(door)
            self._paths.capsule_socket(name).unlink(missing_ok=True)
        for name, capsule in wanted.items():
            if name in self._open:
                with suppress(FileNotFoundError):  # somebody took it away: nobody gets in
                    doorways.admit(name, capsule.uids, self._paths)
                continue
            capsule.programs = str(self._paths.shim_dir(name))
            self._open[name] = Doorway(self._services, capsule, fresh.pop(name), self._mcp)

    async def close(self) -> None:
        """End every session, each with its own last word."""
        await asyncio.gather(*(door.close() for door in (*self._open.values(), *self._retired)))

    def unlink(self) -> None:
        """Take the sockets away; their directories may be mounted."""
        for name in self._open:
            self._paths.capsule_socket(name).unlink(missing_ok=True)

    def _undo(self, fresh: dict[str, socket.socket], touched: list[str]) -> None:
        for name, listener in fresh.items():
            doorways.close_doorway(listener, self._paths.capsule_socket(name))
        for name in touched:
            capsule = self._registry.get(name)
            if capsule is not None:
                with suppress(ConfigError, OSError):  # the first failure is the one that is told
                    doorways.admit(name, capsule.uids, self._paths)
