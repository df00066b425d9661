"""The live smoke: one terminal, one command, and an agent in a capsule asks and is answered.

`launch --tmux` opens a private tmux with the agent above and the picker below; a person types in
one and answers in the other. Everything is the installed programs.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
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
from support.tmux import tmux

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


@pytest.fixture
def scene() -> Iterator[Scene]:
    require_bwrap()
    require_program("tmux", package="tmux")
    token = "tok-" + secrets.token_hex(12)
    with ExitStack() as stack:
        running = stack.enter_context(broker(configured(stack, token, "attach")))
        argv = [program("jackin-broker"), "launch", "--tmux", "--", "bash", "--norc", "-i"]
        screen = Picker(argv, env=running.env, cwd=str(running.folder), rows=_ROWS, cols=_COLS)
        stack.callback(screen.end)
        yield Scene(running, screen, token)


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


def test_the_picker_pops_up_over_the_agent_and_goes_when_it_was_answered() -> None:
    require_bwrap()
    token = "tok-" + secrets.token_hex(12)
    launch = [program("jackin-broker"), "launch", "--", "bash", "--norc", "-i"]
    with ExitStack() as stack:
        folder = stack.enter_context(short_directory())
        begin = folder / "begin"
        waiting = f"until [ -e {begin} ]; do read -t 0.05 line <> {folder}/never; done; . {begin}"
        os.mkfifo(folder / "never")
        server = stack.enter_context(
            tmux(["bash", "-c", waiting], env=dict(os.environ), rows=40, cols=100)
        )
        env = {"TMUX": f"{server.socket},1,0"}
        running = stack.enter_context(broker(configured(stack, token, "tmux-popup"), env=env))
        argv = [require_program("tmux", package="tmux"), "-S", str(server.socket), "attach"]
        screen = Picker(argv, env=dict(os.environ), cwd=str(folder), rows=40, cols=100)
        stack.callback(screen.end)
        write_beginning(begin, running, launch)
        screen.wait_for(r"^bash-[0-9.]+\$")

        screen.type("jackin-exec env | grep -c TOKEN=\r")
        screen.approve("env", "TOKEN")
        screen.wait_for(r"^1$")
        screen.type("clear; jackin-exec sh -c 'echo inside: $TOKEN; uname -n'\r")
        screen.approve("sh", "TOKEN")
        screen.wait_for(r"^inside: \[redacted:TOKEN\]")
        screen.wait_for(r"^web$")

        screen.type("exit\r")
        wait_until(
            lambda: running.ask("status")["capsules"][0]["init_pid"] == 0, "the capsule is gone"
        )
        assert token.encode() not in screen.written
        assert running.run("audit", "verify").returncode == 0


def write_beginning(path: Path, running: Broker, argv: list[str]) -> None:
    """A script that becomes `argv` with the broker's environment; it appears whole."""
    names = [name for name in running.env if name.startswith(("XDG_", "HOME", "PATH", "JACKIN_"))]
    lines = [f"export {name}={quote(running.env[name])}" for name in names]
    draft = path.with_suffix(".new")
    draft.write_text("\n".join((*lines, f"exec {join(argv)}", "")))
    draft.rename(path)
