"""What picker, command line and broker say to each other on operator.sock.

The same frames as on broker.sock, messages only. Every call carries a `seq` that its reply
repeats; pushes to an attached client carry none. A call may hold a value (a vault's
passphrase), no reply or push has a field for one. The calls are in `operator_calls.py`, what is
shown is in `operator_views.py`.
Pure: no I/O.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .errors import PeerProtocolError
from .operator_calls import Attach as Attach
from .operator_calls import Call as Call
from .operator_calls import CapsuleEnv as CapsuleEnv
from .operator_calls import CheckCredential as CheckCredential
from .operator_calls import Decide as Decide
from .operator_calls import DenyAll as DenyAll
from .operator_calls import GetStatus as GetStatus
from .operator_calls import KillRequest as KillRequest
from .operator_calls import ListCredentials as ListCredentials
from .operator_calls import ListGrants as ListGrants
from .operator_calls import ListHistory as ListHistory
from .operator_calls import ListRequests as ListRequests
from .operator_calls import ListRules as ListRules
from .operator_calls import OpenCapsule as OpenCapsule
from .operator_calls import RecordInit as RecordInit
from .operator_calls import Reload as Reload
from .operator_calls import RevokeAll as RevokeAll
from .operator_calls import RevokeGrant as RevokeGrant
from .operator_calls import RevokeToken as RevokeToken
from .operator_calls import Stop as Stop
from .operator_calls import UnlockVault as UnlockVault
from .operator_calls import Watch as Watch
from .operator_views import FINAL_STATES as FINAL_STATES
from .operator_views import ONCE as ONCE
from .operator_views import BindingView as BindingView
from .operator_views import BridgeView as BridgeView
from .operator_views import CapsuleStatus as CapsuleStatus
from .operator_views import CredentialView as CredentialView
from .operator_views import FileOperandView as FileOperandView
from .operator_views import GrantKind as GrantKind
from .operator_views import GrantOffer as GrantOffer
from .operator_views import GrantTerm as GrantTerm
from .operator_views import GrantView as GrantView
from .operator_views import MountView as MountView
from .operator_views import PeerView as PeerView
from .operator_views import ProcessView as ProcessView
from .operator_views import RequestState as RequestState
from .operator_views import RequestView as RequestView
from .operator_views import RuleView as RuleView
from .operator_views import StdinView as StdinView
from .operator_views import still_of as still_of
from .operator_views import stored_text as stored_text
from .operator_views import view_digest as view_digest

OPERATOR_PROTOCOL_VERSION: Final = 1
# A queue of 1,000 prompts with long arguments; the peer is the operator's own uid.
OPERATOR_MESSAGE_MAX_BYTES: Final = 64 * 1024 * 1024
# What the prompt shows of a closed stdin (DESIGN §7; issue "stdin seen": up to 64 KiB).
STDIN_PREVIEW_MAX_BYTES: Final = 64 * 1024


# --- replies and pushes -----------------------------------------------------------------


class Attached(msgspec.Struct, frozen=True, tag="Attached"):
    """Attached; `requests` is the desk now, oldest first."""

    seq: int
    broker_version: str
    requests: tuple[RequestView, ...]
    notices: tuple[str, ...] = ()


class Requests(msgspec.Struct, frozen=True, tag="Requests"):
    """The reply to `ListRequests`, oldest first, and to `ListHistory`, newest first."""

    seq: int
    requests: tuple[RequestView, ...]


class Decided(msgspec.Struct, frozen=True, tag="Decided"):
    """Whether the decision was taken; if not, `code` and `reason` say why.

    `grant_id` is the grant that came of it. Accepted with a `code`: the request was decided, and
    what should have been stored with it was not; `reason` says why.
    """

    seq: int
    id: str
    accepted: bool
    code: str = ""
    reason: str = ""
    grant_id: str = ""


class Grants(msgspec.Struct, frozen=True, tag="Grants"):
    """The reply to `ListGrants`, oldest first."""

    seq: int
    grants: tuple[GrantView, ...]


class Rules(msgspec.Struct, frozen=True, tag="Rules"):
    """The reply to `ListRules`, in the configuration's order."""

    seq: int
    rules: tuple[RuleView, ...]


class Credentials(msgspec.Struct, frozen=True, tag="Credentials"):
    """The reply to `ListCredentials`, in the configuration's order."""

    seq: int
    rows: tuple[CredentialView, ...]


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
    # Nobody has to be attached: a popup would be seen.
    can_pop_up: bool = False


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
    image: str = ""
    run_as: int = 0


class CapsuleVariables(msgspec.Struct, frozen=True, tag="CapsuleVariables"):
    """What to put into a capsule's environment; all of it may be read by the agent."""

    seq: int
    name: str
    env: dict[str, str]

    def __repr__(self) -> str:
        return f"CapsuleVariables(seq={self.seq}, name={self.name!r}, env={sorted(self.env)})"


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
    """A push: redacted bytes that a running command wrote. `stream` is 1 or 2.

    `skipped_bytes` were left out before these: written before anyone watched, or faster than
    this client reads.
    """

    id: str
    stream: int
    data: bytes
    skipped_bytes: int = 0


class Goodbye(msgspec.Struct, frozen=True, tag="Goodbye"):
    """A push: the broker ends."""

    reason: str


Reply = (
    Attached
    | Requests
    | Decided
    | Grants
    | Rules
    | Credentials
    | StatusReport
    | CapsuleReady
    | CapsuleVariables
    | Done
    | Failed
)
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
