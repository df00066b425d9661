"""How a host command is confined, in words for the prompt and in arguments for bubblewrap.

A command in a project that the agent writes is the agent's code running as the operator; so it
gets namespaces of its own, sees the file system read-only but for the project, and none of what
`hidden.py` lists. It refuses to know how processes are made. Invariants: whoever is not marked
`confine = false` runs confined or not at all; no value is in any argument.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..deliveries.base import COMMAND_DIR
from ..errors import DenialCode, Refusal
from . import leader
from .hidden import Hidden, hidden_from
from .landlock import SCOPE_ABI
from .layout import Layout, contains_any, is_within
from .probe import BASE_OPTIONS, NAMESPACE_OPTIONS, abilities, is_available
from .visible import check_visible

if TYPE_CHECKING:
    from ..config import BinaryConfig
    from ..workdir import WorkDir
    from .leader import Walk
    from .spec import RunSpec

__all__ = ["Arrangement", "Confinement", "arrange", "confinement", "is_available"]


@dataclass(frozen=True)
class Confinement:
    """How one command is confined. `binary` and `capsule` name the table that says so.

    `inside`: in these words, by the capsule that it runs in and not by us.
    """

    binary: str = ""
    capsule: str = ""
    is_confined: bool = True
    has_operator_home: bool = False
    home_paths: tuple[str, ...] = ()
    has_network: bool = True
    shows_homes: bool = False
    hidden: Hidden = field(default_factory=Hidden)
    inside: str = ""

    def describe(self) -> str:
        """What the prompt says, such as `confined, has your own logins`."""
        if self.inside:
            return self.inside
        if not self.is_confined:
            return "unconfined, has your own logins"
        words = ["confined"]
        if self.has_operator_home:
            words.append("has your own logins")
        elif self.shows_homes:
            words.append("sees your own files and logins, for it runs in or above your home")
        elif self.home_paths:
            words.append("sees " + " ".join(self.home_paths))
        if not self.has_network:
            words.append("no network")
        return ", ".join(words)

    @property
    def table(self) -> str:
        """Where the configuration says how this binary runs."""
        return f"[capsules.{self.capsule or 'NAME'}.binaries.{self.binary or 'BINARY'}]"


UNCONFINED = Confinement(is_confined=False)


def confinement(
    config: BinaryConfig,
    workdir: WorkDir,
    hidden: Sequence[str],
    *,
    binary: str = "",
    capsule: str = "",
) -> Confinement:
    """How a command of this binary is confined in this directory.

    `hidden`: the broker's own directories (`Paths.trust_roots`); homes and the session's
    sockets are found here.
    """
    found = hidden_from(hidden, os.environ)
    root, _ = _project_of(workdir)
    return Confinement(
        binary=binary,
        capsule=capsule,
        is_confined=config.confine,
        has_operator_home=config.home == "operator",
        home_paths=tuple(config.home_paths),
        has_network=config.network,
        shows_homes=root != "/" and contains_any(root, found.homes),
        hidden=found,
    )


def describe_machine() -> str:
    """What confinement does on this machine, for `doctor`."""
    can = abilities()
    if not can.bwrap:
        return can.why
    if can.hides_abstract_sockets:
        return f"{can.bwrap} works, abstract sockets are hidden (Landlock)"
    return (
        f"{can.bwrap} works; abstract sockets stay reachable: hiding them takes Landlock ABI "
        f"{SCOPE_ABI} (Linux 6.12), and no set-uid bubblewrap"
    )


@dataclass(frozen=True)
class Arrangement:
    """`bwrap`: its arguments, the interpreter's included; none for an unconfined command.

    `files` are paths and contents, which bubblewrap reads from descriptors (warden_process.py).
    """

    bwrap: tuple[str, ...] = ()
    files: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    walk: Walk | None = None
    is_scoped: bool = False


def arrange(spec: RunSpec) -> Arrangement:
    """How this confined command will be run. Blocks on the file system.

    Raises: Refusal(SPAWN_FAILED).
    """
    confined = spec.confinement
    can = abilities()
    if not can.bwrap:
        raise Refusal(
            DenialCode.SPAWN_FAILED,
            f"{spec.name} must run confined, and {can.why}",
            hint="the operator may install the package bubblewrap, or set confine = false "
            f"in {confined.table}",
        )
    root, is_read_only = _project_of(spec.cwd)
    layout = _layout(spec, root, is_read_only=is_read_only)
    check_visible(spec.executable, spec.env, confined, layout)
    network = () if confined.has_network else ("--unshare-net",)
    interpreter = (os.path.realpath(sys.executable), "-I", "-S", "-c", leader.BOOTSTRAP)
    options = (*NAMESPACE_OPTIONS, *network, *BASE_OPTIONS, *layout.options(), *_private(spec))
    return Arrangement(
        bwrap=(can.bwrap, *options, "--", *interpreter),
        files=tuple((os.fsencode(file.path), file.content) for file in spec.files),
        walk=_walk(spec.cwd, root),
        is_scoped=can.hides_abstract_sockets,
    )


def _layout(spec: RunSpec, root: str, *, is_read_only: bool) -> Layout:
    """The order matters: homes go, what is needed comes back, secrets go last."""
    confined, hidden = spec.confinement, spec.confinement.hidden
    layout = Layout()
    if not confined.has_operator_home:
        for home in hidden.homes:
            layout.empty(home)
    else:
        for home in hidden.homes:
            if not layout.is_visible(home):
                layout.show(home, writable=False)
    for path in confined.home_paths:
        shown = _expand(path, hidden)
        # The agent's code must not be able to replace the program that was pinned.
        layout.show(shown, writable=not is_within(_real_executable(spec), os.path.realpath(shown)))
    read_only = is_read_only or contains_any(root, (*hidden.homes, *hidden.paths))
    layout.show_as_named(root, writable=not read_only)
    for path in _interpreter_files():
        if not layout.is_visible(path):
            layout.show(path, writable=False)
    for path in hidden.paths:
        layout.hide(path)
    return layout


def _private(spec: RunSpec) -> list[str]:
    """The directory of the command's own files and sockets; last, so that nothing covers it."""
    if not spec.files and not spec.sockets:
        return []
    words = ["--perms", "0700", "--tmpfs", COMMAND_DIR]
    for one in spec.sockets:
        words += ["--ro-bind", one.host_path, one.path]
    return words


def _expand(path: str, hidden: Hidden) -> str:
    """A path of `home_paths`; `~` is the operator's HOME."""
    if path == "~" or path.startswith("~/"):
        return (hidden.homes[0] if hidden.homes else "/") + path[1:]
    return path


def _real_executable(spec: RunSpec) -> str:
    return os.path.realpath(spec.executable)


@functools.cache
def _interpreter_files() -> tuple[str, ...]:
    """What the leader's Python needs: itself, its library, its shared object."""
    files = [os.path.realpath(sys.executable), os.path.dirname(os.path.realpath(os.__file__))]
    directory = str(sysconfig.get_config_var("LIBDIR") or "")
    name = str(sysconfig.get_config_var("INSTSONAME") or "")
    shared = os.path.join(directory, name)
    if directory and name and os.path.exists(shared):
        files.append(os.path.realpath(shared))
    return tuple(files)


def _project_of(workdir: WorkDir) -> tuple[str, bool]:
    """The directory to show, without links, and whether it is read-only.

    Without a mount (the fallback) it is the working directory itself.
    """
    if workdir.mount is None:
        return os.fsdecode(workdir.host_path), False
    return workdir.mount.host, workdir.mount.read_only


def _walk(workdir: WorkDir, root: str) -> Walk:
    """What the leader walks: from the project's root, component by component."""
    below = workdir.below if workdir.mount is not None else ()
    return os.fsencode(root), workdir.root, below, workdir.identity
