"""What an operator is shown: requests, grants, rules, bindings; structs without a single value.

The calls, replies and pushes that carry them are in `operator_protocol.py`. Texts are raw here:
`display.py` says what may be shown of them.
Pure: no I/O.
"""

from __future__ import annotations

import hashlib
import json
from enum import Enum
from typing import Final

import msgspec

from .protocol import StdinKind, Target, TerminalSize, Text

# The line of an offer that the ticked bindings are written into; no other line of it can be this
# one, because every text there is quoted and without a line break.
_NO_BINDINGS: Final = "bindings = []"


class RequestState(str, Enum):
    """The desk's states (DESIGN §7)."""

    WAITING = "waiting"
    APPROVED = "approved"
    RESOLVING = "resolving"
    RUNNING = "running"
    DONE = "done"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


FINAL_STATES: Final = frozenset(
    {RequestState.DONE, RequestState.DENIED, RequestState.EXPIRED, RequestState.CANCELLED}
)


class BindingView(msgspec.Struct, frozen=True):
    """One row that the operator can tick. `wanted`: the agent named it. No value."""

    name: str
    source: str
    delivery: str
    label: str = ""
    wanted: bool = False
    warnings: tuple[str, ...] = ()


class FileOperandView(msgspec.Struct, frozen=True):
    """An argument that names a file which the agent can change."""

    path: Text
    size_bytes: int
    sha256: str


class StdinView(msgspec.Struct, frozen=True):
    """What the command will read. `preview` is base64 of the first bytes of a closed one."""

    kind: StdinKind
    size_bytes: int = 0
    sha256: str = ""
    preview: bytes = b""


class ProcessView(msgspec.Struct, frozen=True):
    """One process of the caller's chain, a label and never proof."""

    pid: int
    name: str


class GrantKind(str, Enum):
    """For how long an approval may be used again."""

    ONCE = "once"
    MINUTES = "minutes"
    USES = "uses"
    ALWAYS = "always"


class GrantTerm(msgspec.Struct, frozen=True):
    """What an approval creates. `amount`: minutes, uses in all, or days; 0 for once."""

    kind: GrantKind = GrantKind.ONCE
    amount: int = 0


ONCE: Final = GrantTerm()


class GrantOffer(msgspec.Struct, frozen=True):
    """A term that this request may be answered with. `text` is what would be stored.

    With `approve` false it is a deny rule, to be stored with a denial. The line of the bindings
    is filled in by `stored_text`, once they are ticked; the rest is stored as it stands.
    """

    term: GrantTerm
    text: str
    approve: bool = True


def stored_text(text: str, bindings: tuple[str, ...]) -> str:
    """An offer's text as it is stored when these bindings are ticked, to the byte."""
    named = json.dumps(sorted(bindings), ensure_ascii=False)
    lines = text.split("\n")
    return "\n".join(f"bindings = {named}" if line == _NO_BINDINGS else line for line in lines)


class GrantView(msgspec.Struct, frozen=True):
    """A grant that may be used again. `text` is the one that was offered.

    Times are seconds since the epoch; `uses_left` is None where uses are not counted, and
    `expires_at` where none is set. `is_rule`: an "always", which stands in the configuration.
    """

    id: str
    capsule: str
    text: str
    made_at: float
    expires_at: float | None = None
    uses_left: int | None = None
    last_used_at: float | None = None
    bindings: tuple[str, ...] = ()
    is_rule: bool = False
    note: str = ""


class RuleView(msgspec.Struct, frozen=True):
    """One configured rule. `text` has a line for each thing that it names.

    `ends` is empty for never; `id` is that of a rule which an answer wrote: it can be revoked.
    """

    number: int
    action: str
    text: str
    ends: str = ""
    warnings: tuple[str, ...] = ()
    last_used_at: float | None = None
    has_ended: bool = False
    id: str = ""


class CredentialView(msgspec.Struct, frozen=True):
    """One `[env]` entry. `capsule` is empty for all of them, else the one that it is for.

    `on_demand` false: it is given to the agent at launch.
    """

    name: str
    source: str
    delivery: str
    label: str = ""
    capsule: str = ""
    on_demand: bool = True
    warnings: tuple[str, ...] = ()


class RequestView(msgspec.Struct, frozen=True):
    """All that an operator is shown of one request. Texts are raw: `display.py` shows them.

    `digest` of it, made by `view_digest`, names what was displayed: the volatile fields
    (`state`, `position`, `expires_in_s`, `exit_code`, `outcome`, `running_s`, `decided_by`,
    `lent`) do not count. `differences` are from the last approved request of that shape, a line
    each, empty also where there was none; `denied_before` counts denials of this very command in
    a row. `running_s` is how long it runs, or ran. `decided_by`: operator, rule or grant.
    """

    id: str
    capsule: str
    capsule_kind: str
    command: Text
    args: tuple[Text, ...]
    cwd: Text
    capsule_cwd: Text
    cwd_writable: bool
    binary_path: Text
    target: Target
    confinement: str
    stdin: StdinView
    tty: TerminalSize | None
    reason: str
    want: tuple[str, ...]
    bindings: tuple[BindingView, ...]
    files: tuple[FileOperandView, ...]
    asked_by: tuple[ProcessView, ...]
    notices: tuple[str, ...]
    differences: tuple[str, ...] = ()
    denied_before: int = 0
    offers: tuple[GrantOffer, ...] = ()
    state: RequestState = RequestState.WAITING
    position: int = 0
    expires_in_s: float = 0
    outcome: str = ""
    exit_code: int | None = None
    running_s: float = 0
    decided_by: str = ""
    lent: tuple[str, ...] = ()


def view_digest(view: RequestView) -> str:
    """The hex SHA-256 of what an operator is shown, without what merely passes."""
    return hashlib.sha256(still_of(view)).hexdigest()


def still_of(view: RequestView) -> bytes:
    """The view as it is sent, without what merely passes."""
    still = msgspec.structs.replace(
        view,
        state=RequestState.WAITING,
        position=0,
        expires_in_s=0,
        outcome="",
        exit_code=None,
        running_s=0,
        decided_by="",
        lent=(),
    )
    return msgspec.json.encode(still)


class PeerView(msgspec.Struct, frozen=True):
    """Who has a session now. Over the bridge nobody sees a process: pid 0, uid -1."""

    pid: int
    uid: int
    name: str


class BridgeView(msgspec.Struct, frozen=True):
    """Where a capsule's bridge is, as the capsule sees it: HTTP and frames. Never its token."""

    url: str
    address: str


class CapsuleStatus(msgspec.Struct, frozen=True):
    """One capsule that the broker serves. `init_pid` is 0 where none is recorded.

    `socket` is empty where only a bridge leads in, `bridge` is None where none is open.
    """

    name: str
    kind: str
    socket: str
    uids: tuple[int, ...] = ()
    init_pid: int = 0
    note: str = ""
    peers: tuple[PeerView, ...] = ()
    bridge: BridgeView | None = None


class MountView(msgspec.Struct, frozen=True):
    """A path in the capsule and the host directory behind it."""

    capsule: str
    host: str
    read_only: bool = False
