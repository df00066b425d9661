"""A capsule's door: whatever fails behind it, a caller is told no and never left waiting."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from jackin_broker import doorway, protocol
from jackin_broker.audit import Audit
from jackin_broker.capsules import Capsule
from jackin_broker.config import CapsuleConfig, CapsuleKind, Config
from jackin_broker.doorway import Doorway
from jackin_broker.doorways import listen_at
from jackin_broker.frames import FrameDecoder, MessageFrame

LIMIT_S = 10.0


class Counter:
    """What a door reads of the services: the limits and the record."""

    def __init__(self, audit: Audit) -> None:
        self.config = Config()
        self.audit = audit


def test_a_session_that_cannot_even_begin_is_a_denial_in_words(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise NameError("a fault of ours")

    monkeypatch.setattr(doorway, "Session", broken)

    async def go() -> bytes:
        config = CapsuleConfig("web", CapsuleKind.NONE, (0,))
        uids = frozenset({os.getuid()})
        capsule = Capsule("web", config, {}, CapsuleKind.NONE, uids)
        audit = Audit(short_tmp / "audit.jsonl")
        door = Doorway(cast(Any, Counter(audit)), capsule, listen_at(short_tmp / "broker.sock"))
        with socket.socket(socket.AF_UNIX) as caller:
            caller.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(caller, str(short_tmp / "broker.sock"))
            wire = b""
            async with asyncio.timeout(LIMIT_S):
                while data := await loop.sock_recv(caller, 65536):
                    wire += data
        await door.close()
        audit.close()
        return wire

    (frame,) = FrameDecoder(max_message_bytes=1 << 20).feed(asyncio.run(go()))
    assert isinstance(frame, MessageFrame)
    denied = protocol.decode_to_capsule(frame.body)
    assert isinstance(denied, protocol.ExecDenied)
    assert denied.code == "internal_error"
