"""What an operator's client asks of the broker; `operator_protocol.py` says how it travels.

Every call carries a `seq` that its reply repeats. A call may hold a value (a vault's passphrase),
and then its repr has none.
Pure: no I/O.
"""

from __future__ import annotations

import msgspec

from .operator_views import ONCE, GrantTerm, MountView


class Attach(msgspec.Struct, frozen=True, tag="Attach"):
    """First message of a client that wants pushes. `client`: picker, plain or follow."""

    seq: int
    protocol: int
    client: str = "picker"


class ListRequests(msgspec.Struct, frozen=True, tag="ListRequests"):
    """Every request on the desk that has not ended."""

    seq: int


class Decide(msgspec.Struct, frozen=True, tag="Decide"):
    """Answer one request. `digest` is `view_digest` of what was displayed.

    An empty `digest` is refused; `decide ID` on the command line reads the view first. `grant`
    is one of the view's `offers` (another amount is taken too); with `approve` false `once` or
    `always`: a deny rule that ends after so many days.
    """

    seq: int
    id: str
    digest: str
    approve: bool
    bindings: tuple[str, ...] = ()
    reason: str = ""
    grant: GrantTerm = ONCE


class DenyAll(msgspec.Struct, frozen=True, tag="DenyAll"):
    """Deny everything that waits, of this capsule; an empty name means every capsule's."""

    seq: int
    capsule: str
    reason: str = ""


class KillRequest(msgspec.Struct, frozen=True, tag="KillRequest"):
    """End a running command, whole tree."""

    seq: int
    id: str


class Watch(msgspec.Struct, frozen=True, tag="Watch"):
    """Push what this command writes, as `Output`, what it wrote last first; or cease to."""

    seq: int
    id: str
    on: bool = True


class ListHistory(msgspec.Struct, frozen=True, tag="ListHistory"):
    """Requests that ended since the broker started, newest first, `limit` at most (0: all)."""

    seq: int
    limit: int = 0


class ListGrants(msgspec.Struct, frozen=True, tag="ListGrants"):
    """Every live grant, and every "always" that stands in the configuration."""

    seq: int


class RevokeGrant(msgspec.Struct, frozen=True, tag="RevokeGrant"):
    """End one grant; an "always" is taken out of the configuration."""

    seq: int
    id: str


class RevokeAll(msgspec.Struct, frozen=True, tag="RevokeAll"):
    """End every grant; with `kill` also everything that was approved and has not ended."""

    seq: int
    kill: bool = False


class ListRules(msgspec.Struct, frozen=True, tag="ListRules"):
    """The rules that are in force."""

    seq: int


class ListCredentials(msgspec.Struct, frozen=True, tag="ListCredentials"):
    """The `[env]` entries that are configured; names and sources, no values."""

    seq: int


class GetStatus(msgspec.Struct, frozen=True, tag="GetStatus"):
    """What is up. With `check_keyring` the keyring itself is asked, which takes a while."""

    seq: int
    check_keyring: bool = False


class Reload(msgspec.Struct, frozen=True, tag="Reload"):
    """Read the configuration again."""

    seq: int


class Stop(msgspec.Struct, frozen=True, tag="Stop"):
    """End the broker; what waits is denied, what runs is ended."""

    seq: int


class UnlockVault(msgspec.Struct, frozen=True, tag="UnlockVault"):
    """Unlock the vault for this broker's life. Holds a value: never logged, never repeated."""

    seq: int
    passphrase: str

    def __repr__(self) -> str:
        return f"UnlockVault(seq={self.seq}, passphrase=<hidden>)"


class CheckCredential(msgspec.Struct, frozen=True, tag="CheckCredential"):
    """Resolve this binding once and say whether it worked; the value stays in the broker."""

    seq: int
    name: str
    capsule: str = ""


class OpenCapsule(msgspec.Struct, frozen=True, tag="OpenCapsule"):
    """Serve a capsule for `launch`, as long as this connection lives.

    `again`: it runs already and its broker was started anew, so the bridge keeps its token.
    """

    seq: int
    name: str
    kind: str
    uids: tuple[int, ...]
    mounts: tuple[MountView, ...] = ()
    again: bool = False


class RecordInit(msgspec.Struct, frozen=True, tag="RecordInit"):
    """The capsule's PID 1, as the host numbers it, from the one who started it.

    `container` is the engine's id of what it is the first process of, if an engine made it.
    """

    seq: int
    name: str
    pid: int
    container: str = ""


class CapsuleEnv(msgspec.Struct, frozen=True, tag="CapsuleEnv"):
    """The variables of a capsule, for an entry into it that is no launch.

    `renew`: with a token that nobody has yet. `values`: with what `[env]` gives at launch.
    """

    seq: int
    name: str
    renew: bool = False
    values: bool = False


class RevokeToken(msgspec.Struct, frozen=True, tag="RevokeToken"):
    """The token of this capsule's bridge opens nothing any more."""

    seq: int
    name: str


Call = (
    Attach
    | ListRequests
    | Decide
    | DenyAll
    | KillRequest
    | Watch
    | ListHistory
    | ListGrants
    | RevokeGrant
    | RevokeAll
    | ListRules
    | ListCredentials
    | GetStatus
    | Reload
    | Stop
    | UnlockVault
    | CheckCredential
    | OpenCapsule
    | CapsuleEnv
    | RevokeToken
    | RecordInit
)
