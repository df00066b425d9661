"""Source `keyring`: an item of the operating system's keyring, or of the vault.

Which one is decided by the configuration's word, once; for `auto` it is the Secret Service where
one answers on the session bus, else the vault. The system's keyrings are asked in helper
processes (`keyring_helper.py`), the vault here: its identity never leaves the broker.
"""

from __future__ import annotations

import asyncio
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ..bindings import KeyringSource
from ..errors import SourceError, SourceFault
from ..vault import Vault
from .base import Lookup, SourceReader, in_thread
from .helper_process import HelperGone, HelperPool, HelperProcess
from .keyring_messages import (
    NO_BUS_HINT,
    Answer,
    Broken,
    Delete,
    Did,
    Found,
    Get,
    Probe,
    Request,
    Set,
    Waiting,
)

VAULT: Final = "vault"
_BUS_VARIABLE: Final = "DBUS_SESSION_BUS_ADDRESS"
# All that a keyring's client needs; everything else may be a value that some source names.
_HELPER_VARIABLES: Final = (
    "DISPLAY",
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "USER",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    _BUS_VARIABLE,
)
_answers = msgspec.msgpack.Decoder(Answer)


@dataclass(frozen=True)
class ChosenKeyring:
    """The keyring in use: secret-service, macos, kwallet or vault; and why, if it was chosen."""

    kind: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({self.why})" if self.why else self.kind


class KeyringReader(SourceReader[KeyringSource]):
    """Reads, stores and removes items."""

    def __init__(
        self, kind: str, vault: Vault, environ: Mapping[str, str], hidden: frozenset[str]
    ) -> None:
        self._kind = str.__str__(kind)  # an enum of the configuration is a text too
        self._vault = vault
        self._env = helper_env(environ, hidden)
        self._pools: dict[str, HelperPool] = {}
        self._chosen: ChosenKeyring | None = None
        self._choosing = asyncio.Lock()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<keyring source {self._kind}>"

    @property
    def helper_pids(self) -> frozenset[int]:
        """The process ids of the helpers that run."""
        return frozenset(pid for pool in self._pools.values() for pid in pool.pids)

    async def choose(self, lookup: Lookup) -> ChosenKeyring:
        """The keyring in use; decided at the first call.

        Raises: SourceError.
        """
        async with self._choosing:
            if self._chosen is None:
                self._chosen = await self._choice(lookup)
            return self._chosen

    async def check(self, lookup: Lookup) -> ChosenKeyring:
        """The keyring in use, after a look whether it answers.

        Raises: SourceError.
        """
        chosen = await self.choose(lookup)
        if chosen.kind != "secret-service":
            return chosen
        self._need_bus(lookup)
        answer = await self._ask_helper(chosen.kind, Probe(), lookup)
        if not (isinstance(answer, Did) and answer.yes):
            raise lookup.fault(
                SourceFault.UNAVAILABLE, "no Secret Service answers on D-Bus", hint=NO_BUS_HINT
            )
        return chosen

    async def read(self, source: KeyringSource, lookup: Lookup) -> bytes:
        """The item's value as UTF-8.

        Raises: SourceError.
        """
        answer = await self._ask(Get(source.service, source.username), lookup)
        if not isinstance(answer, Found) or answer.value is None:
            chosen = await self.choose(lookup)
            raise lookup.fault(
                SourceFault.MISSING,
                f"{chosen.kind} has no item {source.service}/{source.username}",
                hint=f"jackin-broker credential add {lookup.name}",
            )
        return answer.value.encode()

    async def store(self, source: KeyringSource, value: str, lookup: Lookup) -> None:
        """Store a value, in place of any that is there.

        Raises: SourceError.
        """
        await self._ask(Set(source.service, source.username, value), lookup)

    async def remove(self, source: KeyringSource, lookup: Lookup) -> bool:
        """Remove an item; whether there was one.

        Raises: SourceError.
        """
        answer = await self._ask(Delete(source.service, source.username), lookup)
        return isinstance(answer, Did) and answer.yes

    async def close(self) -> None:
        """Keep nothing warm any more; look-ups that are under way, or come yet, still end well."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()
        await asyncio.sleep(0)  # lets sockets close before the loop may end

    async def _choice(self, lookup: Lookup) -> ChosenKeyring:
        if self._kind != "auto":
            return ChosenKeyring(self._kind)
        if sys.platform == "darwin":
            return ChosenKeyring("macos", "chosen by auto")
        if _BUS_VARIABLE not in self._env:
            return ChosenKeyring(VAULT, "no D-Bus session bus")
        answer = await self._ask_helper("secret-service", Probe(), lookup)
        if isinstance(answer, Did) and answer.yes:
            return ChosenKeyring("secret-service", "chosen by auto")
        await self.close()
        return ChosenKeyring(VAULT, "no Secret Service on the session bus")

    async def _ask(self, request: Get | Set | Delete, lookup: Lookup) -> Found | Did:
        chosen = await self.choose(lookup)
        if chosen.kind == VAULT:
            return await self._ask_vault(request, lookup)
        if chosen.kind == "secret-service":
            self._need_bus(lookup)
        return await self._ask_helper(chosen.kind, request, lookup)

    def _need_bus(self, lookup: Lookup) -> None:
        if _BUS_VARIABLE not in self._env:
            raise lookup.fault(
                SourceFault.UNAVAILABLE,
                "there is no D-Bus session bus, so no Secret Service",
                hint=NO_BUS_HINT,
            )

    async def _ask_vault(self, request: Get | Set | Delete, lookup: Lookup) -> Found | Did:
        try:
            return await in_thread(lambda: _from_vault(self._vault, request))
        except SourceError as error:
            raise lookup.fault(error.fault, str(error), hint=error.hint) from error

    async def _ask_helper(self, kind: str, request: Request, lookup: Lookup) -> Found | Did:
        pool = self._pools.get(kind)
        if pool is None:
            pool = HelperPool(("jackin_broker.sources.keyring_helper", kind), self._env)
            self._pools[kind] = pool
            if self._is_closed:
                pool.close()
        body = msgspec.msgpack.encode(request)

        async def converse(helper: HelperProcess) -> Found | Did | Broken:
            answer = _answers.decode(await helper.ask(body))
            while isinstance(answer, Waiting):
                lookup.waits_for_unlock = True
                answer = _answers.decode(await helper.receive())
            lookup.waits_for_unlock = False
            return answer

        try:
            try:
                answer = await pool.run(converse)
            except HelperGone:
                # A warm one may have been killed while it waited; all requests can be repeated.
                answer = await pool.run(converse)
        except (HelperGone, OSError):
            raise lookup.fault(
                SourceFault.FAILED,
                "the process that reads the keyring ended",
                hint="jackin-broker doctor",
            ) from None
        if isinstance(answer, Broken):
            raise lookup.fault(answer.fault, answer.reason, hint=answer.hint)
        return answer


def _from_vault(vault: Vault, request: Get | Set | Delete) -> Found | Did:
    # Here: the keyring library takes 80 ms to load, and only the vault needs it in the broker.
    from . import backends
    from .vault_keyring import VaultKeyring

    return backends.answer(VaultKeyring(vault), request)


def helper_env(environ: Mapping[str, str], hidden: frozenset[str]) -> dict[str, str]:
    """What a helper's environment holds; the session bus also where only its socket is known."""
    names = (name for name in _HELPER_VARIABLES if name in environ and name not in hidden)
    env = {name: environ[name] for name in names}
    # systemd's place for it; libdbus looks there too, the library for the Secret Service not.
    bus = Path(environ.get("XDG_RUNTIME_DIR", "/nonexistent")) / "bus"
    if not env.get(_BUS_VARIABLE):
        env.pop(_BUS_VARIABLE, None)
        if _is_socket(bus):
            env[_BUS_VARIABLE] = f"unix:path={bus}"
    return env


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
