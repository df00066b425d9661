"""Bridges that cannot be opened: no token outlives what was to end it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jackin_broker.bridge import bridges
from jackin_broker.bridge.bridges import Bridges
from jackin_broker.bridge.tokens import new_key, save_key
from jackin_broker.capsules import Capsule
from jackin_broker.config import Config
from jackin_broker.config.model import CapsuleConfig, CapsuleKind
from jackin_broker.errors import ConfigError


def capsule() -> Capsule:
    config = CapsuleConfig("vm", CapsuleKind.REMOTE, (0,), ("true",), bridge=True)
    return Capsule("vm", config, {}, CapsuleKind.REMOTE, frozenset({0}))


def made(folder: Path) -> tuple[Bridges, Path]:
    """The bridges of a broker, and the file of the capsule's token."""
    file = folder / "bridge" / "vm.json"

    def bridge_file(_: str) -> Path:
        return file

    paths = SimpleNamespace(bridge_file=bridge_file)
    services = SimpleNamespace(config=Config(), audit=None)
    return Bridges(cast("Any", services), cast("Any", paths)), file


def refuse(*_: object) -> None:
    raise ConfigError("the disk is full")


def test_renewing_ends_the_old_token_also_where_no_new_one_can_be(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next reload would open the door to it again."""
    monkeypatch.setattr(bridges, "Bridge", refuse)
    door, file = made(short_tmp)
    save_key(file, new_key())
    with pytest.raises(ConfigError):
        door.renew(capsule())
    assert not file.exists()
    assert door.is_locked("vm")


def test_a_token_that_cannot_be_kept_opens_nothing(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports: list[int] = []
    listen_twice = cast("Any", bridges)._listen_twice

    def listen(*args: Any) -> Any:
        found = listen_twice(*args)
        ports.extend(one.getsockname()[1] for one in found)
        return found

    async def go() -> None:
        door, _ = made(short_tmp)
        with pytest.raises(ConfigError):
            door.renew(capsule())
        assert door.environment("vm") == {}
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=5)
        await door.close()

    monkeypatch.setattr(bridges, "save_key", refuse)
    monkeypatch.setattr(bridges, "_listen_twice", listen)
    asyncio.run(go())
    assert len(ports) == 2
