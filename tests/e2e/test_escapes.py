"""The agent as an attacker, from inside each kind of capsule (DESIGN §4, §9).

The same attempts in a capsule that bubblewrap, docker, podman as root and a plain user's podman
made; each is refused, and what the broker refused is on record. What does not depend on the kind
is tried once elsewhere: connect-then-exec and a reused pid in `test_peer_attacks.py`, a swapped
binary in `test_requests.py`, a swapped script in `test_inside.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker
from support.capsule import LAUNCH_LIMIT_S, Agent, launched
from support.containers import RULES, container_scene
from support.engine import DOCKER, PODMAN, ROOTLESS, engine
from support.inside import inside
from support.real import wait_until
from support.terminal import terminal

SUPPORT = Path(__file__).parents[1] / "support"
_OTHER = '[capsules.other]\nkind = "bwrap"\nuids = [{uid}]\n'
_LAUNCH = ("--quiet", "--no-network", "--name", "web")


@dataclass(frozen=True)
class Stage:
    kind: str
    broker: Broker
    agent: Agent
    project: Path
    token: str

    @property
    def has_namespaces(self) -> bool:
        """Whether agent and commands are kept apart by namespaces, and not by their uids."""
        return self.kind in ("bwrap", ROOTLESS)

    def tried(self, attack: str, *argv: str) -> dict[str, Any]:
        """What an attack of the agent's came to."""
        (self.project / attack).write_text((SUPPORT / attack).read_text())
        done = self.agent.run("/usr/bin/python3", "-I", attack, *argv)
        assert done.status == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def refusals(self) -> list[dict[str, Any]]:
        return [line for line in self.broker.audit() if line["event"] == "refused"]


@contextmanager
def staged(kind: str) -> Generator[Stage]:
    """An agent in a capsule of this kind, and another capsule that is none of its business."""
    if kind == "bwrap":
        uid = os.geteuid() or 1500
        with inside(more=_OTHER.format(uid=uid)) as made:
            yield Stage(kind, made.broker, made.agent, made.project, made.token)
        return
    with ExitStack() as parts:
        containers = parts.enter_context(engine(kind))
        uid = containers.operator.uid if containers.operator is not None else 1500
        more = RULES + _OTHER.format(uid=uid)
        scene = parts.enter_context(container_scene(containers, more=more))
        agent = parts.enter_context(launched(scene.broker, *_LAUNCH))
        yield Stage(kind, scene.broker, agent, scene.project, scene.token)


@pytest.fixture(scope="module", params=["bwrap", DOCKER, PODMAN, ROOTLESS])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with staged(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def at_the_door(stage: Stage) -> dict[str, Any]:
    """What the doorway and the places beyond it let an agent do."""
    broker = stage.broker
    sockets = [str(broker.runtime_dir / "operator.sock"), broker.socket_of("other")]
    files = [str(path) for path in (broker.config_file, broker.audit_file, broker.runtime_dir)]
    return stage.tried(
        "attacks_at_the_door.py", json.dumps({"sockets": sockets, "files": [*sockets, *files]})
    )


@pytest.fixture(scope="module")
def beside_a_command(stage: Stage) -> Iterator[dict[str, Any]]:
    """What the agent could read and do while a command with a credential ran beside it."""
    (stage.project / "work.sh").write_text("echo up >/workspace/up; cat; echo $TOKEN\n")
    stage.project.chmod(0o777)  # the command may have a uid of its own
    running = stage.agent.start("/bin/sh", "-c", "mkfifo go; exec jackin-exec sh work.sh <go")
    wait_until((stage.project / "go").exists, "the agent has made its pipe")
    with (stage.project / "go").open("w"):
        wait_until((stage.project / "up").exists, "the command runs")
        yield stage.tried("attacks_inside.py")
    assert running.wait().stdout == b"[redacted:TOKEN]\n", "the command was not disturbed"


def test_no_other_doorway_and_no_file_of_the_operators_can_be_reached(
    at_the_door: dict[str, Any],
) -> None:
    assert at_the_door["reached"] == []
    assert at_the_door["seen"] == []


def test_its_own_doorway_and_programs_cannot_be_replaced(at_the_door: dict[str, Any]) -> None:
    assert at_the_door["squatted"] == []


@pytest.mark.parametrize(
    ("attempt", "code"),
    [
        ("giant", "bad_request"),
        ("half", ""),
        ("slow", ""),
        ("decide", "bad_request"),
        ("status", "bad_request"),
        ("record", "bad_request"),
        ("link", "workdir_rejected"),
        ("flood", "too_many_pending"),
    ],
)
def test_what_is_said_at_the_doorway_is_refused(
    at_the_door: dict[str, Any], attempt: str, code: str
) -> None:
    """Half a frame is no request: whoever leaves in the middle of one is told nothing."""
    answer = at_the_door["answers"][attempt]
    if code:
        assert json.loads(answer)["code"] == code, answer
    else:
        assert "ExecResult" not in answer


def test_the_refused_are_on_record_and_the_next_one_is_served(
    stage: Stage, at_the_door: dict[str, Any]
) -> None:
    assert at_the_door["answers"]
    done = stage.agent.run("jackin-exec", "uname", "-n")
    assert done.stdout.decode().strip() == os.uname().nodename, done.stderr
    codes = {line["code"] for line in stage.refusals()}
    assert {"bad_request", "workdir_rejected", "too_many_pending"} <= codes
    assert stage.broker.run("audit", "verify").returncode == 0


def test_a_command_beside_the_agent_keeps_its_value(
    stage: Stage, beside_a_command: dict[str, Any]
) -> None:
    """`/proc/*/environ`, memory, descriptors; also from a user namespace of the agent's own."""
    found = beside_a_command
    assert "JACKIN_EXEC_BINDINGS" in found["read"], "the attack reads what it may"
    assert stage.token not in found["read"] + found["read_nested"]
    assert 1 not in found["traced"] + found["memory"]
    assert found["has_mounted"] is False
    assert found["uncovered"] == ""
    assert found["entered"] == []
    if stage.has_namespaces:
        assert found["capabilities"] == []


def test_whoever_claims_to_be_init_is_refused(
    stage: Stage, beside_a_command: dict[str, Any]
) -> None:
    """Also as process 1 of a nested namespace, where the capsule lets it make one."""
    direct, nested = beside_a_command["claims"]
    assert json.loads(direct)["type"] == "Error"
    assert nested == "" or json.loads(nested)["type"] == "Error"
    assert nested != "" or stage.kind != "bwrap"
    assert any(line["code"] == "bad_request" for line in stage.refusals())


_TYPING = """\
import fcntl, os, termios
for fd in (0, 1, 2):
    for letter in b'echo typed-by-the-agent\\n':
        try: fcntl.ioctl(fd, termios.TIOCSTI, bytes([letter]))
        except OSError: pass
print('tried all', os.fstat(0).st_rdev != 0, flush=True)
"""


@pytest.mark.parametrize("kind", ["bwrap", DOCKER, PODMAN, ROOTLESS])
def test_nothing_can_be_typed_into_the_launchers_terminal(kind: str) -> None:
    """TIOCSTI into what the agent holds: it is a terminal of the capsule's own."""
    with staged(kind) as made:
        made.agent.launch.terminate()
        wait_until(
            lambda: all(one["init_pid"] == 0 for one in made.broker.ask("status")["capsules"]),
            "the first capsule is gone",
            limit_s=LAUNCH_LIMIT_S,
        )
        (made.project / "typing.py").write_text(_TYPING)
        shell = [*made.broker.prefix, "/bin/sh", "-i"]
        env = {**made.broker.env, "PS1": "outer> ", "ENV": "", "HISTFILE": ""}
        with terminal(shell, env=env, cwd=str(made.broker.folder / "home")) as outer:
            outer.wait_for("outer>$")
            launch = "jackin-broker launch " + " ".join(_LAUNCH)
            outer.type(f"{launch} -- /usr/bin/python3 /workspace/typing.py\r")
            outer.wait_for("^tried all True", limit_s=LAUNCH_LIMIT_S)
            outer.wait_for("outer>$", limit_s=LAUNCH_LIMIT_S)
            outer.type("echo 'still' mine\r")
            outer.wait_for("^still mine")
            assert "typed-by-the-agent" not in outer.text.splitlines()
