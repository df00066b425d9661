"""`explain`: the contract of a capsule, complete and without a value; it changes nothing."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from jackin_broker.config import CapsuleKind
from jackin_broker.contract import VERSION, Contract
from jackin_broker.contract_words import inside_words
from support.broker import Broker
from support.real import short_directory
from support.source_tree import REPOSITORY

SCHEMA: Final = REPOSITORY / "fixtures" / "explain" / f"contract-{VERSION}.schema.json"
_CONFIG: Final = """\
schema = 1
[env]
GIVEN = "{given}"
TOKEN = {{ value = "{token}", on_demand = true, label = "the staging one" }}
KEY = {{ file = "/etc/key", on_demand = true, deliver = "file", redact = "off" }}
[capsules.web]
kind = "bwrap"
uids = [1000]
host_binaries = ["uname", "no-such-program"]
mounts = [{{ capsule = "/workspace", host = "{project}", read_only = true }}]
[capsules.web.binaries.uname]
home = "operator"
network = false
[capsules.plain]
kind = "none"
[[rules]]
action = "allow"
capsule = "web"
argv = ["uname", "*"]
[[rules]]
action = "deny"
capsule = "other*"
argv = ["uname"]
"""


@pytest.fixture
def scene() -> Iterator[tuple[Broker, str]]:
    """A broker that is not started: `explain` needs none."""
    with short_directory() as folder:
        (folder / "project").mkdir()
        token = "tok-" + secrets.token_hex(12)
        text = _CONFIG.format(token=token, given=token[::-1], project=folder / "project")
        yield Broker(folder, text, {}), token


def explained(broker: Broker, *argv: str) -> dict[str, Any]:
    done = broker.run("explain", *argv, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def files_of(broker: Broker) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in broker.folder.rglob("*") if path.is_file()}


def test_it_says_everything_that_the_capsule_gets_and_changes_nothing(
    scene: tuple[Broker, str],
) -> None:
    broker, token = scene
    before = files_of(broker)
    text = broker.run("explain", "web")
    found = explained(broker, "web")
    assert files_of(broker) == before
    assert text.returncode == 0, text.stderr
    for shown in (text.stdout, json.dumps(found)):
        assert token not in shown
        assert token[::-1] not in shown
        for word in ("TOKEN", "KEY_FILE", "GIVEN", "/workspace", "uname", "the staging one"):
            assert word in shown
    assert found["mounts"][0]["read_only"] is True
    assert found["given"] == ["GIVEN"]
    assert [one["delivery"] for one in found["bindings"]] == ["env", "file"]
    assert [one["is_redacted"] for one in found["bindings"]] == [True, False]
    assert [bool(one["path"]) for one in found["binaries"]] == [True, False]
    assert [rule["number"] for rule in found["rules"]] == [1], "the other is not about it"
    assert str(broker.state_dir) in found["hidden_paths"]
    assert any("loopback" in risk for risk in found["risks"])
    assert "namespaces of its own" in found["targets"]["capsule"]


def test_the_json_is_what_the_schema_says() -> None:
    assert json.loads(SCHEMA.read_text()) == msgspec.json.schema(Contract)


def test_what_is_printed_is_a_contract(scene: tuple[Broker, str]) -> None:
    found = explained(scene[0], "web")
    assert found["version"] == VERSION
    again = msgspec.json.encode(msgspec.convert(found, Contract, strict=True))
    assert json.loads(again) == found


def test_without_a_boundary_the_first_risk_says_so(scene: tuple[Broker, str]) -> None:
    found = explained(scene[0], "plain")
    assert "the agent can approve itself" in found["risks"][0]
    assert found["targets"]["capsule"].startswith("not available")


def test_a_launch_is_explained_with_what_it_adds(scene: tuple[Broker, str]) -> None:
    broker, _ = scene
    more = ["--mount", f"/more={broker.state_dir}", "--ro-mount", "/ro=/usr", "--no-network"]
    done = broker.run("launch", "--name", "web", *more, "--explain", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    mounts = {one["capsule"]: one for one in found["mounts"]}
    assert mounts["/more"]["why_refused"].startswith("overlaps ")
    assert mounts["/ro"]["read_only"] is True
    assert found["has_network"] is False
    assert not any("loopback" in risk for risk in found["risks"])


def test_each_line_has_its_label_in_a_column_of_its_own(scene: tuple[Broker, str]) -> None:
    done = scene[0].run("explain", "web")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[1:]
    assert all(line[14:15] == " " and line[15:16].strip() for line in lines if line[2] != " ")
    assert "  network      the host's" in lines


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["explain"], "which capsule"),
        (["explain", "no"], "capsules.no: is not configured"),
        (["launch", "--name", "web", "--runtime", "none", "--explain"], "is bwrap, not none"),
    ],
)
def test_what_cannot_be_explained_says_why(
    scene: tuple[Broker, str], argv: list[str], words: str
) -> None:
    done = scene[0].run(*argv)
    assert done.returncode == 1
    assert words in done.stderr


def test_recent_calls_are_told_with_what_was_ticked(scene: tuple[Broker, str]) -> None:
    """From the record alone; what an agent wrote is shown with its control characters escaped."""
    broker, _ = scene
    broker.state_dir.mkdir(parents=True, exist_ok=True)
    lines = [
        {"event": "asked", "capsule": "web", "argv": ["git"]},
        {
            "event": "decided",
            "capsule": "web",
            "at": "2027-01-01T00:00:00+00:00",
            "argv": ["git", "\u001b[2Jpush"],
            "by": "operator",
            "outcome": "approved",
            "bindings": ["TOKEN"],
        },
        {"event": "refused", "capsule": "web", "argv": ["rm"], "code": "rule_denied"},
        {"event": "decided", "capsule": "other", "argv": ["x"]},
    ]
    broker.audit_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    calls = explained(broker, "web")["recent_calls"]
    assert [call["outcome"] for call in calls] == ["approved", "rule_denied"]
    assert calls[0]["bindings"] == ["TOKEN"]
    assert "\u001b" not in calls[0]["command"]
    assert "operator, with TOKEN" in broker.run("explain", "web").stdout


@pytest.mark.parametrize(
    ("kind", "run_as", "uid", "is_adopted", "words"),
    [
        (CapsuleKind.BWRAP, 0, 1000, False, "namespaces of its own"),
        (CapsuleKind.DOCKER, 1501, 1000, False, "as uid 1501"),
        (CapsuleKind.DOCKER, 0, 1000, False, "the agent can read"),
        (CapsuleKind.PODMAN, 1501, 0, False, "as uid 1501"),
        (CapsuleKind.PODMAN, 0, 0, False, "the agent can read"),
        (CapsuleKind.PODMAN, 0, 1000, False, "namespaces of its own"),
        (CapsuleKind.PODMAN, 1501, 1000, False, "namespaces of its own"),
        (CapsuleKind.PODMAN, 0, 1000, True, "the agent can read"),
        (CapsuleKind.REMOTE, 0, 1000, False, "not available"),
        (CapsuleKind.NONE, 0, 1000, False, "not available"),
    ],
)
def test_what_keeps_a_command_inside_from_the_agent_is_said_of_each_kind(
    kind: CapsuleKind, run_as: int, uid: int, is_adopted: bool, words: str
) -> None:
    assert words in inside_words(kind, run_as=run_as, uid=uid, is_adopted=is_adopted)
