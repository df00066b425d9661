"""Every error of the broker, in one tree.

Expected outcomes are `Refusal`s with a stable code; what a peer got wrong is a
`PeerProtocolError`; what we got wrong is a `LocalProtocolError`. Foreign exceptions are
translated at the edge with `from`; one that leaks counts as a bug. No message holds a value.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class DenialCode(str, Enum):
    """Why nothing was run. Stable: agents and scripts branch on these words (DESIGN §5)."""

    OPERATOR_DENIED = "operator_denied"
    EXPIRED = "expired"
    NO_OPERATOR = "no_operator"
    RULE_DENIED = "rule_denied"
    NOT_ALLOWED = "not_allowed"
    UNKNOWN_BINDING = "unknown_binding"
    SOURCE_FAILED = "source_failed"
    SOURCE_LOCKED = "source_locked"
    UNREDACTABLE = "unredactable"
    CHANGED_SINCE_APPROVAL = "changed_since_approval"
    WORKDIR_REJECTED = "workdir_rejected"
    TOO_MANY_PENDING = "too_many_pending"
    CALLER_GONE = "caller_gone"
    BAD_REQUEST = "bad_request"
    PEER_REFUSED = "peer_refused"
    AUDIT_FAILED = "audit_failed"
    SPAWN_FAILED = "spawn_failed"
    GUESSING = "guessing"
    BROKER_STOPPING = "broker_stopping"
    INTERNAL_ERROR = "internal_error"


class JackinError(Exception):
    """The root of the tree. `hint` is the next thing to do, or empty."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint: Final = hint


class ProtocolError(JackinError):
    """The wire was broken."""


class LocalProtocolError(ProtocolError):
    """We tried to send what the protocol does not allow: our bug."""


class PeerProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow."""


class Refusal(JackinError):
    """An expected outcome before the command starts: nothing was run.

    `code` is what a machine reads, the message what a person reads.
    """

    def __init__(self, code: DenialCode, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code: Final = code


class SourceFault(str, Enum):
    """What kept a source from giving its value."""

    UNAVAILABLE = "unavailable"
    LOCKED = "locked"
    MISSING = "missing"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


class SourceError(JackinError):
    """A source gave no value. The message names the binding and the cause, never a value."""

    def __init__(self, fault: SourceFault, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.fault: Final = fault

    @property
    def code(self) -> DenialCode:
        """The denial that this becomes for the caller."""
        if self.fault is SourceFault.LOCKED:
            return DenialCode.SOURCE_LOCKED
        return DenialCode.SOURCE_FAILED


class ConfigError(JackinError):
    """The configuration is wrong. The message begins with the key's path."""


class BrokerUnreachable(JackinError):
    """No broker answers at the socket."""
