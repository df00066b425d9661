"""`[env]` entries: the seed's shapes and ours, as bindings (DESIGN §8).

It refuses to know files and keyrings: an entry says where a value comes from, nobody looks
there. No problem repeats a value. Deliveries and sources that this version does not have yet
are valid here; `dangers.py` warns of them and a request is refused with their name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..bindings import (
    Binding,
    CommandSource,
    Delivery,
    EnvSource,
    FileSource,
    KeyringSource,
    OpSource,
    Redact,
    Source,
    ValueSource,
)
from .places import expand
from .table import Table, kind_of

_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE: Final = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
# Values of these names are keys in a file's form, which programs want as a path: the seed's
# SSH_KEY. An API_KEY is not one of them.
_KEY_NAMES: Final = re.compile(r"(?:.*_)?(?:SSH_KEY|DEPLOY_KEY|PRIVATE_KEY|PEM)")
# Variables that load code or that the broker itself sets for every command (DESIGN §9).
_RESERVED: Final = frozenset(
    {"BASH_ENV", "ENV", "HOME", "IFS", "LESSSECURE", "PAGER", "PATH", "SHELLOPTS"}
)
_RESERVED_PREFIXES: Final = ("DYLD_", "JACKIN_", "LD_")
_OP_SCHEME: Final = "op://"
# op://VAULT/ITEM/FIELD
_OP_MIN_SEGMENTS: Final = 3
# A label is one line beside a check box.
_LABEL_MAX_CHARS: Final = 100
_SOURCES: Final = ("keyring", "op", "value", "command", "file")
_ON_DEMAND_ONLY: Final = ("deliver", "deliver_as", "redact", "prompt")


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


def wrong_variable(name: str) -> str:
    """What is wrong with the name of a variable, or empty."""
    if not _VARIABLE_NAME.fullmatch(name):
        return "is not the name of a variable: letters, digits and _, no digit first"
    if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        return "is a variable that the broker sets or that loads code, choose another name"
    return ""


def text_source(text: str) -> Source:
    """A text as the seed reads it: wholly `$NAME` or `${NAME}` is the broker's variable."""
    found = _REFERENCE.fullmatch(text)
    return EnvSource(found[1] or found[2]) if found else ValueSource(text)


def default_delivery(name: str) -> Delivery:
    """How a value of this name is delivered when nothing is written."""
    return Delivery.FILE if _KEY_NAMES.fullmatch(name) else Delivery.ENV


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
    delivery = entry.choice("deliver", default_delivery(name))
    deliver_as, prompt = _deliver_as(entry, delivery), _prompt(entry, delivery)
    redact = entry.choice("redact", Redact.ON)
    if source is None:
        return None
    return Binding(name, source, True, delivery, deliver_as, label, redact, prompt)


def _deliver_as(entry: Table, delivery: Delivery) -> str:
    variable = entry.text("deliver_as")
    if not variable:
        return ""
    if delivery not in (Delivery.ENV, Delivery.FILE):
        entry.add("deliver_as", f"means nothing with deliver = {delivery.value!r}")
    elif wrong := wrong_variable(variable):
        entry.add("deliver_as", wrong)
    return variable


def _prompt(entry: Table, delivery: Delivery) -> str:
    pattern = entry.text("prompt")
    if delivery is not Delivery.PROMPT:
        if pattern:
            entry.add("prompt", 'belongs to deliver = "prompt" alone')
        return ""
    if not pattern:
        entry.add("prompt", "expected the pattern of the question that is answered")
        return ""
    try:
        re.compile(pattern)
    except re.error as error:
        entry.add("prompt", f"is not a regular expression: {error.msg}")
    return pattern
