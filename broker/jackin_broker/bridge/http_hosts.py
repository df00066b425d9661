"""Whose name a request may call us by: the check against web pages that rebind DNS.

A page that a browser loaded from anywhere can make requests to an address of this machine, and
their `Host` is the page's own name. Pure.
"""

from __future__ import annotations

import ipaddress
from typing import Final

# What container engines call the machine that they run on, and what every machine calls itself.
_WELL_KNOWN: Final = frozenset({"localhost", "host.docker.internal", "host.containers.internal"})


def is_our_host(header: str, configured: str) -> bool:
    """Whether a Host header names us: an address, a well-known name, or the configured one."""
    name = header.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") <= 1:
        name = name.partition(":")[0]
    if name in _WELL_KNOWN or (name and name == configured.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
