"""What a mount must not hold: the broker's own places, doorways to the operator, binaries.

A capsule that could write the configuration would approve itself; one that could reach tmux,
the session bus, an agent's or Docker's socket would act as the operator. It refuses to know
requests: this is asked once, when a capsule is configured or opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from ..errors import ConfigError
from .model import Mount
from .places import overlap

_DOCKER_SOCKETS: Final = ("/run/docker.sock", "/var/run/docker.sock")
_SYSTEM_BUS: Final = "/run/dbus"
_UNIX_SCHEME: Final = "unix://"


class ListedBinary(Protocol):
    """What is read of a pinned binary: its name, and where its files are."""

    @property
    def name(self) -> str: ...
    @property
    def directories(self) -> tuple[str, ...]: ...


def check_mounts(mounts: Sequence[Mount], trust_roots: Iterable[Path]) -> None:
    """Return when no mount holds, or is within, a place that no agent may reach.

    Raises: ConfigError that names the mount and the place.
    """
    places = [str(root) for root in trust_roots] + list(session_places(os.environ))
    for mount in mounts:
        host = os.path.realpath(mount.host)
        for place in places:
            if overlap(host, os.path.realpath(place)):
                raise ConfigError(
                    f"mount {mount.capsule}: {mount.host} and {place} overlap, "
                    "the agent would reach what decides for you",
                    hint="mount the project's own directory, not what is above it",
                )


def check_binaries(mounts: Sequence[Mount], binaries: Iterable[ListedBinary]) -> None:
    """Return when the agent cannot write where a listed binary, or its interpreter, lives.

    Raises: ConfigError that names the mount and the binary.
    """
    for binary in binaries:
        for mount in mounts:
            if mount.read_only:
                continue
            host = os.path.realpath(mount.host)
            if any(overlap(host, os.path.realpath(place)) for place in binary.directories):
                raise ConfigError(
                    f"mount {mount.capsule}: the agent could replace {binary.name!r} there",
                    hint=f"install {binary.name} elsewhere, or mount it read_only = true",
                )


def session_places(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Sockets through which a program acts as the operator, as this environment names them."""
    uid = os.geteuid()
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    tmux_base = environ.get("TMUX_TMPDIR", "/tmp")  # noqa: S108 - tmux's own default
    docker = environ.get("DOCKER_HOST", "")
    places = [
        os.path.join(tmux_base, f"tmux-{uid}"),
        environ.get("TMUX", "").split(",")[0],
        environ.get("SSH_AUTH_SOCK", ""),
        os.path.join(runtime, "bus") if runtime else "",
        f"/run/user/{uid}/bus",
        _SYSTEM_BUS,
        *_bus_paths(environ.get("DBUS_SESSION_BUS_ADDRESS", "")),
        docker.removeprefix(_UNIX_SCHEME) if docker.startswith(_UNIX_SCHEME) else "",
        *_DOCKER_SOCKETS,
    ]
    return tuple(dict.fromkeys(place for place in places if place.startswith("/")))


def _bus_paths(addresses: str) -> list[str]:
    """The paths in a D-Bus address list, as in `unix:path=/run/user/1000/bus,guid=…`."""
    paths: list[str] = []
    for address in addresses.split(";"):
        for part in address.removeprefix("unix:").split(","):
            key, _, value = part.partition("=")
            if key == "path":
                paths.append(value)
    return paths
