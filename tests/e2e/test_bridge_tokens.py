"""The bridge's token: whose it is, how long it lives, who may see it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.bridge import Bridged, bridged, status_and_body
from support.broker import PROGRAMS, broker
from support.real import short_directory, wait_until


@pytest.fixture
def bridge() -> Iterator[Bridged]:
    with bridged("true", "pwd") as made:
        yield made


def key_file(bridge: Bridged) -> Path:
    return bridge.broker.runtime_dir / "bridge" / "vm.json"


def status_of(bridge: Bridged, *options: str, token: str | None = None) -> int:
    return status_and_body(bridge.post({"argv": ["true"]}, *options, token=token))[0]


def test_it_is_in_a_file_of_the_operators_alone(bridge: Bridged) -> None:
    found = key_file(bridge).stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_uid == os.geteuid()
    assert stat.S_IMODE(key_file(bridge).parent.stat().st_mode) == 0o700
    assert bridge.token in key_file(bridge).read_text()


def test_a_capsule_that_runs_on_keeps_it_over_a_brokers_restart(bridge: Bridged) -> None:
    before = dict(bridge.env)
    bridge.broker.kill()
    assert bridge.frames("true").returncode == 126
    bridge.broker.start()
    assert bridge.frames("true").returncode == 0
    assert status_of(bridge) == 200
    bridge.refresh()
    assert bridge.env == before


def test_a_new_one_takes_the_old_ones_place_and_the_old_opens_nothing(bridge: Bridged) -> None:
    old, url = bridge.token, bridge.url
    bridge.env = dict(bridge.broker.ask("capsule", "env", "vm", "--renew")["env"])
    assert bridge.token != old
    assert bridge.url != url
    assert status_of(bridge) == 200
    assert status_of(bridge, token=old) == 401


def test_what_runs_outlives_its_token_and_ten_new_ones_hold_nothing() -> None:
    with bridged("sleep", "true") as bridge:
        pid = bridge.broker.pid
        env = bridge.environ()
        with subprocess.Popen([PROGRAMS / "jackin-exec", "sleep", "600"], env=env) as shim:
            wait_until(lambda: bridge.broker.ask("status")["running"] == 1, "it runs")
            held = len(os.listdir(f"/proc/{pid}/fd"))
            for _ in range(10):
                bridge.broker.run("capsule", "env", "vm", "--renew")
            assert shim.poll() is None
            assert bridge.broker.ask("status")["running"] == 1
            wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= held, "nothing piles up")
            shim.kill()
        bridge.refresh()
        assert status_of(bridge) == 200


def test_one_that_was_revoked_is_401_on_http_and_refused_for_frames(bridge: Bridged) -> None:
    assert bridge.broker.run("capsule", "revoke", "vm").returncode == 0
    assert status_of(bridge) == 401
    done = bridge.frames("true")
    assert done.returncode == 126
    assert b"wrong or no longer valid" in done.stderr
    assert not key_file(bridge).exists()
    assert "revoked" in bridge.broker.ask("status")["capsules"][0]["note"]
    bridge.refresh()
    assert status_of(bridge) == 200


def test_a_revoked_one_stays_so_over_a_restart(bridge: Bridged) -> None:
    old = bridge.token
    bridge.broker.run("capsule", "revoke", "vm")
    bridge.broker.kill()
    bridge.broker.start()
    bridge.refresh()
    assert status_of(bridge, token=old) == 401


def test_status_has_the_capsule_and_only_on_demand_its_token(bridge: Bridged) -> None:
    (capsule,) = bridge.broker.ask("status")["capsules"]
    assert {"name", "kind", "socket", "peers", "bridge"} <= set(capsule)
    assert (capsule["name"], capsule["kind"], capsule["socket"]) == ("vm", "remote", "")
    assert capsule["peers"] == []
    address = bridge.env["JACKIN_BROKER_ADDR"]
    assert capsule["bridge"] == {"url": bridge.url, "address": address}
    assert bridge.token not in json.dumps(bridge.broker.ask("status"))
    (shown,) = bridge.broker.ask("status", "--show-token")["capsules"]
    assert shown["bridge"] == {"url": bridge.url, "address": address, "token": bridge.token}
    assert bridge.token in bridge.broker.run("status", "--show-token").stdout


def test_it_is_in_no_log_and_not_in_the_record(bridge: Bridged) -> None:
    bridge.frames("true")
    status_of(bridge)
    status_of(bridge, token="0" * 64)
    for path in bridge.broker.state_dir.rglob("*"):
        if path.is_file():
            assert bridge.token not in path.read_text(errors="replace"), path
    assert bridge.token not in bridge.broker.stderr
    assert bridge.token not in Path(f"/proc/{bridge.broker.pid}/cmdline").read_text()


def test_two_capsules_tokens_do_not_open_each_others_doors() -> None:
    second = '[capsules.other]\nkind = "remote"\nhost_binaries = ["true"]\n'
    with bridged("true", limits=second) as bridge:
        other = bridge.broker.ask("capsule", "env", "other")["env"]
        assert status_of(bridge, token=other["JACKIN_EXEC_TOKEN"]) == 401
        done = bridge.frames("true", JACKIN_EXEC_TOKEN=other["JACKIN_EXEC_TOKEN"])
        assert done.returncode == 126


def test_no_binaries_no_bridge() -> None:
    with broker('schema = 1\n[capsules.vm]\nkind = "remote"\n') as running:
        assert running.ask("status")["capsules"][0]["bridge"] is None
        done = running.run("capsule", "env", "vm")
        assert "JACKIN_EXEC_URL" not in done.stdout
        assert "has no bridge" in done.stderr


def test_a_reload_opens_and_closes_it_as_the_file_says(bridge: Bridged) -> None:
    text = bridge.broker.config_file.read_text()
    bridge.broker.write_config(text.replace('kind = "remote"', 'kind = "remote"\nbridge = false'))
    assert bridge.broker.run("reload").returncode == 0
    assert bridge.broker.ask("status")["capsules"][0]["bridge"] is None
    assert bridge.frames("true").returncode == 126
    bridge.broker.write_config(text)
    assert bridge.broker.run("reload").returncode == 0
    assert bridge.frames("true").returncode == 0


def test_a_written_port_is_used_and_frames_have_the_next() -> None:
    with short_directory() as folder, bridged("true", more="bridge_port = 0\n") as probe:
        port = urlsplit(probe.url).port
        assert port is not None
        probe.broker.stop()
        text = probe.broker.config_file.read_text().replace(
            "bridge_port = 0", f"bridge_port = {port}"
        )
        assert folder.is_dir()
        probe.broker.write_config(text)
        probe.broker.start()
        probe.refresh()
        assert probe.url == f"http://127.0.0.1:{port}"
        assert probe.env["JACKIN_BROKER_ADDR"] == f"127.0.0.1:{port + 1}"


def test_it_listens_on_loopback_and_everywhere_only_where_that_is_written() -> None:
    with bridged("true") as bridge:
        assert urlsplit(bridge.url).hostname == "127.0.0.1"
    more = 'bridge_bind = "0.0.0.0"\nbridge_host = "127.0.0.1"\n'
    with bridged("true", more=more) as bridge:
        assert bridge.frames("true").returncode == 0
        checked = bridge.broker.run("config", "check")
        assert "lets every network of this machine try a token" in checked.stdout + checked.stderr
        assert "bridge at 0.0.0.0" in bridge.broker.run("status").stdout


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", ""])
def test_another_machines_name_is_refused(bridge: Bridged, host: str) -> None:
    """A page in the operator's browser that rebinds its own name to this address."""
    header = f"Host: {host}" if host else "Host;"
    status, body = status_and_body(bridge.post({"argv": ["true"]}, "-H", header))
    assert status == 421
    assert b"vm" not in body


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "host.docker.internal:9", "[::1]:7"])
def test_our_own_names_are_taken(bridge: Bridged, host: str) -> None:
    assert status_of(bridge, "-H", f"Host: {host}") == 200


def test_there_is_no_cors(bridge: Bridged) -> None:
    origin = ("-H", "Origin: http://evil.example", "-i")
    answer = bridge.post({"argv": ["true"]}, *origin).stdout.lower()
    assert b"access-control" not in answer
    asked = bridge.post({}, "-X", "OPTIONS", "-i", *origin).stdout.lower()
    assert b"access-control" not in asked
    assert asked.endswith(b"405")


def test_the_variables_come_in_the_forms_that_entries_read(bridge: Bridged) -> None:
    lines = bridge.broker.run("capsule", "env", "vm").stdout.splitlines()
    assert dict(line.split("=", 1) for line in lines) == bridge.env
    shell = bridge.broker.run("capsule", "env", "vm", "--shell").stdout
    assert f"export JACKIN_EXEC_TOKEN={bridge.token}\n" in shell
    assert bridge.broker.run("capsule", "env").stdout.splitlines() == lines
    assert bridge.broker.run("capsule", "env", "nobody").returncode == 1


def test_values_for_every_agent_come_along_when_they_are_asked_for() -> None:
    entry = '[env]\nPUBLIC = "https://api.example.com"\nLENT = { value = "x", on_demand = true }\n'
    with bridged("true", limits=entry) as bridge:
        assert "PUBLIC" not in bridge.env
        env = bridge.broker.ask("capsule", "env", "--values")["env"]
        assert env["PUBLIC"] == "https://api.example.com"
        assert env["JACKIN_EXEC_BINDINGS"] == "LENT"
        assert "LENT" not in env


def test_status_shows_who_is_in_a_capsule_now() -> None:
    with bridged("sleep") as bridge:
        command = [str(PROGRAMS / "jackin-exec"), "sleep", "600"]
        with subprocess.Popen(command, env=bridge.environ(), cwd=bridge.work) as shim:
            wait_until(
                lambda: bool(bridge.broker.ask("status")["capsules"][0]["peers"]), "it is in"
            )
            (peer,) = bridge.broker.ask("status")["capsules"][0]["peers"]
            assert peer == {"pid": 0, "uid": -1, "name": "bridge 127.0.0.1"}
            shim.kill()
        wait_until(lambda: not bridge.broker.ask("status")["capsules"][0]["peers"], "it is out")


def test_a_bridge_that_cannot_be_opened_is_said_and_the_rest_works() -> None:
    more = 'bridge_bind = "198.51.100.77"\n'
    with bridged("true", more=more) as bridge:
        status = bridge.broker.ask("status")
        assert status["capsules"][0]["bridge"] is None
        assert any("cannot listen on 198.51.100.77" in line for line in status["notices"])
        assert any("cannot listen" in line for line in bridge.broker.stderr.splitlines())
        doctor = json.loads(bridge.broker.run("doctor", "--json").stdout)
        assert any(one["check"] == "bridge vm" and one["level"] == "wrong" for one in doctor)


def test_a_file_that_is_not_believed_opens_nothing(bridge: Bridged) -> None:
    bridge.broker.stop()
    key_file(bridge).chmod(0o644)
    bridge.broker.start()
    assert bridge.broker.ask("status")["capsules"][0]["bridge"] is None
    assert any("others can read it" in line for line in bridge.broker.ask("status")["notices"])
