"""A configuration that is wrong keeps the old one in force whole; a right one is taken whole."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from typing import Final

import pytest

from support.broker import Broker, broker

CONFIG: Final = """\
schema = 1
[broker]
keyring = "vault"
[capsules.web]
kind = "none"
host_binaries = ["touch"]
"""
# Whose uid has to pass through to its socket, unless the runtime directory is closed to it.
STRANGER: Final = """\
[capsules.other]
kind = "bwrap"
uids = [4242]
host_binaries = ["touch"]
"""


@pytest.fixture
def running() -> Generator[Broker]:
    with broker(CONFIG) as made:
        yield made


def capsules(running: Broker) -> dict[str, str]:
    """Each capsule's socket, by name."""
    return {one["name"]: one["socket"] for one in running.ask("status")["capsules"]}


def is_answered(path: str) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(path)
        except OSError:
            return False
        return True


def test_a_refused_reload_changes_nothing_and_a_later_one_opens_every_door(
    running: Broker,
) -> None:
    """The refused capsule was known from then on, so that no reload ever opened its door."""
    before = capsules(running)
    os.chmod(running.runtime_dir.parent, 0o700)
    running.write_config(CONFIG.replace('"touch"', '"touch", "cat"') + STRANGER)
    refused = running.run("reload")
    assert refused.returncode == 1
    assert "uid 4242 of the capsule cannot pass through it" in refused.stderr
    assert capsules(running) == before
    assert is_answered(before["web"])
    os.chmod(running.runtime_dir.parent, 0o711)  # noqa: S103 - a stranger passes through
    taken = running.run("reload")
    assert taken.returncode == 0, taken.stderr
    assert "capsule other added" in taken.stdout
    assert "capsule web changed" in taken.stdout  # the refused reload had not taken that either
    after = capsules(running)
    assert sorted(after) == ["other", "web"]
    assert all(is_answered(path) for path in after.values())


def test_a_door_opens_and_closes_with_the_kind_of_its_capsule(running: Broker) -> None:
    """Into a remote machine no socket can be mounted, and it has none."""
    path = capsules(running)["web"]
    for kind, has_door in (("remote", False), ("bwrap", True)):
        running.write_config(CONFIG.replace('"none"', f'"{kind}"'))
        done = running.run("reload")
        assert done.returncode == 0, done.stderr
        assert is_answered(path) is has_door
        assert os.path.exists(path) is has_door
