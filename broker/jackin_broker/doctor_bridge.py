"""`doctor` on what an agent calls host binaries with: the shim, the links, the bridge.

The two checks of the seed's own doctor are here: binaries are listed but there is no shim in the
capsule, and links were made for names that are no longer listed. It changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from . import config
from . import operator_protocol as op
from . import paths as places
from .errors import ConfigError, JackinError
from .findings import Finding, Level
from .link_folder import Manifest, all_manifests
from .links import SHIM_NAME
from .operator_client import ask_broker
from .paths import CAPSULE_BIN_DIR

_SYNC: Final = "jackin-broker links sync"
_TERMINAL: Final = (
    "a command has one where its caller has, or with `jackin-exec -t`; without one most print no "
    "colours and no progress bars. Plain HTTP has none: there use --no-interactive or --json"
)


def check_shims(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Binaries are listed: is there what an agent calls them with?"""
    loaded = _loaded(environ)
    here = places.resolve(environ, loaded.broker.runtime_dir)
    inits = {one.name: one.init_pid for one in _status(here)}
    for capsule in loaded.capsules.values():
        if capsule.host_binaries and capsule.kind is not config.CapsuleKind.REMOTE:
            yield from _shim(capsule, here.shim_dir(capsule.name), inits.get(capsule.name, 0))


def check_links(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Links in directories of the operator's: are they still configured, and still there?"""
    here = places.resolve(environ)
    loaded = _loaded(environ)
    listed = {name for one in loaded.capsules.values() for name in one.host_binaries}
    for manifest in all_manifests(here.links_dir):
        yield _links(manifest, listed)


def check_bridges(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Bridges that are configured: are they open?"""
    here = places.resolve(environ)
    loaded = _loaded(environ)
    wanted = [one for one in loaded.capsules.values() if one.bridge]
    served = {one.name: one for one in _status(here)} if wanted else {}
    for capsule in wanted:
        if served or not capsule.host_binaries:
            yield _bridge(capsule, served.get(capsule.name))


def _loaded(environ: Mapping[str, str]) -> config.Config:
    """The configuration; an empty one where it is wrong, which is another check's finding."""
    try:
        return config.load(places.resolve(environ).config_file)
    except ConfigError:
        return config.Config()


def _status(here: places.Paths) -> tuple[op.CapsuleStatus, ...]:
    """What the broker serves; nothing where none answers, which is another check's finding."""
    try:
        reply = ask_broker(here.operator_socket, op.GetStatus(0))
    except JackinError:
        return ()
    assert isinstance(reply, op.StatusReport)
    return reply.capsules


def _shim(capsule: config.CapsuleConfig, programs: Path, init: int) -> Iterator[Finding]:
    check = f"capsule {capsule.name}"
    inside = Path(f"/proc/{init}/root{CAPSULE_BIN_DIR}") if init else None
    try:
        is_running_without = inside is not None and not os.path.lexists(inside / SHIM_NAME)
        os.stat(f"/proc/{init}/root") if init else None
    except OSError:  # a capsule of another uid: nobody but root may look
        is_running_without = False
    if is_running_without:
        yield Finding(
            check,
            Level.WRONG,
            "lists host binaries, but the running capsule has no shim: they end with 127",
            f"mount {programs} at {CAPSULE_BIN_DIR}, or start it with: jackin-broker launch",
        )
        return
    if not os.path.lexists(programs / SHIM_NAME):
        yield Finding(
            check,
            Level.NOTE,
            "lists host binaries, but has no shim yet: until then they end with 127",
            f"launch it, or make {programs} with: {_SYNC}",
        )
        return
    missing = [one for one in capsule.host_binaries if not os.path.lexists(programs / one)]
    if missing:
        names = ", ".join(missing)
        yield Finding(check, Level.WRONG, f"has no link for {names}: they end with 127", _SYNC)


def _links(manifest: Manifest, listed: set[str]) -> Finding:
    again = f"{_SYNC} {manifest.folder}"
    stale = sorted(set(manifest.links) - listed)
    if stale:
        words = f"{manifest.folder} has links that are no longer listed: {', '.join(stale)}"
        return Finding("links", Level.NOTE, words, again)
    gone = [name for name in manifest.links if not os.path.lexists(f"{manifest.folder}/{name}")]
    if gone:
        words = f"{manifest.folder} has lost its links for {', '.join(sorted(gone))}"
        return Finding("links", Level.NOTE, words, again)
    return Finding("links", Level.OK, f"{len(manifest.links)} in {manifest.folder}")


def _bridge(capsule: config.CapsuleConfig, served: op.CapsuleStatus | None) -> Finding:
    check = f"bridge {capsule.name}"
    if not capsule.host_binaries:
        todo = f"list host_binaries in [capsules.{capsule.name}], or remove bridge"
        return Finding(check, Level.NOTE, "is off, because no host binary is listed", todo)
    if served is None or served.bridge is None:
        return Finding(check, Level.WRONG, "is configured, but not open", "jackin-broker reload")
    if "revoked" in served.note:
        todo = f"for a new one: jackin-broker capsule env {capsule.name}"
        return Finding(check, Level.NOTE, served.note, todo)
    return Finding(check, Level.OK, f"{served.bridge.url}, frames at {served.bridge.address}")


def check_terminals(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The last of the seed's common failures is none: it is said where people look for it."""
    loaded = _loaded(environ)
    if any(capsule.host_binaries for capsule in loaded.capsules.values()):
        yield Finding("terminals", Level.OK, _TERMINAL)
