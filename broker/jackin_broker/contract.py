"""What a capsule is given, in words and names: the contract that `explain` prints.

Made from the configuration, the record and this machine, without a broker; it changes nothing and
resolves nothing. It refuses to know the command line. Invariant: no value is in it, not even of
what the agent is given at launch. `version` counts changes that a reader of the JSON would notice.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from . import audit, identity
from .bindings import Binding, Delivery, describe_source
from .config import CapsuleConfig, CapsuleKind, Config, Mount, rule_warnings
from .config.exposure import session_places
from .config.places import overlap
from .contract_words import EFFECTS, RISKS, SPEAKERS, TARGET_HOST, inside_words
from .display import show
from .errors import ConfigError
from .paths import CAPSULE_BIN_DIR, CAPSULE_RUN_DIR, Paths
from .patterns import compile_name
from .policy import describe

VERSION: Final = 1
RECENT_CALLS: Final = 10
_PROGRAMS: Final = f"{CAPSULE_RUN_DIR} and {CAPSULE_BIN_DIR}, read-only"
_NO_MOUNT: Final = "no mount: the host's own paths"


class MountLine(msgspec.Struct, frozen=True):
    """A directory of the host in the capsule. `why_refused`: launch would not take it."""

    capsule: str
    host: str
    read_only: bool
    why_refused: str = ""


class BindingLine(msgspec.Struct, frozen=True):
    """A credential that may be lent. `variable` is what the command finds it under."""

    name: str
    source: str
    delivery: str
    variable: str
    label: str
    is_redacted: bool


class BinaryLine(msgspec.Struct, frozen=True):
    """A program of the host that the agent may ask for. `path` is empty where it is missing."""

    name: str
    path: str
    is_confined: bool
    home: str
    home_paths: tuple[str, ...]
    has_network: bool


class RuleLine(msgspec.Struct, frozen=True):
    """A rule that is about this capsule."""

    number: int
    action: str
    text: str
    target: str
    bindings: tuple[str, ...]
    warnings: tuple[str, ...]


class Call(msgspec.Struct, frozen=True):
    """A command of the capsule's from the record: what it was lent, and who said so."""

    at: str
    command: str
    by: str
    outcome: str
    bindings: tuple[str, ...]


class Contract(msgspec.Struct, frozen=True):
    """Everything. `given` are the names of variables whose values the agent gets at launch."""

    version: int
    capsule: str
    kind: str
    image: str
    uids: tuple[int, ...]
    has_network: bool
    mounts: tuple[MountLine, ...]
    programs: str
    hidden_paths: tuple[str, ...]
    given: tuple[str, ...]
    names: dict[str, str]
    bindings: tuple[BindingLine, ...]
    binaries: tuple[BinaryLine, ...]
    targets: dict[str, str]
    rules: tuple[RuleLine, ...]
    doorways: dict[str, str]
    speakers: str
    recent_calls: tuple[Call, ...]
    effects: tuple[str, ...]
    risks: tuple[str, ...]


def contract_of(
    config: Config,
    capsule: CapsuleConfig,
    paths: Paths,
    environ: Mapping[str, str],
    *,
    mounts: Sequence[Mount] = (),
    image: str = "",
    has_network: bool = True,
    now: datetime,
) -> Contract:
    """The contract of a capsule; `mounts`, `image` and network are a launch's own.

    Raises: ConfigError for a record that cannot be read.
    """
    kind, name = capsule.kind, capsule.name
    places = (*(str(root) for root in paths.trust_roots), *session_places(environ))
    return Contract(
        version=VERSION,
        capsule=name,
        kind=kind.value,
        image=image or capsule.image,
        uids=capsule.uids,
        has_network=has_network,
        mounts=tuple(_mount_line(one, places) for one in (*capsule.mounts, *mounts)),
        programs=_NO_MOUNT if kind is CapsuleKind.NONE else _PROGRAMS,
        hidden_paths=() if kind is CapsuleKind.NONE else places,
        given=tuple(sorted(config.launch_env_of(name))),
        names=_names(config, capsule),
        bindings=tuple(_binding_line(one) for one in config.bindings_of(name).values()),
        binaries=tuple(_binary_lines(capsule, environ)),
        targets={"host": TARGET_HOST, "capsule": _inside(capsule)},
        rules=tuple(_rule_lines(config, name, now)),
        doorways=_doorways(capsule, paths),
        speakers=SPEAKERS[kind],
        recent_calls=recent_calls(paths, name),
        effects=EFFECTS,
        risks=tuple(_risks(capsule, has_network=has_network)),
    )


def recent_calls(paths: Paths, capsule: str) -> tuple[Call, ...]:
    """The last commands of this capsule that were answered, oldest first.

    Raises: ConfigError.
    """
    if not paths.audit_file.exists():
        return ()
    found: deque[Call] = deque(maxlen=RECENT_CALLS)
    for line in audit.read(paths.audit_file):
        fields = line.fields
        if fields.get("capsule") != capsule or fields.get("event") not in ("decided", "refused"):
            continue
        found.append(_call(fields))
    return tuple(found)


def _call(fields: Mapping[str, Any]) -> Call:
    argv = fields.get("argv") or ()
    return Call(
        at=str(fields.get("at", "")),
        command=" ".join(show(str(word)).line for word in argv),
        by=str(fields.get("by", "")),
        outcome=str(fields.get("outcome") or fields.get("code", "")),
        bindings=tuple(str(name) for name in fields.get("bindings") or ()),
    )


def _mount_line(mount: Mount, places: Sequence[str]) -> MountLine:
    host = os.path.realpath(mount.host)
    why = next((f"overlaps {one}" for one in places if overlap(host, os.path.realpath(one))), "")
    if not os.path.exists(host):
        why = why or "does not exist"
    return MountLine(mount.capsule, mount.host, mount.read_only, why)


def _binding_line(binding: Binding) -> BindingLine:
    variable = binding.deliver_as or binding.name
    if binding.delivery is Delivery.FILE and not binding.deliver_as:
        variable = f"{binding.name}_FILE"
    return BindingLine(
        binding.name,
        describe_source(binding.source),
        binding.delivery.value,
        variable,
        binding.label,
        binding.redact.value == "on",
    )


def _names(config: Config, capsule: CapsuleConfig) -> dict[str, str]:
    """The variables that name what may be asked for."""
    return {
        "JACKIN_EXEC_BINDINGS": ",".join(sorted(config.bindings_of(capsule.name))),
        "JACKIN_HOST_BINARIES": ",".join(capsule.host_binaries),
    }


def _binary_lines(capsule: CapsuleConfig, environ: Mapping[str, str]) -> Iterator[BinaryLine]:
    for name in capsule.host_binaries:
        config = capsule.binary(name)
        try:
            path = identity.find_binary(name, environ.get("PATH", os.defpath)).path
        except ConfigError:
            path = ""
        yield BinaryLine(
            name, path, config.confine, config.home.value, config.home_paths, config.network
        )


def _rule_lines(config: Config, name: str, now: datetime) -> Iterator[RuleLine]:
    warnings = rule_warnings(config, now)
    for rule in config.rules:
        if not compile_name(rule.capsule).matches(name.encode(), with_options=True):
            continue
        yield RuleLine(
            rule.number,
            rule.action.value,
            describe(rule),
            rule.target.value if rule.target is not None else "",
            rule.bindings,
            tuple(warnings.get(rule.number, ())),
        )


def _doorways(capsule: CapsuleConfig, paths: Paths) -> dict[str, str]:
    found: dict[str, str] = {}
    if capsule.kind is not CapsuleKind.REMOTE:
        found["socket"] = str(paths.capsule_socket(capsule.name))
    if capsule.bridge:
        found["bridge"] = "HTTP, and frames over TCP, with a token of this session"
    return found


def _inside(capsule: CapsuleConfig) -> str:
    is_adopted = bool(capsule.container)
    return inside_words(
        capsule.kind, run_as=capsule.run_as, uid=os.geteuid(), is_adopted=is_adopted
    )


def _risks(capsule: CapsuleConfig, *, has_network: bool) -> Iterator[str]:
    yield from RISKS[capsule.kind]
    if has_network and capsule.kind is CapsuleKind.BWRAP:
        yield "it has the host's network: it reaches loopback and abstract sockets"
    if capsule.bridge:
        yield "everything in the capsule can read the bridge's token; its TCP is not encrypted"
    for name in capsule.host_binaries:
        config = capsule.binary(name)
        if not config.confine:
            yield f"{name} runs unconfined, with your own logins and files"
        elif config.home.value == "operator":
            yield f"{name} has your own logins"
