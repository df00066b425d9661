"""The mutual challenge: broker and capsule compute the same proofs, and no proof serves twice."""

from __future__ import annotations

import hashlib
import hmac
import posix
import secrets
import socket
import threading
import time
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_broker.bridge import handshake
from jackin_broker.errors import PeerProtocolError
from jackin_broker.frames import message_frame
from jackin_capsule import tcp, wire

TOKENS = st.binary(min_size=32, max_size=32).map(bytes.hex)
NONCES = st.binary(min_size=32, max_size=32)


@given(TOKENS, NONCES, NONCES)
def test_both_sides_make_the_same_proofs(token: str, theirs: bytes, ours: bytes) -> None:
    assert tcp.proof(token, tcp.BROKER, theirs, ours) == handshake.broker_proof(token, theirs, ours)
    caller = tcp.proof(token, tcp.CALLER, theirs, ours)
    assert handshake.is_caller_proof(caller, token, theirs, ours)


@given(st.text(alphabet="0123456789abcdef", max_size=200), NONCES)
def test_the_hand_made_hmac_is_hmac(token: str, nonce: bytes) -> None:
    """Also for a key longer than a block."""
    said = tcp.CONTEXT + tcp.CALLER + nonce + nonce
    expected = hmac.new(token.encode(), said, hashlib.sha256).hexdigest()
    assert tcp.proof(token, tcp.CALLER, nonce, nonce) == expected


def test_a_proof_is_of_one_role_one_token_and_one_pair_of_nonces() -> None:
    token, theirs, ours = secrets.token_hex(32), secrets.token_bytes(32), secrets.token_bytes(32)
    proof = tcp.proof(token, tcp.CALLER, theirs, ours)
    assert handshake.is_caller_proof(proof, token, theirs, ours)
    assert not handshake.is_caller_proof(proof, secrets.token_hex(32), theirs, ours)
    assert not handshake.is_caller_proof(proof, token, ours, theirs)
    assert not handshake.is_caller_proof(proof, token, theirs, secrets.token_bytes(32))
    reflected = handshake.broker_proof(token, theirs, ours)
    assert not handshake.is_caller_proof(reflected, token, theirs, ours)
    for wrong in ("", proof[:-1], proof + "0", proof.upper(), "ü" * 64):
        assert not handshake.is_caller_proof(wrong, token, theirs, ours)


def test_the_shims_messages_are_read_and_the_brokers_fit_the_limit() -> None:
    nonce = secrets.token_hex(32)
    hello = wire.message("Hello", protocol=1, nonce=nonce)
    assert handshake.decode(hello[4:]) == handshake.Hello(1, nonce)
    said = wire.message("Proof", proof=nonce)
    assert handshake.decode(said[4:]) == handshake.Proof(nonce)
    challenge = msgspec.json.encode(handshake.Challenge(nonce, nonce))
    frame = message_frame(challenge, max_bytes=handshake.HANDSHAKE_MESSAGE_MAX_BYTES)
    assert wire.decode(frame[4:])["nonce"] == nonce


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "00" * 31, "00" * 33, "ü" * 32])
def test_a_nonce_is_32_bytes_in_hex(text: str) -> None:
    with pytest.raises(PeerProtocolError):
        handshake.nonce_of(text)


@given(st.binary(max_size=600))
def test_garbage_is_a_peers_error_and_nothing_else(body: bytes) -> None:
    try:
        handshake.decode(body)
    except PeerProtocolError:
        return
    assert body.lstrip().startswith(b"{")


def test_a_listener_that_dribbles_has_the_same_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for all of the challenge: each byte that comes must not begin a new one."""
    monkeypatch.setattr(tcp, "DEADLINE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setitem(posix.environ, b"JACKIN_BROKER_ADDR", b"127.0.0.1:%d" % port)
        monkeypatch.setitem(posix.environ, b"JACKIN_EXEC_TOKEN", b"0" * 64)
        ended = threading.Event()

        def dribble() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                peer.sendall((200).to_bytes(4, "big"))
                for _ in range(150):  # 15 seconds of a message that is never whole
                    if ended.wait(0.1):
                        return
                    peer.sendall(b"{")

        dribbler = threading.Thread(target=dribble)
        dribbler.start()
        began = time.monotonic()
        try:
            with pytest.raises(wire.Fault, match="does not answer like a broker"):
                tcp.connect()
            assert time.monotonic() - began < 10
        finally:
            ended.set()
            dribbler.join()
