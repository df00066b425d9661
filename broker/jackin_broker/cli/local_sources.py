"""The sources as a command line has them: in this process, without a broker.

The vault is opened, or made, when the keyring in use turns out to be the vault. It refuses to
know which command wants them. Questions are asked between runs of the event loop, never in one:
there Ctrl-C would not reach them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import click

from ..bindings import Binding, Credential, KeyringSource
from ..config import Config
from ..paths import Paths
from ..sources.keyring import VAULT
from ..sources.resolver import Resolver, consumed_variables
from ..vault import Vault
from .hidden_prompt import new_vault_passphrase, vault_passphrase

T = TypeVar("T")


class LocalSources:
    """A context manager; `keyring` is the one in use, in words."""

    def __init__(self, config: Config, places: Paths, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._vault = Vault(places.vault_file)
        self._loop = asyncio.Runner()
        self._resolver = Resolver(
            environ=environ,
            keyring_kind=config.broker.keyring.value,
            vault=self._vault,
            timeout_s=config.limits.source_s,
            consumed=consumed_variables(config.all_bindings()),
        )
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._vault.lock()
        self._run(self._resolver.close())
        self._loop.close()

    def open_keyring(self, *, create: bool) -> str:
        """Make the keyring ready to use; the words for it. `create` makes a vault if need be.

        Raises: JackinError.
        """
        chosen = self._run(self._resolver.keyring())
        if chosen.kind == VAULT and not self._vault.is_unlocked:
            self._open_vault(create)
        self._is_open = True
        return str(chosen)

    def store(self, source: KeyringSource, value: str, *, name: str) -> None:
        """Put a value into the keyring.

        Raises: SourceError.
        """
        self._run(self._resolver.store(source.service, source.username, value, name=name))

    def remove(self, source: KeyringSource, *, name: str) -> bool:
        """Take a value out of the keyring; whether there was one.

        Raises: SourceError.
        """
        return self._run(self._resolver.remove(source.service, source.username, name=name))

    def resolve(self, binding: Binding) -> Credential:
        """One credential.

        Raises: JackinError.
        """
        if isinstance(binding.source, KeyringSource) and not self._is_open:
            self.open_keyring(create=False)
        return self._run(self._resolver.resolve([binding]))[0]

    def _open_vault(self, create: bool) -> None:
        if self._vault.exists or not create:
            # Without a vault, the unlocking says so, before anybody is asked.
            self._vault.read_key()
            self._vault.unlock(vault_passphrase(self._environ))
            return
        click.echo(f"a vault will be made at {self._vault.path}", err=True)
        self._vault.create(new_vault_passphrase(self._environ))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)
