"""Resolving: the values of the bindings that one command gets, all at once, each in time.

It refuses to know who asked and what the values are for. The first failure is the answer; what
still runs then is cancelled, and a source that is cancelled leaves nothing running. Values leave
in `Credential`s only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..bindings import (
    Binding,
    CommandSource,
    Credential,
    EnvSource,
    FileSource,
    KeyringSource,
    OpSource,
    Source,
    ValueSource,
)
from ..errors import SourceError, SourceFault
from ..passphrase import PASSPHRASE_VARIABLES
from ..vault import Vault
from .base import Lookup, check_size
from .command import CommandReader
from .env import EnvReader
from .file import FileReader
from .keyring import ChosenKeyring, KeyringReader
from .op import OpReader
from .value import ValueReader

T = TypeVar("T")


def consumed_variables(bindings: Iterable[Binding]) -> frozenset[str]:
    """The variables that sources read: they are in no child's environment (DESIGN §8)."""
    sources = (binding.source for binding in bindings)
    named = {source.variable for source in sources if isinstance(source, EnvSource)}
    return PASSPHRASE_VARIABLES.union(named)


class Resolver:
    """All sources, as one broker run has them.

    `environ` is the broker's own, `keyring_kind` the configuration's word, `timeout_s` the time
    that one value may take, `consumed` what no process started here may inherit.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        keyring_kind: str,
        vault: Vault,
        timeout_s: float,
        consumed: frozenset[str] = frozenset(),
    ) -> None:
        hidden = consumed | PASSPHRASE_VARIABLES
        kept = {name: text for name, text in environ.items() if name not in hidden}
        self._timeout_s = timeout_s
        self._keyring = KeyringReader(keyring_kind, vault, environ, hidden)
        self._env = EnvReader(environ)
        self._value = ValueReader()
        self._command = CommandReader(kept)
        self._file = FileReader(environ)
        self._op = OpReader(kept)

    async def resolve(self, bindings: Sequence[Binding]) -> list[Credential]:
        """The credentials, in the order of the bindings.

        Raises: SourceError, the first that happened.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._resolve_one(binding)) for binding in bindings]
        except* SourceError as failures:
            first = _first(failures)
        else:
            return [task.result() for task in tasks]
        raise first

    async def store(self, service: str, username: str, value: str, *, name: str = "") -> None:
        """Put a value into the keyring; `name` is the binding's, for messages.

        Raises: SourceError.
        """
        lookup = Lookup(name or username)
        source = KeyringSource(service, username)
        await self._in_time(self._keyring.store(source, value, lookup), lookup)

    async def remove(self, service: str, username: str, *, name: str = "") -> bool:
        """Take a value out of the keyring; whether there was one.

        Raises: SourceError.
        """
        lookup = Lookup(name or username)
        source = KeyringSource(service, username)
        return await self._in_time(self._keyring.remove(source, lookup), lookup)

    async def keyring(self) -> ChosenKeyring:
        """The keyring in use. `str()` of it is words for status and doctor.

        Raises: SourceError where even that cannot be found out.
        """
        lookup = Lookup("keyring")
        return await self._in_time(self._keyring.choose(lookup), lookup)

    async def check_keyring(self) -> ChosenKeyring:
        """The keyring in use, after a look whether it answers.

        Raises: SourceError with what to do where it does not.
        """
        lookup = Lookup("keyring")
        return await self._in_time(self._keyring.check(lookup), lookup)

    async def close(self) -> None:
        """End what was kept warm; what is being resolved still is, to its deadline."""
        await self._keyring.close()

    async def _resolve_one(self, binding: Binding) -> Credential:
        lookup = Lookup(binding.name)
        value = await self._in_time(self._read(binding.source, lookup), lookup)
        return Credential(binding, check_size(value, lookup))

    async def _read(self, source: Source, lookup: Lookup) -> bytes:
        match source:
            case KeyringSource():
                return await self._keyring.read(source, lookup)
            case OpSource():
                return await self._op.read(source, lookup)
            case EnvSource():
                return await self._env.read(source, lookup)
            case ValueSource():
                return await self._value.read(source, lookup)
            case CommandSource():
                return await self._command.read(source, lookup)
            case FileSource():
                return await self._file.read(source, lookup)

    async def _in_time(self, work: Coroutine[Any, Any, T], lookup: Lookup) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            pass  # raised below, without the cancelled calls as its context
        if lookup.waits_for_unlock:
            raise lookup.fault(
                SourceFault.LOCKED,
                f"the keyring is locked, and nobody unlocked it within {self._timeout_s:g} s",
                hint="unlock it on your desktop",
            )
        raise lookup.fault(
            SourceFault.TIMED_OUT,
            f"no value within {self._timeout_s:g} s",
            hint="look at what its source waits for, or raise [limits] source_s",
        )


def _first(failures: BaseExceptionGroup[SourceError]) -> SourceError:
    """The failure that happened first: a task group keeps them in that order."""
    found: BaseException = failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, SourceError)  # `except*` admits no other
    return found
