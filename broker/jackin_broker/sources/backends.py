"""The operating system's keyrings, each built by its own class: nothing is probed or chosen here.

The `keyring` library's automatic choice is never used: a plug-in that happens to be installed
would change it, and some of those ask questions on the terminal. The other job of this file is
to say what a backend's exceptions mean; it refuses to pass on texts that could hold a value.
Imported in helper processes, and in the broker only where the vault is used (80 ms).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final, cast

import keyring.errors
from keyring.backend import KeyringBackend

from ..errors import SourceError, SourceFault
from .base import VALUE_MAX_BYTES
from .keyring_messages import NO_BUS_HINT, Delete, Did, Found, Get, Set

# kind → module and class, by the keyring library
_CLASSES: Final = {
    "secret-service": ("keyring.backends.SecretService", "Keyring"),
    "macos": ("keyring.backends.macOS", "Keyring"),
    "kwallet": ("keyring.backends.kwallet", "DBusKeyring"),
}
SYSTEM_KEYRINGS: Final = tuple(_CLASSES)
_DEFAULT_COLLECTION: Final = "/org/freedesktop/secrets/aliases/default"
_USE_THE_VAULT: Final = '[broker] keyring = "vault"'


def build(kind: str) -> KeyringBackend:
    """The backend of that kind.

    Raises: SourceError(UNAVAILABLE) where this machine cannot have it.
    """
    module, name = _CLASSES[kind]
    try:
        backend: type[KeyringBackend] = getattr(importlib.import_module(module), name)
        if kind != "secret-service":  # for that one the call itself says it better
            _ = backend.priority  # how the library checks one class: it raises, or is a number
        return backend()
    except (ImportError, RuntimeError) as error:
        raise SourceError(
            SourceFault.UNAVAILABLE,
            f"the {kind} keyring does not work on this machine",
            hint=f"set {_USE_THE_VAULT}",
        ) from error


def is_secret_service_there() -> bool:
    """Whether a Secret Service runs on the session bus, or would be started for a caller."""
    secretstorage: Any = importlib.import_module("secretstorage")
    try:
        with closing(secretstorage.dbus_init()) as bus:
            return bool(secretstorage.check_service_availability(bus))
    except (secretstorage.SecretStorageException, OSError):
        return False


def is_locked(kind: str) -> bool:
    """Whether a look-up now would first ask a person to unlock; a guess where it is unknown."""
    if kind != "secret-service":
        return False
    secretstorage: Any = importlib.import_module("secretstorage")
    try:
        with closing(secretstorage.dbus_init()) as bus:
            return bool(secretstorage.Collection(bus, _DEFAULT_COLLECTION).is_locked())
    except (secretstorage.SecretStorageException, OSError):
        return False  # the look-up itself will say what is wrong


def translated(call: Callable[[], str | None]) -> str | None:
    """What a call of a backend returns.

    Raises: SourceError for whatever the backend raised, without its text unless that is known
    to hold no value, and without it as a cause.
    """
    try:
        return call()
    except Exception as error:  # backends let their libraries' exceptions through
        fault = _fault_of(error)
    raise fault


def answer(backend: KeyringBackend, request: Get | Set | Delete) -> Found | Did:
    """What a request to a backend gives.

    Raises: SourceError.
    """
    service, username = request.service, request.username
    value = None
    if not isinstance(request, Set):
        value = translated(lambda: backend.get_password(service, username))
    match request:
        case Get():
            if value is not None and len(value.encode()) > VALUE_MAX_BYTES:
                raise SourceError(SourceFault.FAILED, "the value is too long for a credential")
            return Found(value)
        case Set():
            translated(lambda: _stored(backend, request))
            return Did(True)
        case Delete():
            # The library has one error for "there is none" and "it did not work".
            if value is None:
                return Did(False)
            translated(lambda: backend.delete_password(service, username))
            return Did(True)


def _stored(backend: KeyringBackend, item: Set) -> None:
    store = cast("Any", backend).set_password  # the library wraps it without types
    store(item.service, item.username, item.value)


def _fault_of(error: Exception) -> SourceError:
    if isinstance(error.__cause__, SourceError):  # our own backend, the vault
        cause = error.__cause__
        return SourceError(cause.fault, str(cause), hint=cause.hint)
    # By name: the library under the Secret Service is not on every machine. InitError has it as
    # its cause.
    causes = [error] if error.__cause__ is None else [error, error.__cause__]
    names = {base.__name__ for cause in causes for base in type(cause).__mro__}
    if isinstance(error, keyring.errors.KeyringLocked) or "LockedException" in names:
        return SourceError(
            SourceFault.LOCKED, "the keyring is locked", hint="unlock it on your desktop"
        )
    if "SecretServiceNotAvailableException" in names:
        return SourceError(
            SourceFault.UNAVAILABLE, "no Secret Service answers on D-Bus", hint=NO_BUS_HINT
        )
    if isinstance(error, keyring.errors.InitError):
        return SourceError(
            SourceFault.UNAVAILABLE,
            "the keyring has no collection to open",
            hint=f"log in on the desktop once so that it makes one, or set {_USE_THE_VAULT}",
        )
    return SourceError(
        SourceFault.FAILED,
        f"the keyring failed ({type(error).__name__})",
        hint="jackin-broker doctor",
    )
