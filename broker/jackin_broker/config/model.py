"""What a configuration says once it is read: frozen structs, every default in one place.

It refuses to know TOML and files. Paths are absolute, `~` expanded and links resolved when
the configuration was read. No struct here holds a credential that was resolved; a value
written into the configuration itself hides behind `ValueSource`'s repr.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec

from ..bindings import Binding
from ..policy import Rule

SCHEMA = 1


class CapsuleKind(str, Enum):
    """What keeps the agent in. `none`: nothing does."""

    NONE = "none"
    BWRAP = "bwrap"
    PODMAN = "podman"
    DOCKER = "docker"
    REMOTE = "remote"


class KeyringKind(str, Enum):
    """Which keyring the `keyring` source reads."""

    AUTO = "auto"
    SECRET_SERVICE = "secret-service"  # noqa: S105 - the name of a keyring, not a password
    MACOS = "macos"
    KWALLET = "kwallet"
    VAULT = "vault"


class PickerKind(str, Enum):
    """How the operator meets a request."""

    ATTACH = "attach"
    TMUX_POPUP = "tmux-popup"


class NoOperator(str, Enum):
    """What a request gets while nobody is attached."""

    DENY = "deny"
    WAIT = "wait"


class HomeKind(str, Enum):
    """The HOME of a host command: an empty one of its own, or the operator's."""

    PRIVATE = "private"
    OPERATOR = "operator"


class UnmappedCwd(str, Enum):
    """What a working directory under no mount gets."""

    DENY = "deny"
    FALLBACK = "fallback"


class BrokerSettings(msgspec.Struct, frozen=True):
    """`[broker]`."""

    keyring: KeyringKind = KeyringKind.AUTO
    picker: PickerKind = PickerKind.ATTACH
    no_operator: NoOperator = NoOperator.DENY
    notify: tuple[str, ...] = ()
    runtime_dir: str = ""
    keep_grants: bool = False
    tmux_socket: str = ""
    audit_days: int = 90  # a quarter of a year: long enough to look up what went wrong


class Mount(msgspec.Struct, frozen=True):
    """A directory of the capsule and the host directory behind it, both absolute.

    `host` is free of links when the configuration is read; `open_workdir` follows none.
    """

    capsule: str
    host: str
    read_only: bool = False


class BinaryConfig(msgspec.Struct, frozen=True):
    """`[capsules.NAME.binaries.BINARY]`: how one listed binary runs.

    The last three are None where `[limits]` holds.
    """

    home: HomeKind = HomeKind.PRIVATE
    home_paths: tuple[str, ...] = ()
    confine: bool = True
    network: bool = True
    env: dict[str, str] = {}
    output_bytes: int | None = None
    address_space_bytes: int | None = None
    processes: int | None = None


class Allowance(msgspec.Struct, frozen=True):
    """What one command may use; 0 is no limit."""

    output_bytes: int = 0
    address_space_bytes: int = 0
    processes: int = 0


class CapsuleConfig(msgspec.Struct, frozen=True):
    """`[capsules.NAME]`. `uids` are never empty: the broker's own where none is written.

    `bridge_bind` and `bridge_host` empty, `bridge_port` 0: found when it is opened.
    `fallback_cwd` empty with `unmapped_cwd` fallback: where the broker was started.
    """

    name: str
    kind: CapsuleKind
    uids: tuple[int, ...]
    host_binaries: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    binaries: dict[str, BinaryConfig] = {}
    unmapped_cwd: UnmappedCwd = UnmappedCwd.DENY
    fallback_cwd: str = ""
    bridge: bool = False
    bridge_bind: str = ""
    bridge_host: str = ""
    bridge_port: int = 0
    compat: tuple[str, ...] = ()
    container: str = ""
    image: str = ""
    run_as: int = 0
    env: dict[str, Binding] = {}

    def binary(self, name: str) -> BinaryConfig:
        """How this listed binary runs; the defaults where nothing is written."""
        return self.binaries.get(name, BinaryConfig())


class Limits(msgspec.Struct, frozen=True):
    """`[limits]`. Units: seconds where the name ends in `_s`. The last three are 0 for none."""

    approve_s: float = 300  # long enough to come back to the desk, short enough to be forgotten
    run_s: float = 1800  # the seed's 30 minutes
    waiting_per_capsule: int = 32  # more than a person answers before they expire
    ask_burst: int = 40  # an agent that starts up asks in bursts
    ask_per_s: float = 1  # nobody answers faster
    connections_per_capsule: int = 64  # waiting requests, running ones, and some to spare
    source_s: float = 30  # a person at a keyring's own prompt
    kill_grace_s: float = 3  # what a database client needs to say goodbye
    drain_s: float = 2  # DESIGN §9: a grandchild delays the result by no more
    mcp_pending_s: float = 45  # mcp clients give up after 60 s by default
    mcp_per_capsule: int = 8  # a process of 90 MB each; an agent has one, its helpers some
    output_bytes: int = 0  # output is never held, so none is needed
    address_space_bytes: int = 0  # Go and Java reserve far more than they use
    processes: int = 0  # a build uses what it finds

    def allowance(self, binary: BinaryConfig) -> Allowance:
        """What a command of this binary may use: what its own table says, else these."""
        own = (binary.output_bytes, binary.address_space_bytes, binary.processes)
        shared = (self.output_bytes, self.address_space_bytes, self.processes)
        return Allowance(*(s if o is None else o for o, s in zip(own, shared, strict=True)))


class Config(msgspec.Struct, frozen=True):
    """A whole configuration. `is_missing`: there is no file and these are the defaults."""

    broker: BrokerSettings = BrokerSettings()
    bindings: dict[str, Binding] = {}
    capsules: dict[str, CapsuleConfig] = {}
    rules: tuple[Rule, ...] = ()
    limits: Limits = Limits()
    origin: str = ""
    is_missing: bool = False

    def entries_of(self, capsule: str) -> dict[str, Binding]:
        """Every `[env]` entry of a capsule, by name: the shared ones and its own over them."""
        own = self.capsules[capsule].env if capsule in self.capsules else {}
        return {**self.bindings, **own}

    def bindings_of(self, capsule: str) -> dict[str, Binding]:
        """The on-demand bindings of a capsule: what a command there can be lent."""
        return {n: b for n, b in self.entries_of(capsule).items() if b.on_demand}

    def launch_env_of(self, capsule: str) -> dict[str, Binding]:
        """The entries that are not on demand: resolved at launch and given to the agent."""
        return {n: b for n, b in self.entries_of(capsule).items() if not b.on_demand}

    def all_bindings(self) -> Iterator[Binding]:
        """Every configured entry of every capsule, on demand or not."""
        yield from self.bindings.values()
        for capsule in self.capsules.values():
            yield from capsule.env.values()
