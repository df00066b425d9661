"""The keyring fixture is real: it keeps a value, forgets none, and can be locked."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from support.secret_service import SecretService, secret_service

_CLIENT = """
import sys
from keyring.backends.SecretService import Keyring
ring = Keyring()
if sys.argv[1] == "set":
    ring.set_password("service", "name", sys.stdin.read())
else:
    sys.stdout.write(ring.get_password("service", "name"))
"""


@pytest.fixture(scope="module")
def service() -> Iterator[SecretService]:
    with secret_service() as running:
        yield running


def ask(
    service: SecretService, verb: str, value: str = "", limit_s: float = 20
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CLIENT, verb],
        env=service.env,
        input=value,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )


def test_a_value_outlives_the_daemon_and_a_locked_collection_gives_none(
    service: SecretService,
) -> None:
    value = "tok" + secrets.token_hex(12)
    assert ask(service, "set", value).returncode == 0
    assert ask(service, "get").stdout == value
    service.lock()
    locked = ask(service, "get")
    assert locked.returncode != 0
    assert "KeyringLocked" in locked.stderr
    assert value not in locked.stderr
    service.unlock()
    assert ask(service, "get").stdout == value


def test_an_unanswered_prompt_blocks_a_client_for_ever(service: SecretService) -> None:
    assert ask(service, "set", "tok" + secrets.token_hex(12)).returncode == 0
    service.lock()
    service.hang_prompts()
    started = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        ask(service, "get", limit_s=2)
    assert time.monotonic() - started < 10
    service.unlock()
