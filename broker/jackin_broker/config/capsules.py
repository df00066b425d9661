"""`[capsules.NAME]`: who the agent is, what it may call, which directories it shares.

It refuses to know whether binaries and directories exist: `identity.py` and `workdir.py` look.
"""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Final, cast

from .delivering import wrong_variable
from .entries import read_entries
from .model import BinaryConfig, CapsuleConfig, CapsuleKind, HomeKind, Mount, UnmappedCwd
from .places import expand, expand_resolved, is_within
from .problems import did_you_mean
from .table import Table
from .usage import read_address_space, read_output_bytes, read_processes

# Names are directories in the runtime directory and words in prompts.
_CAPSULE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_BINARY_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_CONTAINER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:]+")
# The port of frames is the next one.
_PORT_MAX: Final = 65_534
# NAME_MAX of the usual file systems: each becomes a link.
_BINARY_NAME_MAX_CHARS: Final = 255
# The shim's own names: a link of that name would no longer be a command of the host.
_OWN_NAMES: Final = frozenset(
    {"jackin-exec", "jackin-exec-sh", "jackin-capsule", "jackin-broker", "jackin-picker"}
)
# The kernel's overflow uid stands for every uid that a namespace does not map.
OVERFLOW_UID: Final = 65_534
# (uid_t) -1 means "no change" to setuid.
_UID_MAX: Final = 2**32 - 2
_CONTAINER_KINDS: Final = (CapsuleKind.PODMAN, CapsuleKind.DOCKER)
COMPAT_CONSTRUCT: Final = "construct"
_COMPATS: Final = (COMPAT_CONSTRUCT,)


def read_capsules(table: Table, home: str) -> dict[str, CapsuleConfig]:
    """The capsules by name, in the file's order."""
    capsules: dict[str, CapsuleConfig] = {}
    for name, capsule in table.children():
        if wrong := wrong_capsule_name(name):
            table.add(name, wrong)
            continue
        capsules[name] = _capsule(capsule, name, home)
        capsule.finish()
    return capsules


def wrong_capsule_name(name: str) -> str:
    """What is wrong with a capsule's name, or empty."""
    if _CAPSULE_NAME.fullmatch(name):
        return ""
    return "expected lower-case letters, digits and '-', 41 characters at most"


def wrong_uid(uid: object) -> str:
    """What is wrong with a uid that is to be accepted from a capsule, or empty."""
    if isinstance(uid, bool) or not isinstance(uid, int):
        return "expected a uid, an integer"
    if not 0 <= uid <= _UID_MAX:
        return f"expected a uid from 0 to {_UID_MAX}"
    if uid == OVERFLOW_UID:
        return f"{OVERFLOW_UID} is the overflow uid, which stands for everybody unknown"
    return ""


def _capsule(table: Table, name: str, home: str) -> CapsuleConfig:
    if not table.has("kind"):
        table.add("kind", f"is missing, one of {', '.join(kind.value for kind in CapsuleKind)}")
    kind = table.choice("kind", CapsuleKind.BWRAP)
    binaries = table.texts("host_binaries", wrong_binary_name)
    for place, binary in enumerate(binaries):
        if binary in binaries[:place]:
            table.add(f"host_binaries[{place + 1}]", "is listed twice")
    compat = table.texts("compat", _wrong_compat)
    unmapped, fallback = _unmapped(table, compat, home)
    return CapsuleConfig(
        name=name,
        kind=kind,
        uids=_uids(table),
        host_binaries=binaries,
        mounts=_mounts(table, kind, home),
        binaries=_binaries(table.table("binaries"), binaries, home),
        unmapped_cwd=unmapped,
        fallback_cwd=fallback,
        bridge=_has_bridge(table, kind),
        bridge_bind=_bridge_bind(table, kind),
        bridge_host=_bridge_host(table),
        bridge_port=table.whole("bridge_port", 0, low=0, high=_PORT_MAX),
        compat=compat,
        container=_container(table, kind),
        image=_image(table, kind),
        run_as=_run_as(table, kind),
        env=read_entries(table.table("env"), home),
    )


def wrong_binary_name(name: str) -> str:
    """What is wrong with the name of a listed binary, or empty."""
    if "/" in name:
        return "is a path, list the bare name and put its directory on the broker's PATH"
    if not _BINARY_NAME.fullmatch(name) or len(name) > _BINARY_NAME_MAX_CHARS:
        return "is not a plain name: letters, digits and . _ + -, no . or - first"
    if name in _OWN_NAMES:
        return "is a program of jackin-exec itself"
    return ""


def _wrong_compat(word: str) -> str:
    if word in _COMPATS:
        return ""
    return f"expected one of {', '.join(_COMPATS)}{did_you_mean(word, _COMPATS)}"


def _uids(table: Table) -> tuple[int, ...]:
    if not table.has("uids"):
        return (os.geteuid(),)
    items = table.items("uids")
    if table.data["uids"] == []:
        table.add("uids", "is empty: nobody could ask, leave it out for your own uid")
    uids: list[int] = []
    for place, uid in enumerate(items, start=1):
        if wrong := wrong_uid(uid):
            table.add(f"uids[{place}]", wrong)
        else:
            uids.append(cast("int", uid))
    return tuple(uids)


def _mounts(table: Table, kind: CapsuleKind, home: str) -> tuple[Mount, ...]:
    mounts: list[Mount] = []
    for place, item in enumerate(table.tables("mounts"), start=1):
        mount = _mount(item, home)
        item.finish()
        if mount is None:
            continue
        if any(mount.capsule == other.capsule for other in mounts):
            table.add(f"mounts[{place}].capsule", "is mounted twice")
        mounts.append(mount)
    if mounts and kind is CapsuleKind.NONE:
        table.add("mounts", "kind 'none' has none: its paths are the host's own")
    return tuple(mounts)


def _mount(item: Table, home: str) -> Mount | None:
    capsule, host = item.text("capsule"), item.text("host")
    read_only = item.flag("read_only")
    inside = expand(capsule, "") if capsule.startswith("/") else None
    if inside is None or ".." in capsule.split("/"):
        item.add("capsule", "expected an absolute path in the capsule, without ..")
    outside = expand_resolved(host, home)
    if outside is None:
        item.add("host", "expected an absolute path of the host, or one that begins with ~/")
    if inside is None or outside is None:
        return None
    return Mount(inside, outside, read_only)


def _binaries(table: Table, listed: tuple[str, ...], home: str) -> dict[str, BinaryConfig]:
    binaries: dict[str, BinaryConfig] = {}
    for name, binary in table.children():
        if name not in listed:
            table.add(name, f"is not among host_binaries{did_you_mean(name, listed)}")
        binaries[name] = BinaryConfig(
            home=binary.choice("home", HomeKind.PRIVATE),
            home_paths=_home_paths(binary, home),
            confine=binary.flag("confine", True),
            network=binary.flag("network", True),
            env=_plain_env(binary.table("env")),
            output_bytes=read_output_bytes(binary),
            address_space_bytes=read_address_space(binary),
            processes=read_processes(binary),
        )
        if binaries[name].processes and not binaries[name].confine:
            binary.add(
                "processes", "means nothing with confine = false: all that you run would count"
            )
        binary.finish()
    return binaries


def _home_paths(table: Table, home: str) -> tuple[str, ...]:
    paths: list[str] = []
    for place, text in enumerate(table.texts("home_paths"), start=1):
        path = expand(text, home)
        if path is None or path == home or not is_within(path, home):
            table.add(f"home_paths[{place}]", "expected a path below your home, as in ~/.config/gh")
        else:
            paths.append(path)
    return tuple(paths)


def _plain_env(table: Table) -> dict[str, str]:
    """Fixed variables of a binary: plain texts, no credentials."""
    env: dict[str, str] = {}
    for name in table.data:
        value = table.text(name)
        if wrong := wrong_variable(name):
            table.add(name, wrong)
        else:
            env[name] = value
    return env


def _unmapped(table: Table, compat: tuple[str, ...], home: str) -> tuple[UnmappedCwd, str]:
    """What an unmapped directory gets. Source: the seed falls back to the daemon's own."""
    is_seed = COMPAT_CONSTRUCT in compat
    default = UnmappedCwd.FALLBACK if is_seed else UnmappedCwd.DENY
    unmapped = table.choice("unmapped_cwd", default)
    text = table.text("fallback_cwd")
    if not text:
        if unmapped is UnmappedCwd.FALLBACK and not is_seed:
            table.add("fallback_cwd", "is missing, unmapped_cwd = 'fallback' needs it")
        return unmapped, ""
    path = expand_resolved(text, home)
    if path is None:
        table.add("fallback_cwd", "expected an absolute path, or one that begins with ~/")
    if unmapped is UnmappedCwd.DENY:
        table.add("fallback_cwd", "means nothing without unmapped_cwd = 'fallback'")
    return unmapped, path or ""


def _has_bridge(table: Table, kind: CapsuleKind) -> bool:
    """Whether it has a bridge: a remote one has no other way, unless that is written."""
    return table.flag("bridge", kind is CapsuleKind.REMOTE)


def _bridge_bind(table: Table, kind: CapsuleKind) -> str:
    text = table.text("bridge_bind")
    if not text:
        return ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        table.add("bridge_bind", "expected an address of this machine, as in 192.168.64.1")
        return ""
    is_named_by_engine = kind in (CapsuleKind.DOCKER, CapsuleKind.PODMAN)
    if address.is_unspecified and not is_named_by_engine and not table.has("bridge_host"):
        table.add("bridge_host", f"is missing: nobody can connect to {text}, say what they call")
    return str(address)


def _bridge_host(table: Table) -> str:
    text = table.text("bridge_host")
    if text and not _HOST_NAME.fullmatch(text):
        table.add("bridge_host", "expected a host's name or address, without a port")
        return ""
    return text


def _image(table: Table, kind: CapsuleKind) -> str:
    image = table.text("image")
    if image and kind not in _CONTAINER_KINDS:
        table.add("image", "belongs to the kinds podman and docker")
    elif image.startswith("-"):
        table.add("image", "is not the name of an image")
    return image


def _run_as(table: Table, kind: CapsuleKind) -> int:
    """A uid that commands inside a container get, so that the agent cannot read them."""
    uid = table.whole("run_as", 0, low=0, high=_UID_MAX)
    if uid and kind not in _CONTAINER_KINDS:
        table.add("run_as", "belongs to the kinds podman and docker; bwrap keeps them apart anyway")
    elif uid and (uid in table.items("uids") or uid == OVERFLOW_UID):
        table.add("run_as", "is a uid of the agent's, which could read the commands then")
    return uid


def _container(table: Table, kind: CapsuleKind) -> str:
    name = table.text("container")
    if not name:
        return ""
    if kind not in _CONTAINER_KINDS:
        table.add("container", "belongs to the kinds podman and docker")
    elif not _CONTAINER_NAME.fullmatch(name):
        table.add("container", "is not the name of a container")
    return name
