"""The vault as a backend of the `keyring` library, like the operating system's own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from keyring.backend import KeyringBackend
from keyring.errors import KeyringError, KeyringLocked, PasswordDeleteError

from ..errors import SourceFault
from ..vault import Vault, VaultError


class VaultKeyring(KeyringBackend):
    """An adapter: its errors are the library's, with the vault's own as their cause.

    It is built by name. It has no `priority`, so the library never chooses it by itself.
    """

    def __init__(self, vault: Vault) -> None:
        # Not the base's: it would take settings from the environment (KEYRING_PROPERTY_…).
        self._vault = vault

    def get_password(self, service: str, username: str) -> str | None:
        """The value, or None."""
        with _translated():
            return self._vault.get(service, username)

    def set_password(self, service: str, username: str, password: str) -> None:
        """Store a value."""
        with _translated():
            self._vault.set(service, username, password)

    def delete_password(self, service: str, username: str) -> None:
        """Remove a value."""
        with _translated():
            if self._vault.delete(service, username):
                return
        raise PasswordDeleteError("the vault has no such item")


@contextmanager
def _translated() -> Generator[None, None, None]:
    try:
        yield
    except VaultError as error:
        if error.fault is SourceFault.LOCKED:
            raise KeyringLocked(str(error)) from error
        raise KeyringError(str(error)) from error
