"""What is wrong here, and what to do about it: one check a function.

Nothing is changed and no value is read. It works without a broker; what only a running one knows
is asked of it. Invariant: a check that breaks is itself a finding, never a crash.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from . import audit, config, identity
from . import operator_protocol as op
from . import paths as places
from .doctor_bridge import check_bridges, check_links, check_shims, check_terminals
from .errors import JackinError
from .findings import Finding as Finding
from .findings import Level as Level
from .operator_client import ask_broker
from .runner import confine
from .sources.permissions import permission_warnings
from .trust import check_trusted

# Optional programs and what they are for: without one a part is missing, nothing is wrong.
_PROGRAMS: Final = {
    "tmux": "a picker that pops up over what is on the screen",
    "age": "opening the vault without this program",
    "ssh-agent": 'lending keys by deliver = "ssh-agent"',
}


def examine(environ: Mapping[str, str]) -> list[Finding]:
    """Every finding, in the order in which things depend on each other."""
    findings: list[Finding] = []
    for check in _CHECKS:
        try:
            findings.extend(check(environ))
        except (JackinError, OSError) as error:
            hint = error.hint if isinstance(error, JackinError) else ""
            name = check.__name__.removeprefix("_").removeprefix("check_").replace("_", " ")
            findings.append(Finding(name, Level.WRONG, str(error), hint))
    return findings


def _places(environ: Mapping[str, str]) -> Iterator[Finding]:
    here = places.resolve(environ)
    for name, path in (("state", here.state_dir), ("sockets", here.private_dir)):
        if not path.exists():
            yield Finding(name, Level.NOTE, f"{path} is not there yet", "it is made at first start")
            continue
        check_trusted(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077 and path == here.state_dir:
            yield Finding(name, Level.WRONG, f"{path} has mode {mode:04o}", f"chmod 0700 {path}")
        else:
            yield Finding(name, Level.OK, str(path))


def _configuration(environ: Mapping[str, str]) -> Iterator[Finding]:
    path = places.resolve(environ).config_file
    loaded = config.load(path)
    if loaded.is_missing:
        yield Finding(
            "configuration",
            Level.NOTE,
            f"{path} is not there",
            "make one with: jackin-broker config init",
        )
        return
    yield Finding("configuration", Level.OK, str(path))
    for warning in config.warnings(loaded):
        yield Finding("configuration", Level.NOTE, warning)
    for warning in permission_warnings(loaded.all_bindings(), environ):
        yield Finding("configuration", Level.NOTE, warning)
    for capsule in loaded.capsules.values():
        yield from _capsule(capsule, environ)


def _capsule(capsule: config.CapsuleConfig, environ: Mapping[str, str]) -> Iterator[Finding]:
    check = f"capsule {capsule.name}"
    if capsule.kind is config.CapsuleKind.NONE:
        yield Finding(
            check,
            Level.NOTE,
            "has no boundary (kind none): the agent can approve itself",
            'for anything but trying things use kind = "bwrap"',
        )
    for name in capsule.host_binaries:
        try:
            pinned = identity.find_binary(name, environ.get("PATH", os.defpath))
        except JackinError as error:
            yield Finding(check, Level.WRONG, str(error), error.hint)
        else:
            yield Finding(check, Level.OK, f"{name} is {pinned.path}")


def _confinement(environ: Mapping[str, str]) -> Iterator[Finding]:
    if confine.is_available():
        yield Finding("confinement", Level.OK, confine.describe_machine())
    else:
        yield Finding(
            "confinement",
            Level.WRONG,
            "bubblewrap does not work here, so only binaries with confine = false run",
            "install the package bubblewrap, or allow unprivileged user namespaces",
        )


def _programs(environ: Mapping[str, str]) -> Iterator[Finding]:
    for program, purpose in _PROGRAMS.items():
        found = shutil.which(program, path=environ.get("PATH", os.defpath))
        if found:
            yield Finding(program, Level.OK, found)
        else:
            yield Finding(
                program, Level.NOTE, f"not installed: it is for {purpose}", f"install {program}"
            )


def _record(environ: Mapping[str, str]) -> Iterator[Finding]:
    path = places.resolve(environ).audit_file
    if not path.exists():
        yield Finding("record", Level.NOTE, f"{path} is not there yet")
        return
    try:
        count = audit.verify(path)
    except audit.Damage as damage:
        yield Finding(
            "record", Level.WRONG, f"damaged at {damage}", "see: jackin-broker audit verify"
        )
    else:
        yield Finding("record", Level.OK, f"{count} lines, unbroken, in {path}")


def _broker(environ: Mapping[str, str]) -> Iterator[Finding]:
    here = places.resolve(environ)
    reply = ask_broker(here.operator_socket, op.GetStatus(0, check_keyring=True))
    assert isinstance(reply, op.StatusReport)
    yield Finding("broker", Level.OK, f"runs, pid {reply.pid}, version {reply.version}")
    if reply.operators:
        yield Finding("operator", Level.OK, f"{reply.operators} attached")
    elif reply.can_pop_up:
        yield Finding("operator", Level.OK, "requests pop up in tmux")
    else:
        yield Finding(
            "operator",
            Level.NOTE,
            "nobody is attached: requests that must be asked are denied",
            "attach with: jackin-broker attach",
        )
    yield _keyring(reply)
    for capsule in reply.capsules:
        if not capsule.socket:  # only a bridge leads into a remote one
            continue
        path = Path(capsule.socket)
        if path.is_socket():
            yield Finding(f"capsule {capsule.name}", Level.OK, f"{capsule.kind}, {path}")
        else:
            yield Finding(
                f"capsule {capsule.name}",
                Level.WRONG,
                f"its socket {path} is gone",
                "restart the broker: jackin-broker stop, then jackin-broker",
            )


def _keyring(reply: op.StatusReport) -> Finding:
    if reply.keyring_hint:
        return Finding("keyring", Level.WRONG, reply.keyring, reply.keyring_hint)
    if reply.vault == "locked" and "vault" in reply.keyring:
        return Finding(
            "keyring",
            Level.NOTE,
            f"{reply.keyring}, locked",
            "unlock it with: jackin-broker vault unlock",
        )
    if reply.vault == "none" and "vault" in reply.keyring:
        return Finding(
            "keyring",
            Level.NOTE,
            f"{reply.keyring}, and there is none yet",
            "make it with: jackin-broker vault create",
        )
    return Finding("keyring", Level.OK, reply.keyring)


def _log(environ: Mapping[str, str]) -> Iterator[Finding]:
    path = places.resolve(environ).log_file
    if path.exists():
        yield Finding("log", Level.OK, str(path))


_CHECKS: Final[tuple[Callable[[Mapping[str, str]], Iterator[Finding]], ...]] = (
    _places,
    _configuration,
    _confinement,
    _programs,
    _record,
    _log,
    check_shims,
    check_links,
    _broker,
    check_bridges,
    check_terminals,
)
