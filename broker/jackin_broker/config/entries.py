"""`[env]` entries: the seed's shapes and ours, as bindings (DESIGN §8).

It refuses to know files and keyrings: an entry says where a value comes from, nobody looks
there. No problem repeats a value. How a command gets it is `delivering.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from ..bindings import (
    Binding,
    CommandSource,
    EnvSource,
    FileSource,
    KeyringSource,
    OpSource,
    Redact,
    Source,
    ValueSource,
)
from .delivering import DELIVERY_KEYS, read_delivery, wrong_variable
from .places import expand
from .table import Table, kind_of

_REFERENCE: Final = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_OP_SCHEME: Final = "op://"
# op://VAULT/ITEM/FIELD
_OP_MIN_SEGMENTS: Final = 3
# A label is one line beside a check box.
_LABEL_MAX_CHARS: Final = 100
_SOURCES: Final = ("keyring", "op", "value", "command", "file")
_ON_DEMAND_ONLY: Final = (*DELIVERY_KEYS, "redact")


def read_entries(table: Table, home: str) -> dict[str, Binding]:
    """The bindings of an `[env]` table, by name, in its order."""
    entries: dict[str, Binding] = {}
    for name in table.data:
        if wrong := wrong_variable(name):
            table.raw(name)
            table.add(name, wrong)
            continue
        binding = _entry(table, name, home)
        if binding is not None:
            entries[name] = binding
    return entries


def text_source(text: str) -> Source:
    """A text as the seed reads it: wholly `$NAME` or `${NAME}` is the broker's variable."""
    found = _REFERENCE.fullmatch(text)
    return EnvSource(found[1] or found[2]) if found else ValueSource(text)


def _entry(table: Table, name: str, home: str) -> Binding | None:
    value = table.raw(name)
    if isinstance(value, str):
        return Binding(name, text_source(table.text(name)))
    if not isinstance(value, dict):
        table.add(name, f"expected a text in quotes or a table, found {kind_of(value)}")
        return None
    entry = table.table(name)
    source = _source(entry, name, home)
    binding = _with_options(entry, name, source)
    entry.finish()
    return binding


def _source(entry: Table, name: str, home: str) -> Source | None:
    """The one source that an entry names."""
    readers: dict[str, Callable[[], Source | None]] = {
        "keyring": lambda: _keyring(entry, name),
        "op": lambda: _op(entry),
        "value": lambda: text_source(entry.text("value")),
        "command": lambda: _command(entry),
        "file": lambda: _file(entry, home),
    }
    named = [key for key in _SOURCES if entry.has(key)]
    if not named:
        entry.problems.add(entry.path, f"names no source, write one of {', '.join(_SOURCES)}")
        for key in ("username", "path", "account"):
            entry.has(key)
        return None
    if len(named) > 1:
        entry.problems.add(entry.path, f"names two sources, {named[0]} and {named[1]}: keep one")
    return readers[named[0]]()


def _keyring(entry: Table, name: str) -> Source | None:
    service = entry.text("keyring")
    if not service:
        entry.add("keyring", "is empty, name the service")
        return None
    return KeyringSource(service, entry.text("username", name) or name)


def _op(entry: Table) -> Source | None:
    path, account, ref = entry.text("path"), entry.text("account"), entry.text("op")
    segments = ref.removeprefix(_OP_SCHEME).split("/")
    if not ref.startswith(_OP_SCHEME) or len(segments) < _OP_MIN_SEGMENTS or "" in segments:
        entry.add("op", "expected a reference as in op://VAULT/ITEM/FIELD")
        return None
    if any(segment.startswith("-") for segment in segments) or account.startswith("-"):
        entry.add("op", "a part of it begins with '-', which op would read as an option")
        return None
    return OpSource(ref, path, account)


def _command(entry: Table) -> Source | None:
    argv = entry.texts("command")
    if argv and argv[0]:
        return CommandSource(argv)
    entry.add("command", 'expected an argv, as in ["vault", "read", "db"]')
    return None


def _file(entry: Table, home: str) -> Source | None:
    path = expand(entry.text("file"), home)
    if path is None:
        entry.add("file", "expected an absolute path, or one that begins with ~/")
        return None
    return FileSource(path)


def _with_options(entry: Table, name: str, source: Source | None) -> Binding | None:
    on_demand = entry.flag("on_demand")
    label = entry.text("label")
    if len(label) > _LABEL_MAX_CHARS:
        entry.add("label", f"is longer than {_LABEL_MAX_CHARS} characters")
    if not on_demand:
        for key in _ON_DEMAND_ONLY:
            if entry.has(key):
                entry.add(
                    key,
                    "means nothing for a value that the agent gets at launch, add on_demand = true",
                )
        return None if source is None else Binding(name, source, label=label)
    options = read_delivery(entry, name)
    redact = entry.choice("redact", Redact.ON)
    if source is None:
        return None
    return msgspec.structs.replace(
        options, source=source, on_demand=True, label=label, redact=redact
    )
