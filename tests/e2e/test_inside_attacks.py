"""The agent as an attacker of a command that runs beside it with a credential (DESIGN §4, §9).

Every attempt is made by a real process in a real capsule while a command with a value runs there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.inside import Inside, inside
from support.real import require_program, wait_until

ATTACKS = Path(__file__).parents[1] / "support" / "attacks_inside.py"


@pytest.fixture(scope="module")
def scene() -> Iterator[Inside]:
    with inside() as made:
        yield made


@pytest.fixture(scope="module")
def found(scene: Inside) -> Iterator[dict[str, Any]]:
    """What the attacks came to, while a command ran."""
    require_program("unshare", package="util-linux")
    (scene.project / "attacks.py").write_text(ATTACKS.read_text())
    (scene.project / "work.sh").write_text("echo up >up\ncat\necho $TOKEN\n")
    running = scene.agent.start("/bin/sh", "-c", "mkfifo go; jackin-exec sh work.sh <go")
    wait_until((scene.project / "go").exists, "the agent has made its pipe")
    with (scene.project / "go").open("w"):
        wait_until((scene.project / "up").exists, "the command runs")
        done = scene.agent.run("/usr/bin/python3", "-I", "attacks.py")
        assert done.status == 0, done.stderr
        yield json.loads(done.stdout)
    assert running.wait().stdout == b"[redacted:TOKEN]\n", "the command was not disturbed"


def test_nothing_that_can_be_read_holds_the_value(scene: Inside, found: dict[str, Any]) -> None:
    assert "JACKIN_EXEC_BINDINGS" in found["read"], "the attack reads what it may"
    assert scene.token not in found["read"]
    assert scene.token not in found["read_nested"]


def test_no_process_beyond_the_agents_own_can_be_seen_or_traced(found: dict[str, Any]) -> None:
    """Its own first process keeps its memory to itself, and init has no number here."""
    assert 1 not in found["traced"]
    assert 1 not in found["memory"]
    highest = max(found["own"])
    assert highest < 100, "the numbers are of a namespace that is the agent's alone"
    assert all(pid <= highest + 10 for pid in found["traced"] + found["memory"])


def test_no_capability_is_left_and_none_is_gained(found: dict[str, Any]) -> None:
    assert found["capabilities"] == []
    assert found["has_mounted"] is False


def test_what_lies_under_its_proc_stays_covered(found: dict[str, Any]) -> None:
    """Also in a user namespace of its own, where it may mount."""
    assert found["uncovered"] == ""


def test_no_namespace_of_the_first_process_can_be_joined(found: dict[str, Any]) -> None:
    assert found["entered"] == []


def test_whoever_claims_to_be_init_is_refused_and_on_record(
    scene: Inside, found: dict[str, Any]
) -> None:
    """Also as process 1 of a namespace of its own."""
    for answer in found["claims"]:
        assert json.loads(answer)["type"] == "Error", answer
    refused = [line for line in scene.broker.audit() if line["event"] == "refused"]
    assert len(refused) >= 1
    assert {line["code"] for line in refused} == {"bad_request"}


def test_an_agent_that_claims_to_be_init_while_the_broker_restarts_gets_nothing() -> None:
    """Between the broker's start and init's return: no moment in which another could be it."""
    with inside() as scene:
        (scene.project / "claim.py").write_text(_CLAIM_FOR_EVER)
        claiming = scene.agent.start("/usr/bin/python3", "-I", "claim.py")
        wait_until((scene.project / "claiming").exists, "the agent claims")
        scene.broker.stop()
        scene.broker.start()
        wait_until(lambda: scene.broker.ask("status")["capsules"][0]["init_pid"], "known again")
        done = scene.agent.run("jackin-exec", "sh", "-c", "echo $TOKEN")
        assert done.stdout == b"[redacted:TOKEN]\n"
        claiming.kill()
        claiming.wait()
        answers = (scene.project / "answers").read_text().split("\n")
        assert len(answers) > 1
        assert not any("Spawn" in answer for answer in answers)


_CLAIM_FOR_EVER = """\
import socket, time
open("claiming", "w").close()
body = b'{"type":"InitReady","protocol":1,"isolation":"namespaces"}'
with open("answers", "a") as answers:
    while True:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(5)
        try:
            sock.connect("/jackin/run/broker.sock")
            sock.sendall(len(body).to_bytes(4, "big") + body)
            print(sock.recv(4096)[4:], file=answers, flush=True)
        except OSError:
            time.sleep(0.001)
        sock.close()
"""
