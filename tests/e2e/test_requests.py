"""One request, start to end, through the installed programs: every outcome with its own code.

Kind `none`, so that it runs everywhere; what a boundary adds is in the other files here.
"""

from __future__ import annotations

import os
import secrets
import signal
import stat
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from support.agent import Agent, finish
from support.broker import Broker, broker, program
from support.real import short_directory, wait_until

CONFIG = """schema = 1
[broker]
no_operator = "wait"
keyring = "vault"
[env]
TOKEN = {{ file = "{folder}/token", on_demand = true, label = "the token" }}
GONE = {{ file = "{folder}/absent", on_demand = true }}
WEAK = {{ value = "true", on_demand = true }}
LOCKED = {{ keyring = "service", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["sh", "printenv", "cat", "true", "sleep", "tool"]
{binaries}
[[rules]]
action = "allow"
argv = ["true"]
stdin = "live"
[[rules]]
action = "deny"
argv = ["sh", "-c", "forbidden"]
[limits]
approve_s = {approve_s}
kill_grace_s = 1
"""


class Bench:
    """A broker of kind none with a token, an agent, and a tool that tests may change."""

    def __init__(self, made: Broker, agent: Agent, folder: Path, token: str) -> None:
        self.broker, self.agent, self.folder, self.token = made, agent, folder, token

    @property
    def tool(self) -> Path:
        return self.folder / "bin" / "tool"

    def events(self) -> list[tuple[str, str]]:
        return [
            (line["event"], line.get("code", ""))
            for line in self.broker.audit()
            if not line["event"].startswith("broker_")
        ]

    def assert_value_is_nowhere(self, *outputs: bytes) -> None:
        raw = self.token.encode()
        for output in outputs:
            assert raw not in output
        for path in (self.broker.folder / "state").rglob("*"):
            if path.is_file():
                assert raw not in path.read_bytes(), path
        assert raw not in self.broker.stderr.encode()


def bench_with(*, approve_s: float = 60) -> Generator[Bench]:
    with short_directory() as folder:
        token = "tok-" + secrets.token_hex(12)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(token + "\n")
        (folder / "bin").mkdir()
        (folder / "work").mkdir()
        tool = folder / "bin" / "tool"
        tool.write_text('#!/bin/sh\necho "tool: $TOKEN $*"\n')
        tool.chmod(0o755)
        unconfined = "\n".join(
            f"[capsules.web.binaries.{name}]\nconfine = false"
            for name in ("sh", "printenv", "cat", "true", "sleep", "tool")
        )
        text = CONFIG.format(folder=folder, binaries=unconfined, approve_s=approve_s)
        path = f"{folder / 'bin'}:/usr/bin:/bin"
        with broker(text, env={"PATH": path}) as made:
            yield Bench(made, Agent(made, "web", folder / "work"), folder, token)


@pytest.fixture
def bench() -> Generator[Bench]:
    yield from bench_with()


@pytest.fixture
def hasty() -> Generator[Bench]:
    yield from bench_with(approve_s=1)


def test_an_approved_command_runs_with_the_ticked_credential_and_its_value_is_masked(
    bench: Bench,
) -> None:
    with bench.agent.running("printenv", "TOKEN", options=["--want", "TOKEN"]) as child:
        request = bench.broker.wait_for_request()
        assert request["command"] == "printenv"
        assert request["args"] == ["TOKEN"]
        assert request["want"] == ["TOKEN"]
        assert request["capsule"] == "web"
        assert request["cwd"] == str(bench.folder / "work")
        assert [row["name"] for row in request["bindings"]] == ["TOKEN", "GONE", "WEAK", "LOCKED"]
        assert request["asked_by"][0]["pid"] == child.pid
        assert 0 < request["expires_in_s"] <= 60
        bench.broker.approve(request["id"], "TOKEN")
        done = finish(child)
    assert (done.returncode, done.stdout) == (0, b"[redacted:TOKEN]\n")
    assert [event for event, _ in bench.events()] == ["asked", "decided", "started", "ended"]
    bench.assert_value_is_nowhere(done.stdout, done.stderr)
    assert bench.broker.run("audit", "verify").returncode == 0


def test_without_a_tick_the_command_runs_without_the_credential(bench: Bench) -> None:
    with bench.agent.running("printenv", "TOKEN", options=["--want", "TOKEN"]) as child:
        bench.broker.approve(bench.broker.wait_for_request()["id"])
        done = finish(child)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_denial_runs_nothing_and_says_who_said_no(bench: Bench) -> None:
    with bench.agent.running("sh", "-c", "touch ran") as child:
        request = bench.broker.wait_for_request()
        done = bench.broker.run("decide", request["id"], "--deny", "--reason", "not today")
        assert done.returncode == 0
        shim = finish(child)
    assert shim.returncode == 126
    assert b"not today" in shim.stderr
    assert shim.stderr.count(b"\n") == 2, shim.stderr
    assert not (bench.folder / "work" / "ran").exists()
    assert bench.events()[-1] == ("refused", "operator_denied")


def test_expiry_has_a_code_of_its_own_and_a_late_decision_is_refused(hasty: Bench) -> None:
    with hasty.agent.running("sh", "-c", "touch ran") as child:
        request = hasty.broker.wait_for_request()
        shim = finish(child)
        late = hasty.broker.run("decide", request["id"], "--approve")
    assert shim.returncode == 126
    assert late.returncode == 1
    assert not (hasty.folder / "work" / "ran").exists()
    assert hasty.events()[-1] == ("refused", "expired")


def test_a_caller_that_is_killed_closes_its_prompt_within_a_second(bench: Bench) -> None:
    with bench.agent.running("sh", "-c", "touch ran") as child:
        bench.broker.wait_for_request()
        child.kill()
        began = time.monotonic()
        wait_until(lambda: bench.broker.requests() == [], "the row is gone")
        assert time.monotonic() - began < 5  # each look starts an interpreter
    assert not (bench.folder / "work" / "ran").exists()
    assert bench.events()[-1] == ("refused", "caller_gone")


def test_a_source_that_fails_denies_with_its_own_code(bench: Bench) -> None:
    with bench.agent.running("sh", "-c", "touch ran") as child:
        bench.broker.approve(bench.broker.wait_for_request()["id"], "TOKEN", "GONE")
        shim = finish(child)
    assert shim.returncode == 126
    assert b"GONE" in shim.stderr
    assert not (bench.folder / "work" / "ran").exists()
    assert bench.events()[-1] == ("refused", "source_failed")


def test_a_locked_vault_is_source_locked_and_never_a_hang(bench: Bench) -> None:
    phrase = bench.folder / "passphrase"
    phrase.touch(mode=0o600)
    phrase.write_text(secrets.token_hex(16))
    created = subprocess.run(
        [program("jackin-broker"), "vault", "create"],
        env={**bench.broker.env, "JACKIN_VAULT_PASSPHRASE_FILE": str(phrase)},
        capture_output=True,
        timeout=60,
    )
    assert created.returncode == 0, created.stderr
    with bench.agent.running("true", options=["--want", "LOCKED"]) as child:
        bench.broker.approve(bench.broker.wait_for_request()["id"], "LOCKED")
        shim = finish(child)
    assert shim.returncode == 126
    assert bench.events()[-1] == ("refused", "source_locked")


def test_a_value_that_cannot_be_redacted_is_not_delivered(bench: Bench) -> None:
    """CASES 3a: a secret "true" masks half the log and reveals itself (actions/runner#4531)."""
    with bench.agent.running("sh", "-c", "touch ran") as child:
        request = bench.broker.wait_for_request()
        (weak,) = [row for row in request["bindings"] if row["name"] == "WEAK"]
        assert any("cannot be redacted" in warning for warning in weak["warnings"])
        bench.broker.approve(request["id"], "WEAK")
        shim = finish(child)
    assert shim.returncode == 126
    assert bench.events()[-1] == ("refused", "unredactable")
    assert not (bench.folder / "work" / "ran").exists()


def test_a_binary_that_was_swapped_while_waiting_does_not_run(bench: Bench) -> None:
    """CASES 3d: a script was swapped between prompt and run (openclaw#124738)."""
    with bench.agent.running("tool", "a") as child:
        request = bench.broker.wait_for_request()
        other = bench.tool.with_name("new")
        other.write_text("#!/bin/sh\ntouch ran\n")
        other.chmod(0o755)
        other.rename(bench.tool)
        bench.broker.approve(request["id"], "TOKEN")
        shim = finish(child)
    assert shim.returncode == 126
    assert bench.events()[-1] == ("refused", "changed_since_approval")
    assert not (bench.folder / "work" / "ran").exists()


def test_a_script_argument_that_changed_while_waiting_does_not_run(bench: Bench) -> None:
    script = bench.folder / "work" / "deploy.sh"
    script.write_text("echo fine\n")
    with bench.agent.running("sh", "deploy.sh") as child:
        request = bench.broker.wait_for_request()
        assert [one["path"] for one in request["files"]] == ["deploy.sh"]
        script.write_text("touch ran\n")
        bench.broker.approve(request["id"], "TOKEN")
        shim = finish(child)
    assert shim.returncode == 126
    assert bench.events()[-1] == ("refused", "changed_since_approval")
    assert not (bench.folder / "work" / "ran").exists()


def test_a_binary_that_changed_since_start_is_always_asked_with_a_notice(bench: Bench) -> None:
    other = bench.tool.with_name("new")
    other.write_text('#!/bin/sh\necho "newer"\n')
    other.chmod(0o755)
    other.rename(bench.tool)
    with bench.agent.running("tool") as child:
        request = bench.broker.wait_for_request()
        assert any("changed since" in notice for notice in request["notices"])
        bench.broker.approve(request["id"])
        assert finish(child).stdout == b"newer\n"


def test_an_audit_that_cannot_be_written_runs_nothing(bench: Bench) -> None:
    with bench.agent.running("sh", "-c", "touch ran") as child:
        request = bench.broker.wait_for_request()
        bench.broker.audit_file.rename(bench.broker.audit_file.with_name("moved"))
        bench.broker.approve(request["id"], "TOKEN")
        shim = finish(child)
    assert shim.returncode == 126
    assert b"audit" in shim.stderr
    assert not (bench.folder / "work" / "ran").exists()


def test_a_rule_allows_without_asking_and_is_on_record(bench: Bench) -> None:
    done = bench.agent.run("true")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    decided = next(line for line in bench.broker.audit() if line["event"] == "decided")
    assert decided["by"] == "rule"
    assert "rule 1" in decided["reason"]


def test_a_deny_rule_denies_without_asking(bench: Bench) -> None:
    done = bench.agent.run("sh", "-c", "forbidden")
    assert done.returncode == 126
    assert bench.events() == [("refused", "rule_denied")]


@pytest.mark.parametrize("command", ["id", "/bin/sh", "./sh", "../bin/sh"])
def test_what_is_not_listed_is_not_allowed_at_once(bench: Bench, command: str) -> None:
    done = bench.agent.run(command)
    assert done.returncode == 126
    assert bench.events() == [("refused", "not_allowed")]


def test_an_unknown_binding_is_refused_unasked(bench: Bench) -> None:
    done = bench.agent.run("true", options=["--want", "NOPE"])
    assert done.returncode == 126
    assert bench.events() == [("refused", "unknown_binding")]


def test_stopping_the_broker_denies_what_waits_and_ends_what_runs(bench: Bench) -> None:
    with (
        bench.agent.running("sh", "-c", "touch ran") as waiting,
        bench.agent.running("sleep", "600") as running,
    ):
        bench.broker.wait_for_request(count=2)
        for request in bench.broker.requests():
            if request["command"] == "sleep":
                bench.broker.approve(request["id"])
        wait_until(
            lambda: "running" in {one["state"] for one in bench.broker.requests()}, "sleep runs"
        )
        assert bench.broker.run("stop").returncode == 0
        denied, ended = finish(waiting), finish(running)
    assert denied.returncode == 126
    assert ended.returncode != 0
    codes = [code for event, code in bench.events() if event == "refused"]
    assert codes == ["broker_stopping"]
    assert bench.broker.audit()[-1]["event"] == "broker_stopped"


def test_a_crash_leaves_a_clean_start_and_an_empty_queue(bench: Bench) -> None:
    """CASES 3c: 132 approvals were stuck after a restart (clawmetry#4491)."""
    with bench.agent.running("sh", "-c", "touch ran") as child:
        bench.broker.wait_for_request()
        bench.broker.kill()
        shim = finish(child)
        assert shim.returncode == 126
        assert shim.stderr.count(b"\n") == 2
    bench.broker.start()
    assert bench.broker.requests() == []
    assert bench.agent.run("true").returncode == 0
    assert bench.broker.run("audit", "verify").returncode == 0


def test_status_signals_and_streams_are_the_commands_own(bench: Bench) -> None:
    def approved(*argv: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        with bench.agent.running(*argv, stdin=source) as child:
            if stdin is not None and child.stdin is not None:
                child.stdin.write(stdin)
                child.stdin.close()
                child.stdin = None
            bench.broker.approve(bench.broker.wait_for_request()["id"])
            return finish(child)

    exited = approved("sh", "-c", "echo o; echo e >&2; exit 7")
    assert (exited.returncode, exited.stdout, exited.stderr) == (7, b"o\n", b"e\n")
    assert approved("sh", "-c", "kill -TERM $$").returncode == 143
    assert approved("cat", stdin=b"some\0bytes\xff").stdout == b"some\0bytes\xff"


def test_the_broker_is_not_dumpable_and_its_files_are_private(bench: Bench) -> None:
    for name in ("environ", "mem", "maps"):
        owner = os.stat(f"/proc/{bench.broker.pid}/{name}").st_uid
        assert owner == 0  # the kernel gives a non-dumpable process's files to root
    limits = Path(f"/proc/{bench.broker.pid}/limits").read_text()
    assert "Max core file size        0                    0" in limits
    for path in bench.broker.state_dir.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_second_broker_at_the_same_place_is_refused(bench: Bench) -> None:
    done = bench.broker.run("serve")
    assert done.returncode == 1
    assert "runs here already" in done.stderr


def test_a_reload_takes_a_changed_file_without_harm_to_what_runs(bench: Bench) -> None:
    with bench.agent.running(
        "sh", "-c", "echo begun; read line; echo $line", stdin=subprocess.PIPE
    ) as child:
        bench.broker.approve(bench.broker.wait_for_request()["id"])
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        text = bench.broker.config_file.read_text()
        bench.broker.write_config(text.replace('argv = ["true"]', 'argv = ["printenv", "HOME"]'))
        assert bench.broker.run("reload").returncode == 0
        out, _ = child.communicate(b"still here\n", timeout=20)
    assert out == b"still here\n"
    assert bench.agent.run("printenv", "HOME").returncode == 0


def test_a_broken_file_is_not_taken_and_the_old_one_stays(bench: Bench) -> None:
    text = bench.broker.config_file.read_text()
    bench.broker.write_config(text + "\nnonsense = 1\n")
    done = bench.broker.run("reload")
    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert bench.agent.run("true").returncode == 0


def test_a_sigint_to_the_shim_reaches_the_command_once(bench: Bench) -> None:
    script = 'trap "echo caught; exit 5" INT; echo ready; while :; do sleep 0.05; done'
    with bench.agent.running("sh", "-c", script) as child:
        bench.broker.approve(bench.broker.wait_for_request()["id"])
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGINT)
        done = finish(child)
    assert (done.returncode, done.stdout) == (5, b"caught\n")


def test_a_capsule_that_a_reload_removes_keeps_what_runs_and_takes_nothing_new(
    bench: Bench,
) -> None:
    with bench.agent.running("sh", "-c", "echo begun; read line; echo $line", stdin=-1) as child:
        bench.broker.approve(bench.broker.wait_for_request()["id"])
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        text = bench.broker.config_file.read_text()
        bench.broker.write_config(text.replace("capsules.web", "capsules.other"))
        assert bench.broker.run("reload").returncode == 0
        assert bench.agent.run("true").returncode == 126
        out, _ = child.communicate(b"still here\n", timeout=20)
    assert out == b"still here\n"
    assert bench.broker.stop() == 0


def test_the_environment_limits_how_long_a_command_runs(short_tmp: Path) -> None:
    text = """schema = 1
[capsules.web]
kind = "none"
host_binaries = ["sleep"]
[capsules.web.binaries.sleep]
confine = false
[[rules]]
action = "allow"
argv = ["sleep", "*"]
"""
    with broker(text, env={"JACKIN_EXEC_TIMEOUT": "0.5"}) as made:
        done = Agent(made, "web", short_tmp).run("sleep", "600")
        assert done.returncode == 124
        assert made.audit()[-1]["ended_by"] == "time_limit"
