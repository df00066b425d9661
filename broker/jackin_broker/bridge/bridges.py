"""The bridges of all capsules: which are open, where, with which key.

A capsule has a bridge when its configuration says so and it lists host binaries: one port for HTTP
and one for frames, random unless written. It refuses to know requests. Invariants: a bridge that
cannot be opened is an error with its address; the key's file outlives the broker, and with it token
and ports; a new session has a new token and new ports.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Iterable
from typing import Final

from ..capsules import Capsule
from ..config import COMPAT_CONSTRUCT, CapsuleConfig
from ..doorways import LISTEN_BACKLOG
from ..errors import ConfigError
from ..paths import Paths
from ..services import Services
from ..session import McpServing
from .address import BridgeAddress, address_of
from .tcp import FramesDoorway, listen_on
from .tokens import BridgeKey, load_key, new_key, revoke_key, save_key

_log = logging.getLogger(__name__)


class Bridge:
    """One capsule's open bridge."""

    def __init__(
        self, services: Services, capsule: Capsule, key: BridgeKey, mcp: McpServing | None
    ) -> None:
        self.capsule: Final = capsule
        self.wanted: Final = wanted_of(capsule.config)
        self._address = address_of(capsule.config)
        http, frames = _listen_twice(capsule.config, self._address, key)
        self.key: BridgeKey | None = BridgeKey(
            key.token, http.getsockname()[1], frames.getsockname()[1]
        )
        # uvicorn is a tenth of a second and 15 MB: only where there is a bridge.
        from .http_doorway import HttpDoorway

        self._ports = self.key.http_port, self.key.frames_port
        self.doors: Final = (
            HttpDoorway(services, capsule, http, self.current_key, self._address.host),
            FramesDoorway(services, capsule, frames, self.current_key, mcp),
        )

    def current_key(self) -> BridgeKey | None:
        """The key that opens it now."""
        return self.key

    @property
    def url(self) -> str:
        """Where HTTP goes, as the capsule sees it."""
        return f"http://{self._address.at(self._ports[0])}"

    @property
    def address(self) -> str:
        """Where frames go, as the capsule sees it."""
        return self._address.at(self._ports[1])

    @property
    def binds(self) -> str:
        """The address on this machine."""
        return self._address.bind

    def environment(self) -> dict[str, str]:
        """The variables with which a capsule's programs find it; none without a token."""
        if self.key is None:
            return {}
        env = {
            "JACKIN_EXEC_URL": self.url,
            "JACKIN_BROKER_ADDR": self.address,
            "JACKIN_EXEC_TOKEN": self.key.token,
        }
        if COMPAT_CONSTRUCT in self.capsule.config.compat:
            env |= {
                "CONSTRUCT_HOST_EXEC_URL": self.url,
                "CONSTRUCT_HOST_EXEC_TOKEN": self.key.token,
            }
        return env

    def stop_listening(self) -> None:
        """Let nobody in any more; what runs goes on."""
        for door in self.doors:
            door.stop_listening()

    async def drain(self) -> None:
        """Closed to newcomers: let what runs end, then let go of everything."""
        self.key = None
        self.stop_listening()
        await asyncio.gather(*(door.drained() for door in self.doors))
        await self.close()

    async def close(self) -> None:
        """Stop listening and end every session."""
        await asyncio.gather(*(door.close() for door in self.doors))


class Bridges:
    """Every capsule's bridge, by name."""

    def __init__(self, services: Services, paths: Paths, mcp: McpServing | None = None) -> None:
        self._services = services
        self._paths = paths
        self._mcp = mcp
        self._open: dict[str, Bridge] = {}
        self._retired: dict[asyncio.Task[None], Bridge] = {}
        self._failed: dict[str, str] = {}  # why a bridge that should be open is not

    def get(self, name: str) -> Bridge | None:
        """The open bridge of a capsule."""
        return self._open.get(name)

    def environment(self, name: str) -> dict[str, str]:
        """The variables of a capsule's bridge; none where there is none."""
        bridge = self._open.get(name)
        return bridge.environment() if bridge is not None else {}

    def is_locked(self, name: str) -> bool:
        """Whether it should have a bridge and no token opens one."""
        bridge = self._open.get(name)
        return name in self._failed or (bridge is not None and bridge.key is None)

    def follow(self, capsules: Iterable[Capsule]) -> None:
        """Open and close as the configuration says now; what did not change is left alone.

        One that cannot be opened (its network may not be up yet) keeps nobody else from working:
        it is among the notices, and is tried again at each reload and `capsule env`.
        """
        known = {capsule.name: capsule for capsule in capsules}
        for name, bridge in list(self._open.items()):
            capsule = known.get(name)
            if capsule is None:
                revoke_key(self._paths.bridge_file(name))
            if (
                capsule is None
                or capsule is not bridge.capsule
                or wanted_of(capsule.config) != bridge.wanted
            ):
                self._retire(name)
        self._failed.clear()
        for capsule in known.values():
            if capsule.name not in self._open and wanted_of(capsule.config):
                self._try(capsule)

    def renew(self, capsule: Capsule) -> None:
        """A new session: a token and ports that nobody has; the former ones open nothing.

        Raises: ConfigError.
        """
        if wanted_of(capsule.config):
            self._retire(capsule.name)
            revoke_key(self._paths.bridge_file(capsule.name))  # also where no new one can be
            try:
                self._start(capsule, new_key())
            except ConfigError as error:
                self._failed[capsule.name] = str(error)
                raise

    def revoke(self, name: str) -> None:
        """The token opens nothing any more, until a new session or `renew`."""
        revoke_key(self._paths.bridge_file(name))
        bridge = self._open.get(name)
        if bridge is not None:
            bridge.key = None

    async def close(self) -> None:
        """End them all; the keys stay for the next broker."""
        left = (*self._open.values(), *self._retired.values())
        await asyncio.gather(*(bridge.close() for bridge in left))
        await asyncio.gather(*self._retired, return_exceptions=True)

    def notices(self) -> tuple[str, ...]:
        """What an operator should know of the bridges."""
        failed = tuple(f"no bridge: {reason}" for _, reason in sorted(self._failed.items()))
        return failed + tuple(
            f"capsule {name} has a bridge at {bridge.binds}: whoever has its token may ask for "
            f"{', '.join(bridge.capsule.config.host_binaries)}; its TCP is not encrypted"
            for name, bridge in sorted(self._open.items())
        )

    def _try(self, capsule: Capsule) -> None:
        try:
            key = load_key(self._paths.bridge_file(capsule.name)) or new_key()
            self._start(capsule, key)
        except ConfigError as error:
            _log.error("no bridge: %s", error)
            self._failed[capsule.name] = str(error)

    def _start(self, capsule: Capsule, key: BridgeKey) -> None:
        bridge = Bridge(self._services, capsule, key, self._mcp)
        assert bridge.key is not None
        self._open[capsule.name] = bridge
        try:
            save_key(self._paths.bridge_file(capsule.name), bridge.key)
        except ConfigError:
            self._retire(capsule.name)
            raise
        self._failed.pop(capsule.name, None)
        _log.info("capsule %s has a bridge: %s and %s", capsule.name, bridge.url, bridge.address)

    def _retire(self, name: str) -> None:
        bridge = self._open.pop(name, None)
        if bridge is not None:
            bridge.key = None
            bridge.stop_listening()
            task = asyncio.get_running_loop().create_task(bridge.drain())
            self._retired[task] = bridge
            task.add_done_callback(self._retired.pop)


def wanted_of(config: CapsuleConfig) -> tuple[object, ...]:
    """What an open bridge depends on; nothing where there is to be none.

    Off when no binaries are listed: nothing could be run through it. Source: the seed.
    """
    if not (config.bridge and config.host_binaries):
        return ()
    return (config.kind, config.bridge_bind, config.bridge_host, config.bridge_port)


def _listen_twice(
    config: CapsuleConfig, address: BridgeAddress, key: BridgeKey
) -> tuple[socket.socket, socket.socket]:
    """The HTTP socket and the one for frames.

    Raises: ConfigError.
    """
    written = config.bridge_port
    http = _listen(config, address, written, key.http_port)
    try:
        frames = _listen(config, address, written + 1 if written else 0, key.frames_port)
    except ConfigError:
        http.close()
        raise
    return http, frames


def _listen(
    config: CapsuleConfig, address: BridgeAddress, written: int, former: int
) -> socket.socket:
    """On the port that is written; else on the one that it had; else on any."""
    ports = (written,) if written else (former, 0)
    for port in ports:
        try:
            return listen_on(address.bind, port, LISTEN_BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port != ports[-1]:
                _log.warning("port %d is taken; the capsule needs its variables anew", port)
                continue
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(
                f"capsules.{config.name}.bridge: cannot listen on {address.bind}, "
                f"port {port or 'any'}: {reason}",
                hint="see the addresses of this machine with: ip address",
            ) from error
    raise AssertionError("the last port is tried or raised")
