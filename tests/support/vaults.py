"""Real vaults for tests, without paying for a passphrase in each of them.

A passphrase costs two seconds, by design of age: one vault is made in a test run, and each test
gets a copy of its files and, where it wants it unlocked, the identity inside.
"""

from __future__ import annotations

import secrets
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jackin_broker.vault import Vault, open_key


class _Made(NamedTuple):
    data: bytes
    key: bytes
    passphrase: str
    identity: str


@cache
def _made() -> _Made:
    passphrase = "pass" + secrets.token_hex(12)
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(Path(folder) / "vault.age")
        vault.create(passphrase)
        key = vault.read_key()
        return _Made(vault.path.read_bytes(), key, passphrase, open_key(key, passphrase))


def vault_passphrase() -> str:
    """The passphrase of every vault made here."""
    return _made().passphrase


def vault_identity() -> str:
    """The identity of every vault made here, as `Vault.adopt` takes it."""
    return _made().identity


def locked_vault(folder: Path) -> Vault:
    """An empty vault in `folder`, locked."""
    made = _made()
    vault = Vault(folder / "vault.age")
    for path, content in ((vault.path, made.data), (vault.key_path, made.key)):
        path.touch(mode=0o600)
        path.write_bytes(content)
    return vault


def unlocked_vault(folder: Path) -> Vault:
    """An empty vault in `folder`, unlocked for this process."""
    vault = locked_vault(folder)
    vault.adopt(vault_identity())
    return vault
