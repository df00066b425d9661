"""Bindings: a configured name, the source of its value, and how a command gets it.

A binding never holds a value. A `Credential` does, for the length of one command: its `repr`
shows the name alone, `reveal()` is the one way to its bytes.
Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NoReturn

import msgspec


class Delivery(str, Enum):
    """How the command gets the value (DESIGN §8)."""

    ENV = "env"
    FILE = "file"
    STDIN = "stdin"
    PROMPT = "prompt"
    SSH_AGENT = "ssh-agent"


class Redact(str, Enum):
    """Whether the value becomes needles, and which."""

    ON = "on"
    OFF = "off"
    FRAGMENTS = "fragments"


class KeyringSource(msgspec.Struct, frozen=True, tag="keyring"):
    """The OS keyring or the vault."""

    service: str
    username: str


class OpSource(msgspec.Struct, frozen=True, tag="op"):
    """`op read -- REF`."""

    ref: str
    path: str = ""
    account: str = ""


class EnvSource(msgspec.Struct, frozen=True, tag="env"):
    """A variable of the broker's own environment."""

    variable: str


class ValueSource(msgspec.Struct, frozen=True, tag="value"):
    """A value written into the configuration itself."""

    value: str

    def __repr__(self) -> str:
        return "ValueSource(value=<hidden>)"


class CommandSource(msgspec.Struct, frozen=True, tag="command"):
    """The standard output of a command, less one newline at its end."""

    argv: tuple[str, ...]


class FileSource(msgspec.Struct, frozen=True, tag="file"):
    """The bytes of a file, less one newline at its end."""

    path: str


Source = KeyringSource | OpSource | EnvSource | ValueSource | CommandSource | FileSource


class Binding(msgspec.Struct, frozen=True):
    """One configured name ↔ source + delivery.

    `prompt` is the pattern for the delivery of that name; `deliver_as` overrides the variable.
    `passphrase` names the binding that opens a key for its ssh-agent, `destinations` are the hosts
    that the key may be used for there.
    """

    name: str
    source: Source
    on_demand: bool = False
    delivery: Delivery = Delivery.ENV
    deliver_as: str = ""
    label: str = ""
    redact: Redact = Redact.ON
    prompt: str = ""
    passphrase: str = ""
    destinations: tuple[str, ...] = ()


def companions_of(bindings: Iterable[Binding], known: Mapping[str, Binding]) -> list[Binding]:
    """The passphrases of these bindings' keys, each once: resolved with them, lent to nobody.

    Shape: those that are among `bindings` themselves are left out.
    """
    given = list(bindings)
    names = dict.fromkeys(binding.passphrase for binding in given if binding.passphrase)
    ticked = {binding.name for binding in given}
    return [known[name] for name in names if name in known and name not in ticked]


def describe_source(source: Source) -> str:
    """Words for the prompt that say where a value comes from, never the value."""
    match source:
        case KeyringSource(service, username):
            return f"keyring {service}/{username}"
        case OpSource(ref, path, _):
            return f"1Password {path or ref}"
        case EnvSource(variable):
            return f"environment ${variable}"
        case ValueSource():
            return "value in the configuration"
        case CommandSource(argv):
            return f"command {argv[0] if argv else ''}"
        case FileSource(path):
            return f"file {path}"


class Credential:
    """A resolved value, for the length of one command.

    It has no equality, no pickle, no text form: what prints it prints the binding's name.
    """

    __slots__ = ("_value", "binding", "masked_as", "passphrase")

    def __init__(self, binding: Binding, value: bytes) -> None:
        self.binding = binding
        # Whose marker stands for it in the output, and who is suspended when it is guessed at.
        self.masked_as = binding.name
        # What opens this key, where its binding names one.
        self.passphrase: Credential | None = None
        self._value = value

    def __repr__(self) -> str:
        return f"<credential {self.binding.name}>"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential is never serialised")

    def reveal(self) -> bytes:
        """The bytes. Called by deliveries and by the needle maker, nowhere else."""
        return self._value

    def forget(self) -> None:
        """Drop the reference; Python cannot promise that the memory is wiped."""
        self._value = b""


def pair(lent: Sequence[Credential], companions: Sequence[Credential]) -> None:
    """Give each key its passphrase; one that is not lent itself is masked under its key's name."""
    known = {one.binding.name: one for one in (*lent, *companions)}
    for key in lent:
        opens = key.passphrase = known.get(key.binding.passphrase)
        if opens is not None and opens in companions:
            opens.masked_as = key.binding.name
