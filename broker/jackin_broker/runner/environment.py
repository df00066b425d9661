"""The environment of a host command: an allow-list, made from nothing.

It refuses to know processes and credentials' sources; every environment is passed in.
Invariants: nothing of the broker's own environment passes but a few names whose values are
checked; from the capsule only TERM, LANG and NO_COLOR, and none of these can name a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

# Fixed: the operator's own PATH may name directories that an agent can write.
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# From the operator, who chose their language and zone.
_FROM_OPERATOR: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "NO_COLOR")
# From the capsule (DESIGN §9), instead of the operator's.
_FROM_CAPSULE: Final = ("TERM", "LANG", "NO_COLOR")

# A name of terminfo: with a slash it would be the path of a description that the agent wrote.
_TERM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,63}")
# The same for a locale: glibc takes one with a slash for a path.
_LOCALE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@=-]{0,63}")
# `:` and leading slashes would read any file; the database's names have one slash in the middle.
_ZONE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_-]*(/[A-Za-z0-9][A-Za-z0-9+_-]*){0,2}")
_FLAG: Final = re.compile(r"[ -~]{0,16}")
_CHECKS: Final[dict[str, re.Pattern[str]]] = {
    "TERM": _TERM,
    "LANG": _LOCALE,
    "LC_ALL": _LOCALE,
    "LC_CTYPE": _LOCALE,
    "TZ": _ZONE,
    "NO_COLOR": _FLAG,
}

# Pagers start shells (`!cmd`); LESSSECURE keeps less from it where one is used all the same.
_FIXED: Final = {
    "PATH": SEARCH_PATH,
    "SHELL": "/bin/sh",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "LESSSECURE": "1",
}
# What a program does with an unknown terminal; most take it for "no colours, no cursor".
_DEFAULT_TERM: Final = "dumb"


def caller_environment(caller: Mapping[str, str]) -> dict[bytes, bytes]:
    """What a capsule sent of its own environment, as far as it is sound."""
    return {
        name.encode("ascii"): value.encode("utf-8", "surrogateescape")
        for name, value in caller.items()
        if name in _FROM_CAPSULE and _CHECKS[name].fullmatch(value)
    }


def child_environment(
    *,
    operator: Mapping[str, str],
    caller: Mapping[str, str],
    binary: Mapping[str, str],
    home: str,
    user: str,
    consumed: Collection[str] = (),
) -> dict[bytes, bytes]:
    """The environment of one command, without its credentials.

    `operator` is the broker's own, `caller` what the capsule sent, `binary` what the
    configuration sets for this binary, which wins. `consumed` are the variables that sources
    read; they stay with the broker.
    """
    found = {"TERM": _DEFAULT_TERM, **_FIXED, "HOME": home, "USER": user, "LOGNAME": user}
    for names, environ in ((_FROM_OPERATOR, operator), (_FROM_CAPSULE, caller)):
        for name in names:
            value = environ.get(name)
            if value is not None and _CHECKS[name].fullmatch(value):
                found[name] = value
    for name in consumed:
        if name not in _FIXED:
            found.pop(name, None)
    found.update(binary)
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for name, value in found.items()
    }
