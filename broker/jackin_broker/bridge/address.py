"""Where a capsule's bridge listens, and what the capsule calls that place.

It refuses to know sockets that are open. Loopback unless a container engine's own network has an
address here; every address of the machine only where that is written.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from typing import Final, NamedTuple

from ..config import CapsuleConfig, CapsuleKind

LOOPBACK: Final = "127.0.0.1"
# The bridges that the engines make for their containers, and what they call this machine inside.
_ENGINES: Final = {
    CapsuleKind.DOCKER: (("docker0",), "host.docker.internal"),
    CapsuleKind.PODMAN: (("podman0", "cni-podman0"), "host.containers.internal"),
}
# Source: netdevice(7); Python has no name for it.
_SIOCGIFADDR: Final = 0x8915
_IFNAMSIZ: Final = 16


class BridgeAddress(NamedTuple):
    """`bind` is an address of this machine, `host` what the capsule calls it."""

    bind: str
    host: str

    def at(self, port: int) -> str:
        """`host:port`, an IPv6 address in brackets."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def address_of(config: CapsuleConfig) -> BridgeAddress:
    """Where this capsule's bridge is."""
    interfaces, inside = _ENGINES.get(config.kind, ((), ""))
    bind = config.bridge_bind
    if not bind:
        found = [address for name in interfaces if (address := _address_of_interface(name))]
        bind = found[0] if found else LOOPBACK
    if config.bridge_host:
        return BridgeAddress(bind, config.bridge_host)
    parsed = ipaddress.ip_address(bind)
    is_named = parsed.is_loopback or parsed.is_unspecified
    return BridgeAddress(bind, inside if is_named and inside else bind)


def _address_of_interface(name: str) -> str:
    """The IPv4 address of a network interface, empty where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        asked = struct.pack(f"{_IFNAMSIZ}s24x", name.encode())
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, asked)
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])
