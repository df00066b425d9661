"""The live smoke: one terminal, one command, and an agent in a capsule asks and is answered.

`launch --tmux` opens a private tmux with the agent above and the picker below; a person types in
one and answers in the other. In a tmux of the operator's own the picker pops up over the agent:
with bubblewrap, docker, podman as root and as a plain user. Everything is the installed programs.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from support.broker import Broker, broker, program
from support.capsule import LAUNCH_LIMIT_S
from support.containers import container_scene
from support.engine import DOCKER, PODMAN, ROOTLESS, engine
from support.picker import Picker
from support.real import (
    START_LIMIT_S,
    require_bwrap,
    require_program,
    short_directory,
    wait_until,
)
from support.second_uid import AGENT_UID

_CONFIG: Final = """\
schema = 1
[broker]
keyring = "vault"
no_operator = "deny"
picker = "{picker}"
[env]
TOKEN = {{ value = "{token}", on_demand = true }}
[capsules.web]
kind = "bwrap"
uids = [{uid}]
host_binaries = ["env"]
mounts = [{{ capsule = "/workspace", host = "{project}" }}]
"""
_PROMPT: Final = r"^bash-[0-9.]+[$#]"
_ROWS: Final = 60
_COLS: Final = 110


@dataclass(frozen=True)
class Scene:
    broker: Broker
    screen: Picker
    token: str

    def go_to(self, direction: str) -> None:
        """Switch panes. By tmux's own command: keys that come at once count as pasted there."""
        (socket,) = self.broker.runtime_dir.glob("tmux-*")
        tmux = require_program("tmux", package="tmux")
        argv = [tmux, "-S", str(socket), "select-pane", direction]
        subprocess.run(argv, check=True, capture_output=True, timeout=START_LIMIT_S)

    def answer(self, command: str, name: str) -> None:
        """Go to the picker, say yes, and come back."""
        self.screen.wait_ready(command)
        self.go_to("-D")
        self.screen.approve(command, name)
        self.screen.wait_for("Nothing waits for an answer")
        self.go_to("-U")


def configured(stack: ExitStack, token: str, picker: str) -> str:
    """A configuration with a project that the agent owns."""
    uid = AGENT_UID if os.geteuid() == 0 else os.geteuid()
    project = stack.enter_context(short_directory(0o755))
    if os.geteuid() == 0:
        os.chown(project, uid, uid)
    return _CONFIG.format(token=token, uid=uid, project=project, picker=picker)


@pytest.fixture(params=["asked for", "offered"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A launch in a private tmux, whose agent is a shell."""
    require_bwrap()
    require_program("tmux", package="tmux")
    token = "tok-" + secrets.token_hex(12)
    with ExitStack() as stack:
        running = stack.enter_context(broker(configured(stack, token, "attach")))
        options = ["--tmux"] if request.param == "asked for" else []
        argv = [program("jackin-broker"), "launch", *options, "--", "bash", "--norc", "-i"]
        screen = Picker(argv, env=running.env, cwd=str(running.folder), rows=_ROWS, cols=_COLS)
        stack.callback(screen.end)
        if not options:
            screen.wait_for(r"Open a tmux session with the picker beside it\?")
            screen.type("y\r")
        yield Scene(running, screen, token)


def test_one_terminal_is_enough_to_launch_ask_answer_and_leave(scene: Scene) -> None:
    screen = scene.screen
    screen.wait_for(_PROMPT)
    wait_until(lambda: scene.broker.ask("status")["operators"] == 1, "the picker is attached")

    screen.type("jackin-exec --want TOKEN -- sh -c 'echo inside: $TOKEN; uname -n'\r")
    scene.answer("sh", "TOKEN")
    screen.wait_for(r"^inside: \[redacted:TOKEN\]")
    screen.wait_for(r"^web$")

    screen.type("clear; jackin-exec env | grep -c TOKEN=; /usr/bin/env | grep TOKEN=\r")
    scene.answer("env", "TOKEN")
    screen.wait_for(r"^1$")

    screen.type("exit 7\r")
    assert screen.wait_ended() == 7
    assert scene.token.encode() not in screen.written
    wait_until(
        lambda: scene.broker.ask("status")["capsules"][0]["init_pid"] == 0, "the capsule is gone"
    )
    assert scene.broker.run("audit", "verify").returncode == 0
    approved = [line for line in scene.broker.audit() if line["event"] == "decided"]
    assert [line["bindings"] for line in approved] == [["TOKEN"], ["TOKEN"]]
    assert not list(scene.broker.runtime_dir.glob("tmux-*"))


@contextmanager
def over_bwrap() -> Generator[tuple[Broker, str]]:
    """A broker whose picker pops up, and the lent value, of a capsule that bubblewrap makes."""
    require_bwrap()
    token = "tok-" + secrets.token_hex(12)
    with ExitStack() as stack:
        folder = stack.enter_context(short_directory())
        config = configured(stack, token, "tmux-popup")
        env = {"TMUX": f"{folder}/tmux,1,0"}
        yield stack.enter_context(broker(config, env=env)), token


@contextmanager
def over_container(kind: str) -> Generator[tuple[Broker, str]]:
    """The same of one that an engine makes; nothing of it is left in the end."""
    with engine(kind) as containers, container_scene(containers, has_popup=True) as made:
        yield made.broker, made.token
        wait_until(
            lambda: not containers.running(), "the container is gone", limit_s=LAUNCH_LIMIT_S
        )


@pytest.mark.parametrize("kind", ["bwrap", DOCKER, PODMAN, ROOTLESS])
def test_the_picker_pops_up_over_the_agent_and_goes_when_it_was_answered(kind: str) -> None:
    scene = over_bwrap() if kind == "bwrap" else over_container(kind)
    with scene as (running, token), in_tmux(running) as screen:
        screen.wait_for(_PROMPT, limit_s=LAUNCH_LIMIT_S)
        screen.type("jackin-exec env | grep -c TOKEN=\r")
        screen.approve("env", "TOKEN")
        screen.wait_for(r"^1$")
        screen.type("clear; jackin-exec sh -c 'echo inside: $TOKEN; uname -n'\r")
        screen.approve("sh", "TOKEN")
        screen.wait_for(r"^inside: \[redacted:TOKEN\]")
        screen.wait_for(r"^web$")
        screen.type("exit\r")
        wait_until(
            lambda: running.ask("status")["capsules"][0]["init_pid"] == 0,
            "the capsule is gone",
            limit_s=LAUNCH_LIMIT_S,
        )
        assert token.encode() not in screen.written
        assert running.run("audit", "verify").returncode == 0
        ended = [line for line in running.audit() if line["event"] == "ended"]
        assert [line["exit_code"] for line in ended] == [0, 0]


@contextmanager
def in_tmux(running: Broker) -> Generator[Picker]:
    """The operator's terminal: tmux, and in it nothing but `jackin-broker launch`."""
    socket = running.env["TMUX"].split(",", maxsplit=1)[0]
    tmux = [*running.prefix, require_program("tmux", package="tmux"), "-S", socket]
    launch = [program("jackin-broker"), "launch", "--no-network", "--", "bash", "--norc", "-i"]
    env = {name: value for name, value in running.env.items() if name != "TMUX"}
    screen = Picker(
        [*tmux, "-f", os.devnull, "new-session", "--", *launch],
        env=env,
        cwd=str(running.folder),
        rows=40,
        cols=100,
    )
    try:
        yield screen
    finally:
        subprocess.run([*tmux, "kill-server"], env=env, check=False, capture_output=True)
        screen.end()
