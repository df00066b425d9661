"""How a command gets the value of an `[env]` entry: `deliver` and the keys that go with it.

It refuses to know sources and other entries, but for the one check that needs them all: that a
passphrase's binding exists. No problem repeats a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..bindings import Binding, Delivery, ValueSource
from .problems import Problems
from .table import Table

DELIVERY_KEYS: Final = ("deliver", "deliver_as", "prompt", "passphrase", "destinations")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Values of these names are keys in a file's form, which programs want as a path: the seed's
# SSH_KEY. An API_KEY is not one of them.
_KEY_NAMES: Final = re.compile(r"(?:.*_)?(?:SSH_KEY|DEPLOY_KEY|PRIVATE_KEY|PEM)")
# Variables that load code or that the broker itself sets for every command (DESIGN §9).
_RESERVED: Final = frozenset(
    {"BASH_ENV", "ENV", "HOME", "IFS", "LESSSECURE", "PAGER", "PATH", "SHELLOPTS"}
)
_RESERVED_PREFIXES: Final = ("DYLD_", "JACKIN_", "LD_")
# A question fits on a line of a terminal; a pattern that is longer describes something else.
_PROMPT_MAX_CHARS: Final = 200
# What `ssh-add -h` takes: [user@]host, or HOST>[user@]host for a key that goes on from there.
_DESTINATION: Final = re.compile(r"[A-Za-z0-9\[][^\s,]*")


def read_delivery(entry: Table, name: str) -> Binding:
    """The delivery of an on-demand entry, as a binding whose source is still to be filled in."""
    delivery = entry.choice("deliver", default_delivery(name))
    return Binding(
        name,
        ValueSource(""),
        delivery=delivery,
        deliver_as=_deliver_as(entry, delivery),
        prompt=_prompt(entry, delivery),
        passphrase=_passphrase(entry, name, delivery),
        destinations=_destinations(entry, delivery),
    )


def check_passphrases(
    path: str, entries: Mapping[str, Binding], known: Mapping[str, Binding], problems: Problems
) -> None:
    """Add a problem for each key whose passphrase no usable entry of `known` holds."""
    for name, binding in entries.items():
        if not binding.passphrase:
            continue
        found = known.get(binding.passphrase)
        where = f"{path}.{name}.passphrase"
        if found is None or not found.on_demand:
            problems.add(
                where, "is no on-demand entry's name, write the name of the one that holds it"
            )
        elif found.delivery is Delivery.SSH_AGENT:
            problems.add(where, "names a key, write the name of the entry that opens it")


def wrong_variable(name: str) -> str:
    """What is wrong with the name of a variable, or empty."""
    if not _VARIABLE_NAME.fullmatch(name):
        return "is not the name of a variable: letters, digits and _, no digit first"
    if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        return "is a variable that the broker sets or that loads code, choose another name"
    return ""


def default_delivery(name: str) -> Delivery:
    """How a value of this name is delivered when nothing is written."""
    return Delivery.FILE if _KEY_NAMES.fullmatch(name) else Delivery.ENV


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
    if wrong := _wrong_pattern(pattern):
        entry.add("prompt", wrong)
    return pattern


def _wrong_pattern(pattern: str) -> str:
    """What is wrong with a question's pattern, or empty."""
    if len(pattern) > _PROMPT_MAX_CHARS:
        return f"is longer than {_PROMPT_MAX_CHARS} characters"
    try:
        compiled = re.compile(pattern.encode())
    except re.error as error:
        return f"is not a regular expression: {error.msg}"
    if compiled.search(b""):
        return "matches nothing at all, so it would answer any question"
    return ""


def _passphrase(entry: Table, name: str, delivery: Delivery) -> str:
    other = entry.text("passphrase")
    if other and delivery is not Delivery.SSH_AGENT:
        entry.add("passphrase", 'belongs to deliver = "ssh-agent" alone')
    elif other == name:
        entry.add("passphrase", "names the key itself, name the entry that opens it")
    else:
        return other
    return ""


def _destinations(entry: Table, delivery: Delivery) -> tuple[str, ...]:
    places = entry.texts("destinations", _wrong_destination)
    if places and delivery is not Delivery.SSH_AGENT:
        entry.add("destinations", 'belongs to deliver = "ssh-agent" alone')
    return places


def _wrong_destination(text: str) -> str:
    return "" if _DESTINATION.fullmatch(text) else "expected a host as in git@example.com"
