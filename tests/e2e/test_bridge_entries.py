"""How a capsule comes by its bridge: launch, links, doctor on both sides, the banner."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.bridge import bridged
from support.broker import PROGRAMS, Broker, broker, program
from support.capsule import launched
from support.real import require_bwrap, short_directory, wait_until

LAUNCHED = """schema = 1
[broker]
no_operator = "wait"
[capsules.web]
kind = "bwrap"
bridge = true
host_binaries = ["true"]
compat = ["construct"]
mounts = [{{ capsule = "/workspaces/app", host = "{work}" }}]
[[rules]]
action = "allow"
argv = ["true"]
"""


def post(env: dict[str, str], token: str) -> str:
    """The HTTP status of a call of `true`."""
    done = subprocess.run(
        [
            *("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}"),
            *("-d", '{"argv":["true"],"cwd":"/"}', "-H", f"X-Construct-Exec-Token: {token}"),
            f"{env['JACKIN_EXEC_URL']}/exec",
        ],
        capture_output=True,
        text=True,
        timeout=20,
    )
    return done.stdout


def found(made: Broker) -> dict[str, list[dict[str, Any]]]:
    """What doctor found, by check."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(made.run("doctor", "--json").stdout):
        rows.setdefault(one["check"], []).append(one)
    return rows


def inside(env: dict[str, str], **more: str) -> dict[str, dict[str, Any]]:
    """What the capsule's own doctor found."""
    done = subprocess.run(
        [str(PROGRAMS / "jackin-capsule"), "doctor", "--json"],
        env={**env, **more},
        capture_output=True,
        timeout=30,
    )
    return {one["name"]: one for one in json.loads(done.stdout)["checks"]}


def test_each_launch_has_a_new_token_and_port_and_its_end_ends_them() -> None:
    require_bwrap()
    with short_directory(0o711) as work, broker(LAUNCHED.format(work=work)) as running:
        seen: list[dict[str, str]] = []
        for _ in range(2):
            with launched(running) as agent:
                env = agent.environ
                seen.append(env)
                assert env["JACKIN_HOST_BINARIES"] == env["CONSTRUCT_HOST_BINARIES"] == "true"
                assert env["CONSTRUCT_HOST_EXEC_URL"] == env["JACKIN_EXEC_URL"]
                assert env["CONSTRUCT_HOST_EXEC_TOKEN"] == env["JACKIN_EXEC_TOKEN"]
                assert post(env, env["JACKIN_EXEC_TOKEN"]) == "200"
            assert post(env, env["JACKIN_EXEC_TOKEN"]) in ("401", "000")
        banner = (running.folder / "launch.err").read_text()
        assert f"{seen[0]['JACKIN_EXEC_URL']}: its bridge; whoever has its token may ask" in banner
        assert seen[0]["JACKIN_EXEC_TOKEN"] not in banner
        assert seen[0]["JACKIN_EXEC_TOKEN"] != seen[1]["JACKIN_EXEC_TOKEN"]
        assert seen[0]["JACKIN_EXEC_URL"] != seen[1]["JACKIN_EXEC_URL"]


def test_a_launched_capsule_keeps_its_token_when_the_broker_is_started_anew() -> None:
    require_bwrap()
    with (
        short_directory(0o711) as work,
        broker(LAUNCHED.format(work=work)) as running,
        launched(running) as agent,
    ):
        env = agent.environ
        running.kill()
        running.start()
        assert post(env, env["JACKIN_EXEC_TOKEN"]) == "200"
        wait_until(
            lambda: agent.run("jackin-exec", "true", cwd="/workspaces/app").status == 0,
            "the launch has the capsule opened again",
        )
        assert post(env, env["JACKIN_EXEC_TOKEN"]) == "200"


def test_the_banner_says_what_a_bridge_opens() -> None:
    with bridged("true") as bridge:
        line = next(one for one in bridge.broker.stderr.splitlines() if "has a bridge" in one)
        assert "whoever has its token may ask for true" in line
        assert "not encrypted" in line
        assert bridge.token not in bridge.broker.stderr


def test_links_in_a_shared_directory_follow_the_configuration() -> None:
    with bridged("true", "pwd") as bridge:
        folder = bridge.work / "bin"
        folder.mkdir()
        done = bridge.broker.ask("links", "sync", str(folder))
        assert done["made"] == ["pwd", "true"]
        assert os.readlink(folder / "pwd") == "/jackin/bin/jackin-exec"
        text = bridge.broker.config_file.read_text().replace('"true", "pwd"', '"true"')
        bridge.broker.write_config(text.split("[capsules.vm.binaries.pwd]")[0])
        (links,) = found(bridge.broker)["links"]
        assert links["level"] == "note"
        assert "no longer listed: pwd" in links["message"]
        assert links["todo"] == f"jackin-broker links sync {os.path.realpath(folder)}"
        assert bridge.broker.ask("links", "sync", str(folder))["removed"] == ["pwd"]
        (links,) = found(bridge.broker)["links"]
        assert links["level"] == "ok"


def test_a_linked_name_in_that_directory_calls_the_host() -> None:
    with bridged("pwd") as bridge:
        folder = bridge.work / "bin"
        folder.mkdir()
        shim = str(PROGRAMS / "jackin-exec")
        bridge.broker.ask("links", "sync", str(folder), "--to", shim)
        done = subprocess.run(
            ["pwd"],
            env=bridge.environ(PATH=f"{folder}:/usr/bin:/bin"),
            cwd=bridge.work,
            capture_output=True,
            executable=str(folder / "pwd"),
            timeout=20,
        )
        assert done.stdout.decode().strip() == str(bridge.work)


def test_doctor_says_where_binaries_are_listed_and_there_is_no_shim() -> None:
    text = 'schema = 1\n[capsules.web]\nkind = "bwrap"\nhost_binaries = ["true"]\n'
    with broker(text) as running:
        rows = [one for one in found(running)["capsule web"] if "no shim" in one["message"]]
        assert len(rows) == 1
        assert "127" in rows[0]["message"]
        assert "links sync" in rows[0]["todo"]
        assert running.run("links", "sync").returncode == 0
        assert not any("no shim" in one["message"] for one in found(running)["capsule web"])


def test_doctor_knows_the_bridge_and_says_when_its_token_was_revoked() -> None:
    with bridged("true") as bridge:
        (row,) = found(bridge.broker)["bridge vm"]
        assert row["level"] == "ok"
        assert bridge.url in row["message"]
        (terminals,) = found(bridge.broker)["terminals"]  # all is well, and it reads like that
        assert terminals["level"] == "ok"
        assert terminals["message"].startswith("a command has one where its caller has")
        bridge.broker.run("capsule", "revoke")
        (row,) = found(bridge.broker)["bridge vm"]
        assert "revoked" in row["message"]
        assert row["todo"].endswith("jackin-broker capsule env vm")


def test_the_capsules_doctor_follows_the_bridge_to_its_end() -> None:
    with bridged("true") as bridge:
        checks = inside(bridge.environ())
        assert checks["bridge"]["state"] == checks["answer"]["state"] == "ok"
        wrong = inside(bridge.environ(), JACKIN_EXEC_TOKEN="0" * 64)["bridge"]
        assert wrong["state"] == "wrong"
        assert "of another session" in wrong["next"]
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        gone = inside(bridge.environ(), JACKIN_BROKER_ADDR=f"127.0.0.1:{port}")["bridge"]
        assert "no broker listens" in gone["found"]
        assert "capsule env" in gone["next"]
        assert "-t" in checks["terminal"]["next"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"JACKIN_BROKER_ADDR": ""}, "only JACKIN_EXEC_URL is set"),
        ({"JACKIN_BROKER_ADDR": "nowhere"}, "is no HOST:PORT"),
        ({"JACKIN_BROKER_ADDR": "no-such-host.invalid:5"}, "is not known here"),
        ({"JACKIN_EXEC_TOKEN": ""}, "JACKIN_EXEC_TOKEN is not"),
    ],
)
def test_each_way_in_which_the_bridge_cannot_be_used_has_words_of_its_own(
    more: dict[str, str], words: str
) -> None:
    env = {
        "JACKIN_EXEC_URL": "http://127.0.0.1:9",
        "JACKIN_BROKER_ADDR": "127.0.0.1:9",
        "JACKIN_EXEC_TOKEN": "0" * 64,
        **more,
    }
    done = subprocess.run(
        [program("jackin-exec"), "true"], env=env, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 126
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert words in lines[0]
    assert lines[1].startswith("jackin-exec: hint: ")


def test_a_socket_that_does_not_work_is_passed_over_for_the_bridge() -> None:
    """CASES 3f, docker/for-mac#483: no socket, one that is dead, one that may not be used."""
    require_bwrap()
    with bridged("true") as bridge, short_directory() as folder:
        for make in ("", "dead", "file"):
            place = folder / "broker.sock"
            place.unlink(missing_ok=True)
            if make == "dead":
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.bind(str(place))
            elif make:
                place.write_text("")
            done = subprocess.run(
                [
                    *("bwrap", "--dev-bind", "/", "/", "--tmpfs", "/jackin"),
                    *("--bind", str(folder), "/jackin/run", "--chdir", str(bridge.work)),
                    *(str(PROGRAMS / "jackin-exec"), "true"),
                ],
                env=bridge.environ(),
                capture_output=True,
                timeout=30,
            )
            assert (done.returncode, done.stderr) == (0, b""), make


def test_a_remote_capsule_has_no_socket_and_launch_says_what_to_do_instead() -> None:
    with bridged("true") as bridge:
        done = bridge.broker.run("launch", "--", "true")
        assert done.returncode != 0
        assert "remote" in done.stderr
        sockets = Path(bridge.broker.runtime_dir, "capsules").rglob("*.sock")
        assert list(sockets) == []
