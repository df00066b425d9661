"""The mutual challenge that opens frames over TCP: each side proves the token, neither sends it.

The caller says `Hello` with a nonce, the broker answers `Challenge` with its own nonce and its
proof, the caller answers `Proof`. A proof is an HMAC-SHA256 under the token over the prover's role
and both nonces: of another role, another token or an older connection it is worth nothing.
Pure: nonces are passed in. What follows the challenge is neither encrypted nor signed.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

from ..errors import PeerProtocolError

# A nonce that is never met again: 256 random bits.
NONCE_BYTES: Final = 32
# A challenge with its two hex texts takes 180; before the proof nobody may make us hold more.
HANDSHAKE_MESSAGE_MAX_BYTES: Final = 512
# What the labels begin with, so that no other use of the token can make the same bytes.
_CONTEXT: Final = b"jackin-exec frames 1 "
_BROKER: Final = b"broker\0"
_CALLER: Final = b"caller\0"


class Hello(msgspec.Struct, frozen=True, tag="Hello"):
    """The caller's first message. `nonce` is hex."""

    protocol: int
    nonce: str


class Challenge(msgspec.Struct, frozen=True, tag="Challenge"):
    """The broker's nonce and its proof, both hex."""

    nonce: str
    proof: str


class Proof(msgspec.Struct, frozen=True, tag="Proof"):
    """The caller's proof, hex."""

    proof: str


_messages: Final = msgspec.json.Decoder(Hello | Proof)


def decode(body: bytes) -> Hello | Proof:
    """The message in a caller's frame.

    Raises: PeerProtocolError.
    """
    try:
        return _messages.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PeerProtocolError("broken handshake") from None


def nonce_of(text: str) -> bytes:
    """The bytes of a hex nonce.

    Raises: PeerProtocolError.
    """
    try:
        nonce = bytes.fromhex(text)
    except ValueError:
        nonce = b""
    if len(nonce) != NONCE_BYTES:
        raise PeerProtocolError("a nonce is 32 bytes in hex")
    return nonce


def broker_proof(token: str, caller_nonce: bytes, broker_nonce: bytes) -> str:
    """What only a broker that has the token can answer to these nonces."""
    return _proof(token, _BROKER, caller_nonce, broker_nonce)


def is_caller_proof(candidate: str, token: str, caller_nonce: bytes, broker_nonce: bytes) -> bool:
    """Whether only a caller that has the token can have made it; in constant time."""
    expected = _proof(token, _CALLER, caller_nonce, broker_nonce)
    return hmac.compare_digest(expected.encode(), candidate.encode("utf-8", "replace"))


def _proof(token: str, role: bytes, caller_nonce: bytes, broker_nonce: bytes) -> str:
    said = _CONTEXT + role + caller_nonce + broker_nonce
    return hmac.new(token.encode(), said, hashlib.sha256).hexdigest()
