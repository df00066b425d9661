"""Delivery `ssh-agent` inside the capsule: a command has things signed, the agent beside it not.

A real agent, OpenSSH's own programs inside a real bubblewrap capsule, a real server to log in to.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.inside import Inside, inside
from support.lending import scratch_of
from support.real import START_LIMIT_S, require_program, wait_until
from support.ssh_server import SshServer, ssh_server


@dataclass(frozen=True)
class Stage:
    scene: Inside
    server: SshServer

    def ask(self, script: str) -> tuple[int, str, str]:
        done = self.scene.agent.run("jackin-exec", "sh", "-c", script)
        return done.status, done.stdout.decode(), done.stderr.decode()

    @property
    def fingerprint(self) -> str:
        """Of the key that is lent."""
        program = require_program("ssh-keygen", package="openssh-client")
        argv = [program, "-l", "-f", str(self.server.folder / "plain_key.pub")]
        done = subprocess.run(argv, check=True, capture_output=True, timeout=START_LIMIT_S)
        return done.stdout.decode().split()[1]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with ExitStack() as parts:
        server = parts.enter_context(ssh_server())
        key = server.plain_key.replace("\n", "\\n")
        scene = parts.enter_context(inside(deliver="ssh-agent", token=key))
        (scene.project / "known_hosts").write_text(server.known_hosts)
        yield Stage(scene, server)


def test_a_command_logs_in_with_a_key_that_never_enters_the_capsule(stage: Stage) -> None:
    login = " ".join(stage.server.argv("id", "-un"))
    status, out, err = stage.ask(f"env | grep -c OPENSSH; {login}; echo $SSH_AUTH_SOCK")
    assert (status, out) == (0, f"0\n{stage.server.user}\n/run/jackin/ssh-agent.sock\n"), err
    assert stage.scene.line("started")["ssh_keys"] == [stage.fingerprint]


def test_it_signs_and_lists_and_nothing_else(stage: Stage) -> None:
    (stage.scene.project / "key.pub").write_text(
        (stage.server.folder / "plain_key.pub").read_text()
    )
    script = (
        "ssh-add -l; ssh-add -D && echo removed; ssh-add -x </dev/null && echo locked; "
        "echo text | ssh-keygen -q -Y sign -n file -f key.pub | head -1; ssh-add -l | wc -l"
    )
    status, out, err = stage.ask(script)
    assert status == 0, err
    listed, begins, count = out.splitlines()
    assert stage.fingerprint in listed
    assert begins == "-----BEGIN SSH SIGNATURE-----"
    assert count.strip() == "1"


def test_the_agent_beside_it_cannot_reach_its_socket(stage: Stage) -> None:
    """Nor find it, in any place that it can see; and its end is the end of the agent."""
    scene, project = stage.scene, stage.scene.project
    (project / "work.sh").write_text("ssh-add -l >listed; echo up >up; cat >/dev/null\n")
    script = "mkfifo go; exec jackin-exec sh work.sh <go"
    running = scene.agent.start("/bin/sh", "-c", script)
    wait_until((project / "go").exists, "the agent has made its pipe")
    with (project / "go").open("w"):
        wait_until((project / "up").exists, "the command runs")
        assert stage.fingerprint in (project / "listed").read_text()
        assert len(scratch_of(scene.broker)) == 1
        look = (
            "find / -name ssh-agent.sock 2>/dev/null; "
            "SSH_AUTH_SOCK=/run/jackin/ssh-agent.sock ssh-add -l; echo status $?"
        )
        found = scene.agent.run("/bin/sh", "-c", look)
        assert b"status 2" in found.stdout, "no agent answers"
        assert b"/ssh-agent.sock" not in found.stdout
        for pid in map(str, range(1, 60)):
            path = f"/proc/{pid}/root/run/jackin/ssh-agent.sock"
            assert scene.agent.run("/usr/bin/test", "-e", path).status != 0
    assert running.wait().status == 0
    wait_until(lambda: not scratch_of(scene.broker), "agent and directory are gone")


def test_it_ends_with_a_killed_broker(stage: Stage) -> None:
    """What the broker listened on is closed by the kernel; the agent's keeper ends the agent."""
    project = stage.scene.project
    (project / "loop.sh").write_text("trap '' TERM; echo up >upped; cat\n")
    running = stage.scene.agent.start("/bin/sh", "-c", "mkfifo on; exec jackin-exec sh loop.sh <on")
    wait_until((project / "on").exists, "the agent has made its pipe")
    with (project / "on").open("w"):
        wait_until((project / "upped").exists, "the command runs")
        agents = agents_of(stage.scene)
        assert len(agents) == 1
        stage.scene.broker.kill()
        wait_until(lambda: not agents_of(stage.scene), "its ssh-agent has ended")
        running.wait()
    stage.scene.broker.start()
    assert not scratch_of(stage.scene.broker), "swept at start"
    assert stage.ask("ssh-add -l")[0] == 0


def agents_of(scene: Inside) -> list[str]:
    """The ssh-agents of this broker's commands, by their command lines."""
    places = [str(path) for path in scratch_of(scene.broker)]
    found: list[str] = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = line.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "ssh-agent" in words and any(place in words for place in places):
            found.append(words)
    return found
