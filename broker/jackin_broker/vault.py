"""The vault: the keyring for machines that have none, made of two ordinary age files.

`vault.age` holds the values as JSON, encrypted to an X25519 identity; `vault.key.age` holds that
identity, encrypted with the operator's passphrase. So a passphrase costs its seconds once, an
access 0.2 ms, and the stock tool opens it all: `age -d -i vault.key.age vault.age`.

It refuses to know who asks for a passphrase, and how. Invariants: an unlocked vault keeps the
identity in memory and nothing else; what cannot be read is never overwritten; writers in any
number of processes lose nothing; no message, repr or traceback holds a value.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from .age import (
    AgeError,
    AgeFault,
    Identity,
    decrypt_with_passphrase,
    encrypt_with_passphrase,
)
from .atomic import held_lock, replace_file
from .errors import SourceError, SourceFault

VAULT_SCHEMA: Final = 1
# A thousand values of 64 KiB; the whole file is decrypted at each access.
VAULT_MAX_BYTES: Final = 64 * 1024 * 1024
# A passphrase-encrypted identity is under 400 bytes; anything longer is another file.
KEY_FILE_MAX_BYTES: Final = 64 * 1024


class VaultError(SourceError):
    """The vault gave or took no value; `fault` says what kept it."""


class _Contents(msgspec.Struct):
    """What `vault.age` holds: service → username → value."""

    schema: int = VAULT_SCHEMA
    items: dict[str, dict[str, str]] = {}

    def __repr__(self) -> str:
        return "_Contents(<hidden>)"


class Vault:
    """The vault at `path` (`…/vault.age`); its key is beside it. Safe to use from threads."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.key_path: Final = path.with_name(f"{path.stem}.key.age")
        self._lock_path = path.with_name(f"{path.stem}.lock")
        self._identity: Identity | None = None

    def __repr__(self) -> str:
        return f"<vault {self.path}, {'unlocked' if self.is_unlocked else 'locked'}>"

    @property
    def exists(self) -> bool:
        """Whether it was created."""
        return self.key_path.exists()

    @property
    def is_unlocked(self) -> bool:
        """Whether values can be read and written."""
        return self._identity is not None

    def create(self, passphrase: str) -> None:
        """Make an empty vault and leave it unlocked. Takes seconds: the passphrase's cost.

        Raises: VaultError where one is there already, also a half of one.
        """
        self.refuse_existing()
        identity = Identity.generate()
        key = _seal(identity, passphrase)
        with self._alone():
            self.refuse_existing()
            # The key last: without it there is no vault yet.
            self._write(_Contents(), identity)
            _replace(self.key_path, key)
        self._identity = identity

    def unlock(self, passphrase: str) -> None:
        """Open it for this process.

        Takes seconds and holds the interpreter's lock meanwhile: the daemon uses
        `vault_opener.unlock`, which does the work in another process.
        Raises: VaultError where the passphrase is wrong or a file is damaged.
        """
        self.adopt(open_key(self.read_key(), passphrase))

    def adopt(self, identity_text: str) -> None:
        """Be unlocked with an identity that `open_key` gave.

        Raises: VaultError where it does not open this vault.
        """
        identity = _identity_from(identity_text)
        self._read(identity)
        self._identity = identity

    def lock(self) -> None:
        """Forget the identity."""
        self._identity = None

    def change(self, old: str, new: str) -> None:
        """Have `new` open it from now on; the identity and the values stay.

        Raises: VaultError; then the old passphrase still opens it.
        """
        with self._alone():
            identity = _identity_from(open_key(self.read_key(), old))
            self._read(identity)
            _replace(self.key_path, _seal(identity, new))

    def get(self, service: str, username: str) -> str | None:
        """The value, or None where there is none.

        Raises: VaultError.
        """
        return self._read(self._opened()).items.get(service, {}).get(username)

    def set(self, service: str, username: str, value: str) -> None:
        """Store a value, in place of any that is there.

        Raises: VaultError; then nothing was changed.
        """
        identity = self._opened()
        with self._alone():
            contents = self._read(identity)
            contents.items.setdefault(service, {})[username] = value
            self._write(contents, identity)

    def delete(self, service: str, username: str) -> bool:
        """Remove a value; whether there was one.

        Raises: VaultError; then nothing was changed.
        """
        identity = self._opened()
        with self._alone():
            contents = self._read(identity)
            names = contents.items.get(service, {})
            if username not in names:
                return False
            del names[username]
            if not names:
                del contents.items[service]
            self._write(contents, identity)
        return True

    def read_key(self) -> bytes:
        """The key file's bytes, for `open_key`.

        Raises: VaultError where there is no vault.
        """
        try:
            with self.key_path.open("rb") as key:
                return key.read(KEY_FILE_MAX_BYTES)
        except FileNotFoundError:
            raise _no_vault(self.path) from None
        except OSError as error:
            raise _unreadable(self.key_path, error) from error

    def _opened(self) -> Identity:
        if self._identity is not None:
            return self._identity
        if not self.exists:
            raise _no_vault(self.path)
        raise VaultError(
            SourceFault.LOCKED, "the vault is locked", hint="jackin-broker vault unlock"
        )

    @contextmanager
    def _alone(self) -> Generator[None, None, None]:
        try:
            lock = ExitStack()
            lock.enter_context(held_lock(self._lock_path))
        except OSError as error:
            raise _unwritable(self._lock_path, error) from error
        with lock:
            yield

    def refuse_existing(self) -> None:
        """Raise VaultError where there is a vault already, or a half of one."""
        if self.key_path.exists():
            raise VaultError(
                SourceFault.FAILED,
                f"there is a vault already: {self.path}",
                hint="to change its passphrase: jackin-broker vault change",
            )
        if self.path.exists():
            raise VaultError(
                SourceFault.FAILED,
                f"{self.path} is there but its key {self.key_path.name} is not",
                hint="restore the key from a backup, or move the file away to begin afresh",
            )

    def _read(self, identity: Identity) -> _Contents:
        try:
            with self.path.open("rb") as data:
                sealed = data.read(VAULT_MAX_BYTES + 1)
        except FileNotFoundError:
            raise _damaged(self.path, "is missing, though its key is there") from None
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if len(sealed) > VAULT_MAX_BYTES:
            raise _damaged(self.path, "is larger than a vault can be")
        try:
            plain = identity.decrypt(sealed)
        except AgeError:
            raise _damaged(self.path, "is damaged, or belongs to another key") from None
        return _parse(plain, self.path)

    def _write(self, contents: _Contents, identity: Identity) -> None:
        plain = msgspec.json.format(msgspec.json.encode(contents, order="sorted"), indent=2)
        sealed = identity.encrypt(plain)
        if len(sealed) > VAULT_MAX_BYTES:
            raise VaultError(
                SourceFault.FAILED,
                f"the vault would be over {VAULT_MAX_BYTES // 2**20} MiB",
                hint='keep large values in files: { file = "…" }',
            )
        _replace(self.path, sealed)


def open_key(key: bytes, passphrase: str) -> str:
    """The identity in a key file, as text. Takes seconds.

    Raises: VaultError where the passphrase is wrong or the key is damaged.
    """
    try:
        return decrypt_with_passphrase(key, passphrase).decode("ascii", "replace")
    except AgeError as error:
        fault = error.fault
    if fault is AgeFault.WRONG_KEY:
        raise VaultError(
            SourceFault.FAILED, "the passphrase does not open the vault", hint="try it again"
        )
    if fault is AgeFault.TOO_MUCH_WORK:
        raise VaultError(
            SourceFault.FAILED,
            "the vault's passphrase was set on a machine too fast for this one",
            hint="change it there, or set it anew with: age -d and age -p",
        )
    raise _damaged_key()


def _seal(identity: Identity, passphrase: str) -> bytes:
    if not passphrase:
        raise VaultError(
            SourceFault.FAILED, "an empty passphrase protects nothing", hint="choose a longer one"
        )
    return encrypt_with_passphrase(identity.reveal().encode(), passphrase)


def _replace(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise _unwritable(path, error) from error


def _identity_from(text: str) -> Identity:
    try:
        return Identity(text)
    except AgeError:
        raise _damaged_key() from None


def _parse(plain: bytes, path: Path) -> _Contents:
    try:
        contents = msgspec.json.decode(plain, type=_Contents)
    except (msgspec.DecodeError, UnicodeDecodeError):
        contents = None  # raised below: the exception's own text may quote the content
    if contents is None:
        raise _damaged(path, "holds something that is not a vault")
    if contents.schema != VAULT_SCHEMA:
        raise VaultError(
            SourceFault.UNAVAILABLE,
            f"{path} has schema {contents.schema}, this version knows {VAULT_SCHEMA}",
            hint="use the version of jackin-exec that wrote it",
        )
    return contents


def _no_vault(path: Path) -> VaultError:
    return VaultError(
        SourceFault.UNAVAILABLE, f"there is no vault at {path}", hint="jackin-broker vault create"
    )


def _damaged(path: Path, how: str) -> VaultError:
    return VaultError(
        SourceFault.FAILED, f"{path} {how}", hint="nothing was changed; restore it from a backup"
    )


def _damaged_key() -> VaultError:
    return VaultError(
        SourceFault.FAILED,
        "the vault's key file is damaged",
        hint="nothing was changed; restore vault.key.age from a backup",
    )


def _unreadable(path: Path, error: OSError) -> VaultError:
    return VaultError(SourceFault.FAILED, f"{path} cannot be read: {error.strerror}")


def _unwritable(path: Path, error: OSError) -> VaultError:
    return VaultError(
        SourceFault.FAILED,
        f"{path} cannot be written: {error.strerror}",
        hint="nothing was changed",
    )
