"""Capsules made by docker and podman, and containers that are adopted, by the engines' own word.

Each engine is the test's own, started once; where it does not start here the reason is printed.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.broker import Broker, broker
from support.capsule import launched, places_of
from support.engine import IMAGE, Engine, engine
from support.real import short_directory, wait_until
from support.second_uid import AGENT_UID, OTHER_UID

_CONFIG: Final = """\
schema = 1
[broker]
keyring = "vault"
no_operator = "wait"
[env]
TOKEN = {{ value = "{token}", on_demand = true }}
[capsules.web]
kind = "{engine}"
image = "{image}"
uids = [{uid}]
host_binaries = ["uname"]
mounts = [{{ capsule = "/workspace", host = "{project}" }}]
{more}
[[rules]]
action = "allow"
argv = ["uname", "..."]
[[rules]]
action = "allow"
target = "capsule"
argv = ["sh", "..."]
bindings = ["TOKEN"]
stdin = "live"
trust_cwd = true
"""
# An engine starts a container in a second or two, and ends it after its init's two.
_LIMIT_S: Final = 40.0


@pytest.fixture(scope="module", params=["docker", "podman"])
def containers(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with engine(request.param) as made:
        yield made


@dataclass(frozen=True)
class Scene:
    broker: Broker
    engine: Engine
    project: Path
    token: str


@pytest.fixture
def more() -> str:
    """More of the capsule's table."""
    return f"run_as = {OTHER_UID}"


@pytest.fixture
def scene(containers: Engine, more: str) -> Iterator[Scene]:
    with short_directory(0o755) as project:
        os.chown(project, AGENT_UID, AGENT_UID)
        token = "tok-" + secrets.token_hex(12)
        config = _CONFIG.format(
            token=token,
            engine=containers.name,
            image=IMAGE,
            uid=AGENT_UID,
            project=project,
            more=more,
        )
        with broker(config, env=containers.env) as running:
            yield Scene(running, containers, project, token)


def test_an_agent_in_a_container_reaches_the_host_and_runs_inside_apart_from_the_command(
    scene: Scene,
) -> None:
    with launched(scene.broker, "--quiet", "--no-network") as agent:
        assert agent.uid == AGENT_UID
        assert agent.environ["PATH"].startswith("/jackin/bin:")
        assert "TOKEN" not in agent.environ
        assert agent.environ["HOME"] == "/home/agent"
        (host,) = agent.run("uname", "-n").stdout.split()
        assert host == os.uname().nodename.encode()
        (scene.project / "work.sh").write_text("echo $TOKEN; id -u; pwd; uname -n; sleep 617\n")
        running = agent.start("jackin-exec", "sh", "work.sh")
        wait_until(lambda: _is_running(scene, "617"), "the command runs", limit_s=_LIMIT_S)
        assert places_of(scene.token, agent.look("/workspace", "/tmp", "/jackin")) == []
        running.kill(signal.SIGTERM)
        assert running.wait().stdout == b"[redacted:TOKEN]\n%d\n/workspace\nweb\n" % OTHER_UID
        assert agent.run("/bin/sh", "-c", "cat /proc/1/environ || kill -9 1").status != 0
        assert agent.run("uname").status == 0, "init lives, and so does the agent"
    wait_until(lambda: not scene.engine.running(), "the container is gone", limit_s=_LIMIT_S)
    assert "launch" not in scene.broker.stderr


def _is_running(scene: Scene, word: str) -> bool:
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in found.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def test_a_container_ends_when_its_launcher_is_killed(scene: Scene) -> None:
    with launched(scene.broker, "--quiet", "--no-network") as agent:
        assert scene.engine.running()
        agent.launch.kill()
        agent.launch.wait(_LIMIT_S)
        wait_until(lambda: not scene.engine.running(), "the container is gone", limit_s=_LIMIT_S)


@pytest.mark.parametrize("more", [""])
def test_without_a_second_uid_a_credential_takes_a_prompt_that_says_so(scene: Scene) -> None:
    with launched(scene.broker, "--quiet", "--no-network") as agent:
        call = agent.start("jackin-exec", "sh", "-c", "echo $TOKEN")
        request = scene.broker.wait_for_request()
        assert any("the agent can read these values" in line for line in request["notices"])
        assert "the agent can read these values" in request["confinement"]
        scene.broker.approve(request["id"], "TOKEN")
        assert call.wait().stdout == b"[redacted:TOKEN]\n"


@pytest.mark.parametrize("more", [f'run_as = {OTHER_UID}\ncontainer = "adopted"'])
def test_a_container_that_something_else_started_is_adopted(scene: Scene) -> None:
    """As compose does it: our directories mounted, our init its first process."""
    assert scene.broker.run("links", "sync").returncode == 0
    socket = Path(scene.broker.socket_of("web"))
    programs = scene.broker.runtime_dir / "shims" / socket.parent.name
    mounts = [f"{socket.parent}:/jackin/run:ro", f"{programs}:/jackin/bin:ro"]
    volumes = [word for mount in (*mounts, f"{scene.project}:/workspace") for word in ("-v", mount)]
    common = ["--network", "none", "--workdir", "/workspace", *volumes]
    init = ["init", "--uid", str(AGENT_UID), "--run-as", str(OTHER_UID), "--", "sleep", "600"]
    entry = ["--entrypoint", "/jackin/bin/jackin-capsule", IMAGE, *init]

    def enter(container: str, *argv: str) -> tuple[int, str, str]:
        done = scene.engine.run(
            "exec", "--user", str(AGENT_UID), container, "/jackin/bin/jackin-exec", *argv
        )
        return done.returncode, done.stdout, done.stderr

    for name in ("adopted", "stranger"):
        started = scene.engine.run("run", "-d", "--name", name, *common, *entry)
        assert started.returncode == 0, started.stderr
    assert enter("adopted", "uname", "-n")[:2] == (0, os.uname().nodename + "\n")
    assert enter("adopted", "sh", "-c", "echo $TOKEN; id -u")[:2] == (
        0,
        f"[redacted:TOKEN]\n{OTHER_UID}\n",
    )
    status, _, told = enter("stranger", "uname", "-n")
    assert status == 126
    assert "does not live in capsule web" in told
    refused = [line for line in scene.broker.audit() if line["event"] == "refused"]
    assert refused[-1]["code"] == "peer_refused"
    scene.engine.run("rm", "--force", "adopted", "stranger")
    plain = scene.engine.run("run", "-d", "--name", "adopted", *common, IMAGE, "sleep", "600")
    assert plain.returncode == 0, plain.stderr
    wait_until(lambda: enter("adopted", "uname", "-n")[0] == 0, "the new one is known")
    status, _, told = enter("adopted", "sh", "-c", "true")
    assert status == 126
    assert "is not jackin-capsule init" in told
    scene.engine.run("rm", "--force", "adopted")


@pytest.mark.parametrize(("options", "words"), [(["--image", "no/such:1"], "cannot run the image")])
def test_an_image_that_is_not_there_says_so(scene: Scene, options: list[str], words: str) -> None:
    done = scene.broker.run("launch", "--quiet", *options, "--", "true")
    assert done.returncode == 1
    assert words in done.stderr
    assert scene.engine.running() == []
