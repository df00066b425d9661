"""The contract of a launcher: a plan in, a command line with its descriptors out.

A launcher knows one kind of capsule. It refuses to know the broker, terminals and signals: `run.py`
starts what it prepares, has its init put on record, and lets the agent start only after that.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from ..config.model import CapsuleKind, Mount
from ..errors import ConfigError

_ROOT: Final = 0
# Debian, Fedora, Arch and Alpine have it there; a capsule sees the host's /usr.
_SYSTEM_INTERPRETERS: Final = ("/usr/bin/python3", "/usr/local/bin/python3")


@dataclass(frozen=True)
class Plan:
    """What a capsule is to be. `uid` is the host's, `cwd` and `interpreter` are the capsule's.

    `env` comes from the broker; each kind adds what its programs cannot do without.
    """

    name: str
    command: tuple[str, ...]
    env: dict[str, str]
    run_dir: str
    bin_dir: str
    interpreter: str
    uid: int
    mounts: tuple[Mount, ...] = ()
    cwd: str = ""
    has_network: bool = True
    image: str = ""
    run_as: int = 0


@dataclass
class Prepared:
    """A command line that is ready to run.

    `child_fds` are handed down and then closed here. Where the kind has an init, `find_init`
    says which it is, and a byte written to `gate_fd` lets the agent start. `undo` takes back
    what was made for it; `container` is the engine's id, once it is known.
    """

    argv: list[str]
    env: dict[str, str]
    child_fds: list[int] = field(default_factory=list[int])
    init_fd: int | None = None
    gate_fd: int | None = None
    name: str = ""
    container: str = ""
    undo: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])

    @property
    def has_init(self) -> bool:
        """Whether an init has to be put on record."""
        return self.gate_fd is not None

    def close_child_fds(self) -> None:
        """Close what the child has now."""
        while self.child_fds:
            os.close(self.child_fds.pop())

    def close(self) -> None:
        """Close everything."""
        self.close_child_fds()
        for fd in (self.init_fd, self.gate_fd):
            if fd is not None:
                os.close(fd)
        self.init_fd = self.gate_fd = None
        while self.undo:
            self.undo.pop()()


class Launcher(ABC):
    """One kind of capsule."""

    kind: ClassVar[CapsuleKind]
    # Whether the agent must never hold the launcher's own terminal.
    has_boundary: ClassVar[bool]
    # Whether it can live as any uid, whoever launches it: its engine runs as root.
    gives_any_uid: ClassVar[bool] = False

    @abstractmethod
    def check(self) -> None:
        """Return when this kind can be started here.

        Raises: ConfigError that names the package to install.
        """

    @abstractmethod
    def interpreter(self, image: str = "") -> str:
        """The Python that runs the capsule's programs, as the capsule sees it.

        Raises: ConfigError where there is none.
        """

    @abstractmethod
    def prepare(self, plan: Plan) -> Prepared:
        """What to run; its descriptors are the caller's to close.

        Raises: ConfigError for a plan that this kind cannot do.
        """

    @abstractmethod
    def find_init(self, prepared: Prepared, child: int) -> int | None:
        """The host pid of init, None when the program ended without one.

        `child` is a pidfd of that program. Raises: JackinError when it takes too long.
        """

    def end(self, prepared: Prepared) -> None:
        """End what killing the program does not end; most kinds have nothing of that sort."""
        _ = prepared


def system_interpreter() -> str:
    """The Python of the system's own directories.

    Raises: ConfigError where there is none.
    """
    for path in _SYSTEM_INTERPRETERS:
        if os.access(path, os.X_OK):
            return path
    raise ConfigError(
        "the capsule has no python3 in /usr/bin or /usr/local/bin",
        hint="apt-get install python3",
    )


def choose_uid(asked: int | None, configured: Collection[int], *, is_free: bool = False) -> int:
    """The host uid that the capsule will live as: the one asked for, ours, or a configured one.

    Raises: ConfigError when it is not configured, or only root could become it.
    """
    own = os.geteuid()
    uid = asked
    if uid is None:
        uid = own if own in configured or not configured else min(configured)
    if configured and uid not in configured:
        raise ConfigError(f"uid {uid} is not one of the capsule's uids {sorted(configured)}")
    if uid != own and own != _ROOT and not is_free:
        raise ConfigError(
            f"only root can start a capsule as uid {uid}",
            hint=f"launch it as root, or add {own} to the capsule's uids",
        )
    return uid


def become(uid: int) -> list[str]:
    """The beginning of an argv that runs the rest as `uid`, without groups; empty for ours.

    Raises: ConfigError where setpriv is missing.
    """
    if uid == os.geteuid():
        return []
    identity = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all"]
    return [require("setpriv", "util-linux"), *identity, "--"]


def require(program: str, package: str) -> str:
    """The path of a program.

    Raises: ConfigError that names the package.
    """
    path = shutil.which(program)
    if path is None:
        raise ConfigError(f"{program} is missing", hint=f"apt-get install {package}")
    return path


def capsule_cwd(mounts: Collection[Mount], host_cwd: Path) -> str:
    """Where in the capsule the agent starts: our own directory's place, else the first mount.

    Empty when nothing is mounted.
    """
    fits = [mount for mount in mounts if host_cwd.is_relative_to(mount.host)]
    if fits:
        mount = max(fits, key=lambda one: len(one.host))
        return str(Path(mount.capsule) / host_cwd.relative_to(mount.host))
    return next((mount.capsule for mount in mounts), "")
