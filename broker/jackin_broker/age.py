"""The age file format, by pyrage: the one place that knows that library.

It refuses to know what is encrypted and where files lie. No cryptography of our own, and no
exception of the library leaves: each becomes an `AgeError` that says what was wrong. An
`Identity` is a private key and has no text form but `reveal()`.
"""

from __future__ import annotations

import importlib
import time
from enum import Enum
from typing import Any, Final, NoReturn

# pyrage ships no types: they are restored here, at its edge.
_pyrage: Any = importlib.import_module("pyrage")
_DecryptError: type[Exception] = _pyrage.DecryptError
_IdentityError: type[Exception] = _pyrage.IdentityError
# What a file that only a passphrase opens begins with. Source: age-encryption.org/v1
_SCRYPT_HEADER: Final = b"age-encryption.org/v1\n-> scrypt "
# How the library words the two causes that are no damage.
_NO_MATCH: Final = "Decryption failed"
_TOO_MUCH_WORK: Final = "Excessive work"
# Before each try the library measures the machine for some milliseconds, and refuses what would
# take it too long; a machine that is busy just then looks sixteen times slower than it is. So a
# refusal, which costs nothing, is asked for again, over five seconds in all.
_MEASURES_MAX: Final = 50
_MEASURE_PAUSE_S: Final = 0.1


class AgeFault(str, Enum):
    """Why a file could not be opened."""

    WRONG_KEY = "wrong_key"
    TOO_MUCH_WORK = "too_much_work"
    DAMAGED = "damaged"


class AgeError(Exception):
    """An age file or identity that cannot be used. Never leaves the vault's files."""

    def __init__(self, fault: AgeFault) -> None:
        super().__init__(fault.value)
        self.fault: Final = fault


class Identity:
    """An X25519 private key."""

    __slots__ = ("_key",)

    def __init__(self, text: str) -> None:
        """From the text of an identity file: one key, comments allowed.

        Raises: AgeError.
        """
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self._key: Any = _parse_key(lines[0] if len(lines) == 1 else "")

    @classmethod
    def generate(cls) -> Identity:
        """A new one."""
        return cls(str(_pyrage.x25519.Identity.generate()))

    def __repr__(self) -> str:
        return "<age identity>"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("an identity is never serialised")

    def reveal(self) -> str:
        """The text of an identity file that holds this key."""
        return f"{self._key}\n"

    def encrypt(self, plain: bytes) -> bytes:
        """An age file that this identity opens."""
        sealed: bytes = _pyrage.encrypt(plain, [self._key.to_public()])
        return sealed

    def decrypt(self, sealed: bytes) -> bytes:
        """What is in an age file.

        Raises: AgeError.
        """
        try:
            plain: bytes = _pyrage.decrypt(sealed, [self._key])
        except _DecryptError:
            raise AgeError(AgeFault.DAMAGED) from None
        return plain


def encrypt_with_passphrase(plain: bytes, passphrase: str) -> bytes:
    """An age file that this passphrase opens. Takes about two seconds, by design of age."""
    sealed: bytes = _pyrage.passphrase.encrypt(plain, passphrase)
    return sealed


def decrypt_with_passphrase(sealed: bytes, passphrase: str) -> bytes:
    """What is in an age file that a passphrase opens.

    Takes one or two seconds and holds the interpreter's lock meanwhile.
    Raises: AgeError.
    """
    if not sealed.startswith(_SCRYPT_HEADER):
        raise AgeError(AgeFault.DAMAGED)
    fault = AgeFault.TOO_MUCH_WORK
    for attempt in range(_MEASURES_MAX):
        if attempt:
            time.sleep(_MEASURE_PAUSE_S)
        try:
            plain: bytes = _pyrage.passphrase.decrypt(sealed, passphrase)
        except _DecryptError as error:
            fault = _fault_of(str(error))
        else:
            return plain
        if fault is not AgeFault.TOO_MUCH_WORK:
            break
    raise AgeError(fault)


def _fault_of(words: str) -> AgeFault:
    if words == _NO_MATCH:
        return AgeFault.WRONG_KEY
    return AgeFault.TOO_MUCH_WORK if words.startswith(_TOO_MUCH_WORK) else AgeFault.DAMAGED


def _parse_key(line: str) -> Any:
    try:
        return _pyrage.x25519.Identity.from_str(line)
    except _IdentityError:
        pass  # raised below, outside: that exception must not be this one's context
    raise AgeError(AgeFault.DAMAGED)
