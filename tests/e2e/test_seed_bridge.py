"""A client that was written from the seed's text alone drives the bridge: bash, curl, jq, base64.

`support/seed_client.sh` knows nothing of this project; each test here is a sentence of the seed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.bridge import SEED_CLIENT, Bridged, bridged, status_and_body
from support.real import START_LIMIT_S, is_running, wait_until

BINARIES = ("sh", "cat", "printf", "head", "sleep", "pwd", "env", "dd")


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridged]:
    with bridged(*BINARIES, asked=["tee"]) as made:
        yield made


def test_arguments_arrive_as_they_were_with_quotes_and_line_breaks(bridge: Bridged) -> None:
    argv = ["a b", 'say "it"', "it's", "two\nlines", "$HOME `id` \\", "", "ünï → ✓", "-n"]
    done = bridge.seed("printf", "%s\\0", *argv)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().split("\0")[:-1] == argv


def test_stdin_goes_in_and_the_two_outputs_stay_apart(bridge: Bridged) -> None:
    done = bridge.seed("sh", "-c", "cat; echo err >&2; echo out", stdin=b"\0in\xff\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"\0in\xff\nout\n", b"err\n", 0)


def test_an_exit_status_is_the_commands_own(bridge: Bridged) -> None:
    assert bridge.seed("sh", "-c", "exit 7").returncode == 7
    assert bridge.seed("sh", "-c", "kill -TERM $$").returncode == 143


def test_a_carriage_return_progress_bar_arrives_step_by_step(bridge: Bridged) -> None:
    script = "printf '10%%\\r'; sleep 0.3; printf '90%%\\r'; sleep 0.3; printf '100%%\\n'"
    status, body = status_and_body(bridge.post({"argv": ["sh", "-c", script]}))
    frames = [json.loads(line) for line in body.splitlines() if line]
    data = [base64.b64decode(one["data"]) for one in frames if one["type"] == "stdout"]
    assert status == 200
    assert data == [b"10%\r", b"90%\r", b"100%\n"]
    assert bridge.seed("sh", "-c", script).stdout == b"10%\r90%\r100%\n"


def test_large_binary_output_is_the_same_to_the_bit(bridge: Bridged) -> None:
    size = 1 << 20
    source = bridge.work / "random"
    source.write_bytes(os.urandom(size))
    done = bridge.seed("cat", "random")
    assert len(done.stdout) == size
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(source.read_bytes()).digest()


def test_stdin_larger_than_what_is_shown_arrives_whole(bridge: Bridged) -> None:
    data = os.urandom(3 << 20)
    body = {"argv": ["cat"], "stdin": base64.b64encode(data).decode()}
    _, answer = status_and_body(bridge.post(body))
    frames = [json.loads(line) for line in answer.splitlines()]
    assert b"".join(base64.b64decode(one["data"]) for one in frames[:-1]) == data


def test_every_frame_is_compact_and_begins_with_its_type(bridge: Bridged) -> None:
    _, body = status_and_body(bridge.post({"argv": ["sh", "-c", "echo o; echo e >&2; exit 3"]}))
    lines = body.splitlines()
    assert sorted(lines[:-1]) == [
        b'{"type":"stderr","data":"ZQo="}',
        b'{"type":"stdout","data":"bwo="}',
    ]
    assert lines[-1] == b'{"type":"exit","code":3}'


def test_without_the_token_it_is_401_and_names_nothing(bridge: Bridged) -> None:
    for token in ("", "0" * 64, bridge.token[:-1], bridge.token + "0"):
        status, body = status_and_body(bridge.post({"argv": ["cat"]}, token=token))
        assert status == 401
        for name in ("cat", "printf", "sleep", "vm", str(bridge.work)):
            assert name.encode() not in body
    done = bridge.seed("cat", CONSTRUCT_HOST_EXEC_TOKEN="f" * 64)
    assert done.returncode == 126
    assert b"HTTP 401" in done.stderr


def test_a_name_that_is_not_listed_is_403(bridge: Bridged) -> None:
    status, body = status_and_body(bridge.post({"argv": ["id"]}))
    assert status == 403
    assert json.loads(body)["code"] == "not_allowed"
    done = bridge.seed("id")
    assert done.returncode == 126
    assert b"HTTP 403" in done.stderr


@pytest.mark.parametrize("name", ["/bin/cat", "../bin/cat", "./cat", "cat/"])
def test_a_path_is_not_a_listed_name(bridge: Bridged, name: str) -> None:
    assert status_and_body(bridge.post({"argv": [name]}))[0] == 403


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"argv":[]}',
        b'{"argv":"cat"}',
        b'{"argv":[1]}',
        b'{"stdin":""}',
        b'{"argv":["cat"],"stdin":"not base64!"}',
        b'{"argv":["cat","\\u0000"]}',
        b'{"argv":["cat"],"cwd":"/\\u0000"}',
        b'{"argv":["\xff"]}',
    ],
)
def test_a_body_that_is_wrong_is_400(bridge: Bridged, body: bytes) -> None:
    assert status_and_body(bridge.post(body))[0] == 400


def test_a_command_over_its_time_limit_is_124() -> None:
    with bridged("sleep", env={"CONSTRUCT_HOST_EXEC_TIMEOUT": "1"}) as bridge:
        assert bridge.seed("sleep", "50").returncode == 124
        assert bridge.line("ended")["ended_by"] == "time_limit"


def test_a_client_that_disconnects_ends_the_whole_process_group(bridge: Bridged) -> None:
    script = "echo $$ > leader; sleep 600 & echo $! > child; wait"
    client = subprocess.Popen(
        bridge.argv_of(SEED_CLIENT, ["sh", "-c", script]),
        env=bridge.environ(),
        cwd=bridge.work,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    places = [bridge.work / "leader", bridge.work / "child"]
    wait_until(lambda: all(one.exists() and one.read_text() for one in places), "both run")
    pids = [int(one.read_text()) for one in places]
    os.killpg(client.pid, signal.SIGKILL)
    client.wait(START_LIMIT_S)
    wait_until(lambda: not any(map(is_running, pids)), "nothing of it runs")
    wait_until(lambda: bridge.line("ended")["ended_by"] == "caller_gone", "it is on record")
    assert bridge.line("ended")["exit_code"] == 124


@pytest.mark.parametrize(
    ("how", "words"),
    [("kill", b"the operator ended the command"), ("stop", b"the broker stopped and ended")],
)
def test_a_command_that_is_ended_from_the_other_side_is_124_and_says_why(
    how: str, words: bytes
) -> None:
    with bridged("sleep") as bridge:
        client = subprocess.Popen(
            bridge.argv_of(SEED_CLIENT, ["sleep", "600"]),
            env=bridge.environ(),
            cwd=bridge.work,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        wait_until(lambda: bridge.broker.ask("status")["running"] == 1, "it runs")
        if how == "kill":
            (request,) = bridge.broker.requests()
            assert bridge.broker.run("kill", request["id"]).returncode == 0
        else:
            bridge.broker.stop()
        _, err = client.communicate(timeout=START_LIMIT_S)
        assert (client.returncode, words in err) == (124, True), err


def test_a_denied_request_is_200_and_then_126_with_the_reason_on_stderr(bridge: Bridged) -> None:
    client = subprocess.Popen(
        bridge.argv_of(SEED_CLIENT, ["tee", "made"]),
        env=bridge.environ(),
        cwd=bridge.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    bridge.broker.deny(bridge.broker.wait_for_request()["id"])
    out, err = client.communicate(timeout=START_LIMIT_S)
    assert (client.returncode, out) == (126, b"")
    assert b"operator_denied" in err
    assert b"HTTP" not in err
    assert not (bridge.work / "made").exists()


def test_a_request_that_is_asked_runs_after_a_yes(bridge: Bridged) -> None:
    with subprocess.Popen(
        bridge.argv_of(SEED_CLIENT, ["tee", "kept"]),
        env=bridge.environ(),
        cwd=bridge.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as client:
        assert client.stdin is not None
        client.stdin.write(b"one\n")
        client.stdin.close()
        request = bridge.broker.wait_for_request()
        assert [one["name"] for one in request["asked_by"]] == ["bridge 127.0.0.1"]
        bridge.broker.approve(request["id"])
        assert client.wait(START_LIMIT_S) == 0
    assert (bridge.work / "kept").read_bytes() == b"one\n"


def test_the_working_directory_is_the_hosts_behind_the_agents(bridge: Bridged) -> None:
    below = bridge.work / "sub" / "dir"
    below.mkdir(parents=True)
    assert bridge.seed("pwd", cwd=below).stdout.decode().strip() == str(below)
    (below / "up").symlink_to("..")
    assert bridge.seed("pwd", cwd=below / "up").stdout.decode().strip() == str(below.parent)


@pytest.mark.parametrize("cwd", ["", None, "/nowhere/at/all", "/", "/etc"])
def test_an_empty_or_foreign_cwd_falls_back_as_the_seeds_does(
    bridge: Bridged, cwd: str | None
) -> None:
    """With `compat = ["construct"]`; without it such a call is refused."""
    status, body = status_and_body(bridge.post({"argv": ["pwd"], "cwd": cwd}))
    assert status == 200
    assert base64.b64decode(json.loads(body.splitlines()[0])["data"]).decode().strip() == str(
        bridge.work
    )


def test_the_variables_have_the_seeds_names_and_shapes(bridge: Bridged) -> None:
    env = bridge.env
    assert env["CONSTRUCT_HOST_EXEC_URL"] == env["JACKIN_EXEC_URL"] == bridge.url
    assert env["CONSTRUCT_HOST_EXEC_TOKEN"] == env["JACKIN_EXEC_TOKEN"]
    assert len(bytes.fromhex(env["CONSTRUCT_HOST_EXEC_TOKEN"])) == 32
    assert env["CONSTRUCT_HOST_BINARIES"] == ",".join((*BINARIES, "tee"))


def test_a_bearer_token_does_as_well(bridge: Bridged) -> None:
    bearer = ("-H", f"Authorization: Bearer {bridge.token}")
    assert status_and_body(bridge.post({"argv": ["pwd"]}, *bearer, token=""))[0] == 200


def test_a_call_is_on_record_with_argv_path_status_and_duration(bridge: Bridged) -> None:
    bridge.seed("sh", "-c", "exit 9")
    line = bridge.line("ended")
    assert line["argv"] == ["sh", "-c", "exit 9"]
    assert Path(line["binary"]).name == "sh"
    assert line["binary"].startswith("/")
    assert line["exit_code"] == 9
    assert line["duration_s"] >= 0
    assert line["at"]


def test_it_runs_as_the_operator_and_not_as_root_or_the_containers_user(bridge: Bridged) -> None:
    bridge.seed("sh", "-c", "id -u > who")
    assert (bridge.work / "who").read_text().strip() == str(os.geteuid())
    assert (bridge.work / "who").stat().st_uid == os.geteuid()


def test_without_a_broker_the_seeds_client_ends_with_126(bridge: Bridged) -> None:
    done = bridge.seed("cat", CONSTRUCT_HOST_EXEC_URL="http://127.0.0.1:9")
    assert done.returncode == 126
    assert b"unreachable" in done.stderr


def test_arguments_are_filtered_by_rules_and_each_binary_has_its_own() -> None:
    """What a listed binary may do is not all or nothing any more."""
    rules = """[[rules]]
action = "deny"
argv = ["printf", "--danger", "..."]
[[rules]]
action = "allow"
argv = ["echo", "safe", "*"]
"""
    with bridged("printf", asked=["echo"], limits=rules) as bridge:
        assert bridge.seed("printf", "x").stdout == b"x"
        status, body = status_and_body(bridge.post({"argv": ["printf", "--danger", "x"]}))
        assert (status, json.loads(body)["code"]) == (403, "rule_denied")
        assert bridge.seed("echo", "safe", "word").stdout == b"safe word\n"
        client = subprocess.Popen(
            bridge.argv_of(SEED_CLIENT, ["echo", "other"]),
            env=bridge.environ(),
            cwd=bridge.work,
            stdin=subprocess.DEVNULL,
        )
        bridge.broker.deny(bridge.broker.wait_for_request()["id"])
        assert client.wait(START_LIMIT_S) == 126


def test_a_directory_below_any_mount_is_translated_the_home_mount_too() -> None:
    with bridged("pwd") as bridge:
        home, inner = bridge.work.parent / "home", bridge.work.parent / "inner"
        (home / "code").mkdir(parents=True)
        inner.mkdir()
        mounts = (
            f'mounts = [{{ capsule = "/home/construct", host = "{home}" }}, '
            f'{{ capsule = "/home/construct/code/inner", host = "{inner}" }}, '
        )
        text = bridge.broker.config_file.read_text().replace("mounts = [", mounts, 1)
        bridge.broker.write_config(text)
        assert bridge.broker.run("reload").returncode == 0
        for cwd, place in (
            ("/home/construct", home),
            ("/home/construct/code/", home / "code"),
            ("/home/construct/code/inner", inner),
            ("/home/construct/code/inner/..", home / "code"),
            ("/home/construct2", bridge.work),
        ):
            _, body = status_and_body(bridge.post({"argv": ["pwd"], "cwd": cwd}))
            found = base64.b64decode(json.loads(body.splitlines()[0])["data"]).decode().strip()
            assert found == str(place), cwd


def test_without_compat_a_foreign_directory_is_refused_and_not_replaced() -> None:
    with bridged("pwd") as bridge:
        text = bridge.broker.config_file.read_text()
        lines = [one for one in text.splitlines() if not one.startswith(("compat", "fallback"))]
        bridge.broker.write_config("\n".join(lines) + "\n")
        assert bridge.broker.run("reload").returncode == 0
        for cwd in ("", "/etc", "/nowhere"):
            status, body = status_and_body(bridge.post({"argv": ["pwd"], "cwd": cwd}))
            assert (status, json.loads(body)["code"]) == (403, "workdir_rejected")
        bridge.refresh()
        assert not any(name.startswith("CONSTRUCT") for name in bridge.env)


def test_a_call_that_is_not_allowed_by_a_rule_is_asked_whoever_sends_it(bridge: Bridged) -> None:
    """The token opens the door and decides nothing: a dependency that posts by itself is asked."""
    request = {"argv": ["tee", "direct"], "cwd": str(bridge.work)}
    argv = ["curl", "-sSN", "-H", f"X-Construct-Exec-Token: {bridge.token}"]
    with subprocess.Popen(
        [*argv, "-d", json.dumps(request), f"{bridge.url}/exec"], stdout=subprocess.PIPE
    ) as client:
        bridge.broker.deny(bridge.broker.wait_for_request()["id"])
        out, _ = client.communicate(timeout=START_LIMIT_S)
    assert out.splitlines()[-1] == b'{"type":"exit","code":126}'


def test_a_bindings_value_comes_back_as_its_marker_and_is_wanted_in_the_body() -> None:
    value = "tok-" + os.urandom(12).hex()
    entry = f'[env]\nTOKEN = {{ value = "{value}", on_demand = true }}\n'
    with bridged("pwd", asked=["env"], limits=entry) as bridge:
        request = {"argv": ["env"], "cwd": str(bridge.work), "want": ["TOKEN"], "reason": "why"}
        argv = ["curl", "-sSN", "-H", f"X-Construct-Exec-Token: {bridge.token}"]
        with subprocess.Popen(
            [*argv, "-d", json.dumps(request), f"{bridge.url}/exec"], stdout=subprocess.PIPE
        ) as client:
            asked = bridge.broker.wait_for_request()
            assert asked["want"] == ["TOKEN"]
            bridge.broker.approve(asked["id"], "TOKEN")
            out, _ = client.communicate(timeout=START_LIMIT_S)
        frames = [json.loads(line) for line in out.splitlines()]
        text = b"".join(base64.b64decode(one["data"]) for one in frames[:-1])
        assert b"TOKEN=[redacted:TOKEN]" in text
        assert value.encode() not in text
        assert frames[-1] == {"type": "exit", "code": 0}
