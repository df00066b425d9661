"""Capsules made by docker and podman, and containers that are adopted, by the engines' own word.

Podman both as root and as a plain user. Each engine is the test's own, started once; where it does
not start containers here the reason is printed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from support.capsule import LAUNCH_LIMIT_S, launched, places_of
from support.containers import RULES, Scene, container_scene
from support.engine import DOCKER, IMAGE, PODMAN, ROOTLESS, Engine, engine
from support.real import wait_until
from support.second_uid import AGENT_UID, OTHER_UID

# An engine starts a container in a second or two, and ends it after its init's two.
_LIMIT_S: Final = LAUNCH_LIMIT_S


@pytest.fixture(scope="module", params=[DOCKER, PODMAN, ROOTLESS])
def containers(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with engine(request.param) as made:
        yield made


@pytest.fixture
def more() -> str:
    """More of the capsule's table."""
    return ""


@pytest.fixture
def run_as() -> int:
    return OTHER_UID


@pytest.fixture
def scene(containers: Engine, run_as: int, more: str) -> Iterator[Scene]:
    with container_scene(containers, run_as=run_as, more=more + RULES) as made:
        yield made


def test_an_agent_in_a_container_reaches_the_host_and_runs_inside_apart_from_the_command(
    scene: Scene,
) -> None:
    with launched(scene.broker, "--quiet", "--no-network") as agent:
        assert agent.uid == scene.agent_uid
        assert agent.environ["PATH"].startswith("/jackin/bin:")
        assert "TOKEN" not in agent.environ
        assert agent.environ["HOME"] == ("/root" if scene.engine.is_rootless else "/home/agent")
        (host,) = agent.run("uname", "-n").stdout.split()
        assert host == os.uname().nodename.encode()
        (scene.project / "work.sh").write_text("echo $TOKEN; id -u; pwd; uname -n; sleep 617\n")
        running = agent.start("jackin-exec", "sh", "work.sh")
        wait_until(lambda: _is_running(scene, "617"), "the command runs", limit_s=_LIMIT_S)
        assert places_of(scene.token, agent.look("/workspace", "/tmp", "/jackin")) == []
        running.kill(signal.SIGTERM)
        assert (
            running.wait().stdout == b"[redacted:TOKEN]\n%d\n/workspace\nweb\n" % scene.command_uid
        )
        assert agent.run("/bin/sh", "-c", "cat /proc/1/environ").status != 0
        agent.run("/bin/sh", "-c", "kill -9 1")
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


@pytest.mark.parametrize("run_as", [0])
def test_without_a_second_uid_a_credential_takes_a_prompt_that_says_so(scene: Scene) -> None:
    """But for a rootless podman, where init keeps them apart."""
    rule = "" if scene.engine.is_rootless else "the agent can read these values"
    with launched(scene.broker, "--quiet", "--no-network") as agent:
        call = agent.start("jackin-exec", "sh", "-c", "echo $TOKEN")
        if rule:
            request = scene.broker.wait_for_request()
            assert any(rule in line for line in request["notices"])
            assert rule in request["confinement"]
            scene.broker.approve(request["id"], "TOKEN")
        assert call.wait().stdout == b"[redacted:TOKEN]\n"
    assert scene.line("decided")["by"] == ("operator" if rule else "rule")


def adoptable(scene: Scene) -> tuple[list[str], list[str]]:
    """As compose does it: the engine's options for our directories, and our init as the entry."""
    assert scene.broker.run("links", "sync").returncode == 0
    socket = Path(scene.broker.socket_of("web"))
    programs = scene.broker.runtime_dir / "shims" / socket.parent.name
    mounts = [f"{socket.parent}:/jackin/run:ro", f"{programs}:/jackin/bin:ro"]
    volumes = [word for mount in (*mounts, f"{scene.project}:/workspace") for word in ("-v", mount)]
    options = ["--network", "none", "--workdir", "/workspace", *volumes]
    uids = ["--uid", str(AGENT_UID), "--run-as", str(OTHER_UID)]
    if scene.engine.is_rootless:
        uids = []
        options += ["--cap-add", "SYS_ADMIN", "--security-opt", "unmask=ALL"]
    init = ["init", *uids, "--", "sleep", "600"]
    return options, ["--entrypoint", "/jackin/bin/jackin-capsule", IMAGE, *init]


def enter(scene: Scene, container: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """What `jackin-exec` came to for somebody who entered a running container."""
    shim = "/jackin/bin/jackin-exec"
    return scene.engine.run("exec", "--user", str(scene.agent_uid), container, shim, *argv)


def remove(scene: Scene, *names: str) -> None:
    """At once: what runs there waits for nobody's TERM."""
    scene.engine.run("kill", *names)
    scene.engine.run("rm", "--force", *names)


def lent_inside(scene: Scene) -> subprocess.CompletedProcess[str]:
    """A command inside with the credential; asked for where somebody could read it."""
    argv = ("sh", "-c", "echo $TOKEN; id -u")
    if not scene.engine.is_rootless:
        return enter(scene, "adopted", *argv)
    with ThreadPoolExecutor(1) as pool:  # who enters with `podman exec` stands beside init
        entered = pool.submit(enter, scene, "adopted", *argv)
        request = scene.broker.wait_for_request()
        assert "the agent can read these values" in request["confinement"]
        scene.broker.approve(request["id"], "TOKEN")
        return entered.result(_LIMIT_S)


@pytest.mark.parametrize("more", ['container = "adopted"'])
def test_a_container_that_something_else_started_is_adopted(scene: Scene) -> None:
    options, entry = adoptable(scene)
    for name in ("adopted", "stranger"):
        started = scene.engine.run("run", "-d", "--name", name, *options, *entry)
        assert started.returncode == 0, started.stderr
    assert enter(scene, "adopted", "uname", "-n").stdout == os.uname().nodename + "\n"
    assert lent_inside(scene).stdout == f"[redacted:TOKEN]\n{scene.command_uid}\n"
    refused = enter(scene, "stranger", "uname", "-n")
    assert refused.returncode == 126
    assert "does not live in capsule web" in refused.stderr
    assert scene.line("refused")["code"] == "peer_refused"
    remove(scene, "adopted", "stranger")
    plain = scene.engine.run("run", "-d", "--name", "adopted", *options, IMAGE, "sleep", "600")
    assert plain.returncode == 0, plain.stderr
    wait_until(
        lambda: enter(scene, "adopted", "uname", "-n").returncode == 0,
        "the new one is known",
        limit_s=_LIMIT_S,
    )
    refused = enter(scene, "adopted", "sh", "-c", "true")
    assert refused.returncode == 126
    assert "is not jackin-capsule init" in refused.stderr
    remove(scene, "adopted")


@pytest.mark.parametrize(("options", "words"), [(["--image", "no/such:1"], "cannot run the image")])
def test_an_image_that_is_not_there_says_so(scene: Scene, options: list[str], words: str) -> None:
    done = scene.broker.run("launch", "--quiet", *options, "--", "true")
    assert done.returncode == 1
    assert words in done.stderr
    assert scene.engine.running() == []
