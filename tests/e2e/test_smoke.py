"""The live smoke: one terminal, one command, and an agent in a capsule asks and is answered.

`launch --tmux` opens a private tmux with the agent above and the picker below; a person types in
one and answers in the other. Everything is the installed programs.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.broker import Broker, broker, program
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
[env]
TOKEN = {{ value = "{token}", on_demand = true }}
[capsules.web]
kind = "bwrap"
uids = [{uid}]
host_binaries = ["env"]
mounts = [{{ capsule = "/workspace", host = "{project}" }}]
"""
_ROWS: Final = 60
_COLS: Final = 110


@dataclass(frozen=True)
class Scene:
    broker: Broker
    screen: Picker
    project: Path
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


@pytest.fixture
def scene() -> Iterator[Scene]:
    require_bwrap()
    require_program("tmux", package="tmux")
    uid = AGENT_UID if os.geteuid() == 0 else os.geteuid()
    with short_directory(0o755) as project:
        if os.geteuid() == 0:
            os.chown(project, uid, uid)
        token = "tok-" + secrets.token_hex(12)
        with broker(_CONFIG.format(token=token, uid=uid, project=project)) as running:
            argv = [program("jackin-broker"), "launch", "--tmux", "--", "bash", "--norc", "-i"]
            screen = Picker(argv, env=running.env, cwd=str(running.folder), rows=_ROWS, cols=_COLS)
            try:
                yield Scene(running, screen, project, token)
            finally:
                screen.end()


def test_one_terminal_is_enough_to_launch_ask_answer_and_leave(scene: Scene) -> None:
    screen = scene.screen
    screen.wait_for(r"^bash-[0-9.]+\$")
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
