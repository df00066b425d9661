"""The capsules that the broker serves: what is configured, who is init, who launched it.

A configured capsule is served from the broker's start; one with a boundary refuses everybody
until its init is on record. Only whoever opened a capsule may record its init (DESIGN §4).
It refuses to know sockets and requests: `peer.py` judges callers, `doorways.py` listens.
Invariant: a record of init holds a pidfd, so it is never about another process of that number.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from .config.model import CapsuleConfig, CapsuleKind, Mount
from .errors import ConfigError, DenialCode, JackinError, Refusal
from .identity import PinnedBinary
from .init_protocol import Isolation
from .processes import Namespace, ProcessGone, boot_id, is_alive, opened, own_depth

# Names one launch of a capsule in the record and in logs; not a secret, only unique.
_SESSION_ID_BYTES: Final = 8


@dataclass(eq=False)
class InitRecord:
    """A capsule's PID 1. `depth` counts PID namespaces, `start_time` the kernel's ticks."""

    pid: int
    pidfd: int
    start_time: int
    uid: int
    depth: int
    # Whether it is `jackin-capsule init`, so that it may become the runner of this capsule.
    is_ours: bool = True
    # Of a container, whose processes need not descend from init (`docker exec`).
    cgroup: str = ""
    _namespace: Namespace | None = None

    @property
    def identity(self) -> str:
        """A name that no other process ever has: number and start, of this boot, and container."""
        return f"{boot_id()}-{self.pid}-{self.start_time}-{self.cgroup}"

    def is_alive(self) -> bool:
        """Whether it has not ended; its pidfd becomes readable when it does."""
        return is_alive(self.pidfd)

    def namespace(self) -> Namespace | None:
        """Its PID namespace, as soon as the kernel lets us see it.

        A process that has just made its user namespace is hidden until it executes a program.
        """
        if self._namespace is None:
            try:
                with opened(self.pid) as process:
                    found = process.pid_namespace()
            except ProcessGone:
                return None
            self._namespace = found if self.is_alive() else None
        return self._namespace

    def close(self) -> None:
        """Let go of the pidfd."""
        os.close(self.pidfd)


def record_init(
    pid: int, uids: Iterable[int] | None, *, is_ours: bool = True, container_id: str = ""
) -> InitRecord:
    """The record of a capsule's PID 1, named by the one who started it, or by an engine.

    `uids` is None where the engine's word stands for any. Of a container its cgroup counts too.
    Raises: Refusal(PEER_REFUSED) unless it lives, has one of `uids` on the host, and is the
    first process of a PID namespace exactly one level below ours.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError, OverflowError) as error:
        raise _not_init(f"process {pid} does not exist") from error
    try:
        with opened(pid) as process:
            status, started = process.status(), process.start_time()
            cgroup = process.cgroup_of(container_id) if container_id else ""
        depth = own_depth() + 1
        if uids is not None and status.uid not in frozenset(uids):
            raise _not_init(f"process {pid} has uid {status.uid}, which is not configured")
        if len(status.depths) != depth or status.depths[-1] != 1:
            raise _not_init(f"process {pid} is not the first of a namespace of its own")
        if not is_alive(pidfd):
            raise _not_init(f"process {pid} has ended")
    except ProcessGone as error:
        os.close(pidfd)
        raise _not_init(f"process {pid} cannot be read") from error
    except Refusal:
        os.close(pidfd)
        raise
    return InitRecord(pid, pidfd, started, status.uid, depth, is_ours, cgroup)


class Runner(Protocol):
    """The channel to a capsule's init, which starts commands inside.

    `isolation`: what keeps the agent from reading a command. `skills`: `init_protocol`'s.
    """

    @property
    def isolation(self) -> Isolation: ...

    @property
    def skills(self) -> frozenset[str]: ...

    def spawn(self, request_id: str, descriptors: Sequence[int]) -> None:
        """Have a command started. Raises: OSError."""

    def look(self, look_id: str, descriptors: Sequence[int]) -> None:
        """Have a command looked for. Raises: OSError."""

    def kill(self, request_id: str, number: int) -> None:
        """Signal a command's leader; nothing when init has gone."""

    def close(self) -> None:
        """Let init go; it connects again if it is still the one on record."""


@dataclass(eq=False)
class Capsule:
    """One capsule while the broker runs. A reload changes it in place."""

    name: str
    config: CapsuleConfig
    binaries: Mapping[str, PinnedBinary]
    kind: CapsuleKind
    uids: frozenset[int]
    mounts: tuple[Mount, ...] = ()
    init: InitRecord | None = None
    session_id: str = ""
    # Held while a request of its is looked at, so that one capsule takes one thread.
    examining: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    # Whoever has a session now, by socket or bridge: one budget, and what `status` shows.
    callers: set[object] = field(default_factory=set[object], repr=False)
    # There as soon as the recorded init has connected; `runner_came` wakes who waits for that.
    runner: Runner | None = None
    runner_came: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    # The host directory of the programs that are mounted into it.
    programs: str = ""
    # Whether its launcher came back after a broker's restart; why it cannot have a capsule that
    # runs, in words for the operator.
    is_again: bool = False
    why_closed: str = ""
    # Since when it is known, and who waits for its init: after a broker's restart the launcher
    # puts that on record again in a second or two.
    known_since: float = field(default_factory=time.monotonic)
    init_came: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    # When its engine may be asked again for a container that is not there; the loop's clock.
    adopt_after: float = 0.0

    @property
    def has_boundary(self) -> bool:
        """Whether something keeps the agent from being the operator; kind none has nothing."""
        return self.kind is not CapsuleKind.NONE

    @property
    def is_container(self) -> bool:
        """Whether an engine made it, whose word says which process is init."""
        return self.kind in (CapsuleKind.DOCKER, CapsuleKind.PODMAN)

    @property
    def is_open(self) -> bool:
        """Whether a launch holds it."""
        return bool(self.session_id)

    @property
    def life(self) -> str:
        """Names what runs in it now: by its init, which outlives a broker, else by its launch.

        A container that is started again under the same name is another one.
        """
        return self.session_id if self.init is None else self.init.identity

    def adopt(self, pid: int, container_id: str, *, is_ours: bool) -> None:
        """Put the PID 1 of a container on record that nobody launched, by its engine's word.

        Raises: Refusal(PEER_REFUSED) for a process that cannot be one.
        """
        record = record_init(pid, None, is_ours=is_ours, container_id=container_id)
        self.take_init(record)

    def take_init(self, record: InitRecord) -> None:
        """Init is on record, in place of any other."""
        self.drop_init()
        self.init = record
        self.init_came.set()

    def take_runner(self, runner: Runner | None) -> None:
        """Init has connected, or is gone."""
        self.runner = runner
        (self.runner_came.clear if runner is None else self.runner_came.set)()

    def drop_init(self) -> None:
        """Forget init, which ended or whose launch did."""
        if self.runner is not None:
            self.runner.close()
        self.take_runner(None)
        self.init_came.clear()
        if self.init is not None:
            self.init.close()
            self.init = None


@contextmanager
def returning(capsule: Capsule | None) -> Generator[None]:
    """A launcher comes back for a capsule that runs: why that fails is kept, for the operator."""
    try:
        yield
    except JackinError as error:
        if capsule is not None:
            capsule.why_closed = str(error)
        raise
    if capsule is not None:
        capsule.why_closed = ""


@dataclass(frozen=True)
class Reconfigured:
    """What a new configuration did to the registry; doorways follow it."""

    added: tuple[Capsule, ...] = ()
    changed: tuple[Capsule, ...] = ()
    removed: tuple[Capsule, ...] = ()


@dataclass(eq=False)
class CapsuleRegistry:
    """Every capsule by name."""

    _capsules: dict[str, Capsule] = field(default_factory=dict[str, Capsule])

    def __iter__(self) -> Iterator[Capsule]:
        return iter(tuple(self._capsules.values()))

    def __len__(self) -> int:
        return len(self._capsules)

    def get(self, name: str) -> Capsule | None:
        """The capsule of that name."""
        return self._capsules.get(name)

    def configure(
        self,
        configs: Mapping[str, CapsuleConfig],
        binaries: Mapping[str, Mapping[str, PinnedBinary]],
    ) -> Reconfigured:
        """Take a configuration; capsules that run keep their init and what launch added."""
        added: list[Capsule] = []
        changed: list[Capsule] = []
        for name, config in configs.items():
            pinned = binaries.get(name, {})
            capsule = self._capsules.get(name)
            if capsule is None:
                capsule = Capsule(name, config, pinned, config.kind, frozenset(config.uids))
                self._capsules[name] = capsule
                added.append(capsule)
            elif capsule.config != config or capsule.binaries != pinned:
                changed.append(capsule)
            self._apply(capsule, config, pinned)
        gone = [name for name in self._capsules if name not in configs]
        removed = [self._capsules.pop(name) for name in gone]
        for capsule in removed:
            capsule.drop_init()
        return Reconfigured(tuple(added), tuple(changed), tuple(removed))

    def open(
        self,
        name: str,
        *,
        kind: str = "",
        uids: Sequence[int] = (),
        mounts: Sequence[Mount] = (),
    ) -> Capsule:
        """The capsule, held by one launch from now on; its `session_id` proves the holder.

        An empty name means the only configured capsule, an empty kind its own. `uids` say who
        will live in it and have to be configured; mounts are added to the configured ones.
        Raises: ConfigError, Refusal(NOT_ALLOWED) while another launch holds it.
        """
        capsule = self.named(name)
        configured = capsule.config.kind.value
        if kind not in ("", configured):
            raise ConfigError(
                f"capsules.{capsule.name}.kind: is {configured}, not {kind}",
                hint=f"launch it with --runtime {configured}, or change its kind",
            )
        if capsule.is_open:
            raise Refusal(
                DenialCode.NOT_ALLOWED,
                f"capsule {capsule.name} is already launched",
                hint="end it first, or configure another capsule",
            )
        _check_uids(capsule, uids)
        capsule.mounts = (*capsule.config.mounts, *mounts)
        capsule.why_closed = ""
        capsule.session_id = secrets.token_hex(_SESSION_ID_BYTES)
        return capsule

    def record_init(
        self, name: str, pid: int, session_id: str, container_id: str = ""
    ) -> InitRecord:
        """Put the capsule's PID 1 on record, once a launch.

        Raises: Refusal(PEER_REFUSED) from anybody but the launch that holds the capsule, for a
        second init while the first lives, and for a process that cannot be init.
        """
        capsule = self._capsules.get(name)
        if capsule is None or not session_id or capsule.session_id != session_id:
            raise Refusal(DenialCode.PEER_REFUSED, f"capsule {name} is not held by this launch")
        if not capsule.has_boundary:
            raise _not_init(f"capsule {name} has no boundary, so it has no init")
        if capsule.init is not None and capsule.init.is_alive():
            raise _not_init(f"capsule {name} has an init already")
        record = record_init(
            pid, None if capsule.is_container else capsule.uids, container_id=container_id
        )
        capsule.take_init(record)
        return record

    def close(self, name: str, session_id: str) -> bool:
        """Give the capsule back: init is forgotten, the configuration alone counts again.

        False for whoever does not hold it.
        """
        capsule = self._capsules.get(name)
        if capsule is None or not session_id or capsule.session_id != session_id:
            return False
        capsule.drop_init()
        capsule.session_id = ""
        self._apply(capsule, capsule.config, capsule.binaries)
        return True

    def _apply(
        self, capsule: Capsule, config: CapsuleConfig, pinned: Mapping[str, PinnedBinary]
    ) -> None:
        launched = capsule.mounts[len(capsule.config.mounts) :] if capsule.is_open else ()
        if not capsule.is_open:
            capsule.kind = config.kind
        capsule.uids = frozenset(config.uids)
        capsule.mounts = (*config.mounts, *launched)
        capsule.config, capsule.binaries = config, pinned

    def named(self, name: str) -> Capsule:
        """The capsule of that name; of an empty one, the only one.

        Raises: ConfigError.
        """
        if name:
            found = self._capsules.get(name)
            if found is None:
                raise ConfigError(
                    f"capsules.{name}: is not configured",
                    hint=f"add [capsules.{name}] to the configuration and reload",
                )
            return found
        if len(self._capsules) == 1:
            return next(iter(self._capsules.values()))
        if not self._capsules:
            raise ConfigError(
                "no capsule is configured",
                hint="add [capsules.NAME] to the configuration, then: jackin-broker reload",
            )
        names = ", ".join(sorted(self._capsules))
        raise ConfigError(f"which capsule? {names}", hint="name one with --name")


def _check_uids(capsule: Capsule, uids: Sequence[int]) -> None:
    configured = capsule.config.uids
    for uid in uids:
        if uid not in configured:
            raise ConfigError(
                f"capsules.{capsule.name}.uids: {uid} is not among them",
                hint=f"add {uid} to its uids, or launch it as one of {list(configured)}",
            )


def _not_init(reason: str) -> Refusal:
    return Refusal(DenialCode.PEER_REFUSED, reason)
