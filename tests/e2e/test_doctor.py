"""`doctor` says what is wrong and what to do about it, on real faults.

CASES 3f: a keyring that cannot be had was an opaque error (keyring#477, #569, #280).
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker, broker
from support.secret_service import secret_service

CONFIG = """schema = 1
[broker]
keyring = "{keyring}"
[capsules.web]
kind = "none"
host_binaries = ["true"]
"""


@pytest.fixture
def headless() -> Generator[Broker]:
    """A broker without a session bus that is to use the Secret Service."""
    with broker(CONFIG.format(keyring="secret-service")) as running:
        yield running


def findings(made: Broker) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status, and what was found, by the check's name; the worst of each."""
    done = made.run("doctor", "--json")
    found: dict[str, dict[str, Any]] = {}
    for one in json.loads(done.stdout):
        if one["check"] not in found or one["level"] == "wrong":
            found[one["check"]] = one
    return done.returncode, found


def test_without_a_session_bus_the_cause_and_the_way_out_are_named(headless: Broker) -> None:
    status, found = findings(headless)
    assert status == 1
    assert found["keyring"]["level"] == "wrong"
    assert "no D-Bus session bus" in found["keyring"]["message"]
    assert 'keyring = "vault"' in found["keyring"]["todo"]
    text = headless.run("doctor").stdout
    assert "WRONG keyring" in text
    assert 'keyring = "vault"' in text


def test_a_bus_without_a_keyring_is_told_apart_and_one_with_it_is_well() -> None:
    with secret_service() as service:
        env = {"DBUS_SESSION_BUS_ADDRESS": service.env["DBUS_SESSION_BUS_ADDRESS"]}
        with broker(CONFIG.format(keyring="secret-service"), env=env) as running:
            _, found = findings(running)
            assert found["keyring"] == {
                "check": "keyring",
                "level": "ok",
                "message": "secret-service",
                "todo": "",
            }
            service.stop()
            status, found = findings(running)
    assert status == 1
    assert "no Secret Service answers" in found["keyring"]["message"]
    assert 'keyring = "vault"' in found["keyring"]["todo"]


def test_each_fault_has_a_line_with_its_next_step(headless: Broker) -> None:
    healthy = CONFIG.format(keyring="vault")
    headless.write_config(healthy)
    assert headless.run("reload").returncode == 0

    def wrong() -> dict[str, str]:
        _, found = findings(headless)
        return {
            name: f"{one['message']} {one['todo']}"
            for name, one in found.items()
            if one["level"] == "wrong"
        }

    usual = set(wrong()) - {"keyring"}
    headless.write_config(healthy.replace('"true"', '"absent-program"'))
    assert "absent-program" in wrong()["capsule web"]
    headless.write_config(healthy + "nonsense = 1\n")
    assert "capsules.web.nonsense" in wrong()["configuration"]
    headless.write_config(healthy)
    Path(headless.socket_of("web")).unlink()
    assert "stop" in wrong()["capsule web"]
    headless.audit_file.write_bytes(headless.audit_file.read_bytes().replace(b"pid", b"pod", 1))
    assert "audit verify" in wrong()["record"]
    headless.stop()
    assert "serve" in wrong()["broker"]
    headless.audit_file.unlink()
    assert set(wrong()) - {"broker"} == usual
