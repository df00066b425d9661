"""DESIGN §9 through the installed programs: the agent's code runs as a host command, in vain.

Each way in which listed programs run a project's own code runs the same attack, while another
command holds credentials in each shape. The same attack, unconfined, finds all of it.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackin_broker.deliveries import scratch_root
from support.agent import CALL_LIMIT_S, Agent
from support.attack import WAYS, Attack, Target, git
from support.broker import PROGRAMS, Broker, broker
from support.machine import is_running
from support.real import (
    SEARCH_PATH,
    require_bwrap,
    require_program,
    short_directory,
    wait_until,
)
from support.terminal import terminal
from support.tmux import tmux

PACKAGES = {
    "git": "git",
    "npm": "npm",
    "make": "make",
    "less": "less",
    "ssh-agent": "openssh-client",
}
CONFIG = """schema = 1
[broker]
no_operator = "wait"
keyring = "vault"
[env]
TOKEN = {{ file = "{store}/TOKEN", on_demand = true }}
PLAIN = {{ file = "{store}/PLAIN", on_demand = true, deliver = "file" }}
SSH_KEY = {{ file = "{store}/SSH_KEY", on_demand = true, deliver = "ssh-agent" }}
[capsules.web]
kind = "none"
host_binaries = ["git", "npm", "make", "less", "sh"]
[capsules.web.binaries.npm]
env = {{ npm_config_update_notifier = "false" }}
[[rules]]
action = "allow"
argv = ["sh", "..."]
bindings = ["TOKEN", "PLAIN", "SSH_KEY"]
stdin = "live"
trust_cwd = true
"""
RULE = '[[rules]]\naction = "allow"\nargv = ["{}", "..."]\nstdin = "live"\ntty = true\n'
VICTIM = 'test -n "$TOKEN" && test -s "$PLAIN_FILE" && ssh-add -l && echo ready && read line'


@dataclass(frozen=True)
class Stage:
    """A broker, what is to be found there, and a place for projects."""

    served: Broker
    target: Target
    folder: Path

    def project(self, name: str) -> Path:
        made = self.folder / name.replace(" ", "-")
        made.mkdir()
        return made


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require_bwrap()
    for name, package in PACKAGES.items():
        require_program(name, package=package)
    marker = "tok" + secrets.token_hex(12)
    with ExitStack() as parts:
        store, work = parts.enter_context(short_directory()), parts.enter_context(short_directory())
        multiplexer = parts.enter_context(tmux(["cat"], env={"PATH": SEARCH_PATH}))
        bus = parts.enter_context(socket.socket(socket.AF_UNIX))
        bus.bind(str(store / "bus"))
        bus.listen(100)
        for name in ("TOKEN", "PLAIN"):
            (store / name).touch(mode=0o600)
            (store / name).write_text(marker + name)
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(store / "SSH_KEY")]
        subprocess.run(keygen, check=True, timeout=CALL_LIMIT_S)
        env = {
            "PATH": f"{PROGRAMS}:{SEARCH_PATH}",
            "TMUX": f"{multiplexer.socket},1,0",
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={store}/bus",
        }
        rules = "".join(RULE.format(name) for name in ("git", "npm", "make", "less"))
        served = parts.enter_context(broker(CONFIG.format(store=store) + rules, env=env))
        furnish(served, marker)
        scratch = scratch_root(served.runtime_dir)
        sockets = [
            str(multiplexer.socket),
            f"{store}/bus",
            str(served.runtime_dir / "operator.sock"),
        ]
        places = ["/run/jackin", str(scratch), str(served.folder), str(store), "/var/tmp"]
        victim = Agent(served, "web", work).start("sh", "-c", VICTIM, stdin=subprocess.PIPE)
        parts.callback(end_victim, victim)
        assert victim.stdout is not None
        said = [victim.stdout.readline() for _ in range(2)]
        assert said[1] == b"ready\n", said
        yield Stage(served, Target(marker, places, sockets), work)


def furnish(served: Broker, marker: str) -> None:
    """Things of the operator's, each with the marker."""
    for path in (
        served.folder / "home" / ".netrc",
        served.state_dir / "vault.age",
        served.config_file.parent / "notes",
    ):
        path.touch(mode=0o600)
        path.write_text(marker)


def end_victim(victim: subprocess.Popen[bytes]) -> None:
    victim.communicate(b"\n", timeout=CALL_LIMIT_S)


@pytest.mark.parametrize("way", WAYS)
def test_whatever_runs_the_projects_code_reaches_nothing_and_leaves_nothing(
    stage: Stage, way: str
) -> None:
    """operator.sock, tmux, D-Bus, /proc, the vault, the configuration, another command's files."""
    attack = Attack(stage.project(way), stage.target)
    argv = WAYS[way](attack)
    done = Agent(stage.served, "web", attack.project).run(*argv)
    assert attack.has_run, done.stderr
    assert attack.found == {"files": [], "environments": [], "sockets": []}
    wait_until(lambda: not is_running(attack.leftover), "what it left behind has ended")


def test_without_confinement_the_same_attack_finds_all_of_it(stage: Stage) -> None:
    """Or the test above would prove nothing."""
    attack = Attack(stage.project("unconfined"), stage.target)
    subprocess.run([str(attack.program)], env=stage.served.env, check=True, timeout=CALL_LIMIT_S)
    found = attack.found
    assert set(stage.target.sockets) <= set(found["sockets"])
    assert any(path.endswith("/agent") for path in found["sockets"])
    names = {Path(path).name for path in found["files"]}
    assert {".netrc", "vault.age", "notes", "TOKEN", "PLAIN"} <= names
    assert found["environments"]
    assert is_running(attack.leftover)
    end_leftover(attack.leftover)


def end_leftover(word: str) -> None:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(word) in (folder / "cmdline").read_bytes().split(b"\0"):
                os.kill(int(folder.name), 9)
        except OSError:
            continue  # it ended meanwhile


def on_terminal(*argv: str) -> list[str]:
    return [str(PROGRAMS / "jackin-exec"), "-t", "--", *argv]


def test_a_repositorys_own_pager_is_not_run(stage: Stage) -> None:
    """On a terminal git would run it; here its pager is `cat`."""
    attack = Attack(stage.project("pager"), stage.target)
    git(attack.project, "init", "-q")
    git(attack.project, "commit", "-q", "--allow-empty", "-m", "the message")
    for key in ("core.pager", "pager.log"):
        git(attack.project, "config", key, str(attack.program))
    agent = Agent(stage.served, "web", attack.project)
    argv = on_terminal("git", "log")
    with terminal(argv, env=agent.env, cwd=str(agent.cwd)) as screen:
        screen.wait_for("the message")
        screen.wait_ended()
    assert not attack.has_run


def test_no_command_is_started_from_a_pager(stage: Stage) -> None:
    """`!cmd` in less, which git, man and journalctl page with."""
    project = stage.project("less")
    (project / "text").write_text("some text\n" * 100)
    agent = Agent(stage.served, "web", project)
    with terminal(on_terminal("less", "text"), env=agent.env, cwd=str(agent.cwd)) as screen:
        screen.wait_for("some text")
        for key in ("!", "|", "v"):  # a shell, a pipe, an editor
            screen.type(key)
            screen.wait_for("not available")
            screen.press("enter")
            screen.wait_gone("not available")
