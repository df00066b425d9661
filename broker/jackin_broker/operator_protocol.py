"""What picker, command line and broker say to each other on operator.sock.

The same frames as on broker.sock, messages only. Every call carries a `seq` that its reply
repeats; pushes to an attached client carry none. A call may hold a value (a vault's
passphrase), no reply or push has a field for one.
Pure: no I/O.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Final

import msgspec

from .errors import PeerProtocolError
from .protocol import StdinKind, Target, TerminalSize, Text

OPERATOR_PROTOCOL_VERSION: Final = 1
# A queue of 1,000 prompts with long arguments; the peer is the operator's own uid.
OPERATOR_MESSAGE_MAX_BYTES: Final = 64 * 1024 * 1024
# What the prompt shows of a closed stdin (DESIGN §7; issue "stdin seen": up to 64 KiB).
STDIN_PREVIEW_MAX_BYTES: Final = 64 * 1024


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


class RequestView(msgspec.Struct, frozen=True):
    """All that an operator is shown of one request. Texts are raw: `display.py` shows them.

    `digest` of it, made by `view_digest`, names what was displayed: the volatile fields
    (`state`, `position`, `expires_in_s`, `exit_code`, `outcome`) do not count.
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
    state: RequestState = RequestState.WAITING
    position: int = 0
    expires_in_s: float = 0
    outcome: str = ""
    exit_code: int | None = None


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
    )
    return msgspec.json.encode(still)


class CapsuleStatus(msgspec.Struct, frozen=True):
    """One capsule that the broker serves. `init_pid` is 0 where none is recorded."""

    name: str
    kind: str
    socket: str
    uids: tuple[int, ...] = ()
    init_pid: int = 0
    note: str = ""


class MountView(msgspec.Struct, frozen=True):
    """A path in the capsule and the host directory behind it."""

    capsule: str
    host: str
    read_only: bool = False


# --- calls ------------------------------------------------------------------------------


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

    An empty `digest` is refused; `decide ID` on the command line reads the view first.
    """

    seq: int
    id: str
    digest: str
    approve: bool
    bindings: tuple[str, ...] = ()
    reason: str = ""


class KillRequest(msgspec.Struct, frozen=True, tag="KillRequest"):
    """End a running command, whole tree."""

    seq: int
    id: str


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
    """Serve a capsule for `launch`, as long as this connection lives."""

    seq: int
    name: str
    kind: str
    uids: tuple[int, ...]
    mounts: tuple[MountView, ...] = ()


class RecordInit(msgspec.Struct, frozen=True, tag="RecordInit"):
    """The capsule's PID 1, as the host numbers it, from the one who started it."""

    seq: int
    name: str
    pid: int


Call = (
    Attach
    | ListRequests
    | Decide
    | KillRequest
    | GetStatus
    | Reload
    | Stop
    | UnlockVault
    | CheckCredential
    | OpenCapsule
    | RecordInit
)

# --- replies and pushes -----------------------------------------------------------------


class Attached(msgspec.Struct, frozen=True, tag="Attached"):
    """Attached; `requests` is the desk now, oldest first."""

    seq: int
    broker_version: str
    requests: tuple[RequestView, ...]
    notices: tuple[str, ...] = ()


class Requests(msgspec.Struct, frozen=True, tag="Requests"):
    """The reply to `ListRequests`, oldest first."""

    seq: int
    requests: tuple[RequestView, ...]


class Decided(msgspec.Struct, frozen=True, tag="Decided"):
    """Whether the decision was taken; if not, `code` and `reason` say why."""

    seq: int
    id: str
    accepted: bool
    code: str = ""
    reason: str = ""


class StatusReport(msgspec.Struct, frozen=True, tag="StatusReport"):
    """What is up."""

    seq: int
    pid: int
    version: str
    uptime_s: float
    operators: int
    waiting: int
    running: int
    keyring: str
    vault: str
    capsules: tuple[CapsuleStatus, ...]
    notices: tuple[str, ...] = ()
    # Where no credential can come out of the keyring, and `keyring` says why: what to do.
    keyring_hint: str = ""


class CapsuleReady(msgspec.Struct, frozen=True, tag="CapsuleReady"):
    """Where the capsule's socket and programs are, on the host; what to put in it.

    `uids` and `mounts` are all that count: the configured ones and what `OpenCapsule` added.
    """

    seq: int
    name: str
    run_dir: str
    bin_dir: str
    env: dict[str, str]
    kind: str = ""
    uids: tuple[int, ...] = ()
    mounts: tuple[MountView, ...] = ()


class Done(msgspec.Struct, frozen=True, tag="Done"):
    """It was done. `notes` are lines worth showing."""

    seq: int
    notes: tuple[str, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag="Failed"):
    """It was not done, and why."""

    seq: int
    code: str
    reason: str
    hint: str = ""


class RequestChanged(msgspec.Struct, frozen=True, tag="RequestChanged"):
    """A push: this request is new, moved, or ended (its state says which)."""

    request: RequestView


class Output(msgspec.Struct, frozen=True, tag="Output"):
    """A push: redacted bytes that a running command wrote. `stream` is 1 or 2."""

    id: str
    stream: int
    data: bytes


class Goodbye(msgspec.Struct, frozen=True, tag="Goodbye"):
    """A push: the broker ends."""

    reason: str


Reply = Attached | Requests | Decided | StatusReport | CapsuleReady | Done | Failed
Push = RequestChanged | Output | Goodbye

_calls = msgspec.json.Decoder(Call)
_from_broker = msgspec.json.Decoder(Reply | Push)


def decode_call(body: bytes) -> Call:
    """The call in a message from an operator's client.

    Raises: PeerProtocolError; its text never repeats the body, which may hold a passphrase.
    """
    try:
        return _calls.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise PeerProtocolError("broken or unknown operator message") from None


def decode_from_broker(body: bytes) -> Reply | Push:
    """The reply or push in a message from the broker.

    Raises: PeerProtocolError.
    """
    try:
        message: Reply | Push = _from_broker.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerProtocolError("broken or unknown message from the broker") from error
    return message
