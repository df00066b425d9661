"""Programs that need a terminal, used as a person uses them, in tmux and in a real capsule.

CASES 3b, distrobox#1828. What is looked at is the screen; every key is typed once the screen asks
for it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from support.allowed import Allowed, allowed
from support.broker import Broker, broker, program
from support.real import require_bwrap, require_program, require_root, short_directory, wait_until
from support.second_uid import AGENT_UID
from support.terminal import terminal
from support.tmux import Tmux, tmux

PROMPT = r"bash-\S*[$#] *$"
PROGRAMS = {"vim": "vim", "less": "less", "top": "procps"}


@pytest.fixture(scope="module", params=["unconfined", "confined"])
def made(request: pytest.FixtureRequest) -> Generator[Allowed]:
    is_confined = request.param == "confined"
    if is_confined:
        require_bwrap()
    for name, package in PROGRAMS.items():
        require_program(name, package=package)
    with allowed(*PROGRAMS, "sh", is_confined=is_confined) as running:
        yield running


@pytest.fixture
def pane(made: Allowed) -> Generator[Tmux]:
    """An interactive shell in tmux, in the agent's directory."""
    env = {**made.agent.env, "PS1": "bash-agent$ "}
    with tmux(["/bin/bash", "--norc", "-i"], env=env, cwd=str(made.work)) as server:
        server.wait_for(PROMPT)
        yield server


def is_sane(pane: Tmux) -> None:
    """The shell has its terminal as it was: it echoes and edits lines."""
    pane.wait_for(PROMPT)
    pane.type("clear; stty | grep -c -e '-echo\\b' -e '-icanon' -e '-isig'\n")
    pane.wait_for(r"^0$")


def test_vim_edits_and_saves(made: Allowed, pane: Tmux) -> None:
    pane.type("jackin-exec vim -u NONE -N note.txt\n")
    pane.wait_for(r"^~\s*$")
    pane.type("i")
    pane.wait_for("-- INSERT --")
    pane.type("first line\nsecond line")
    pane.send_keys("Up", "Home")
    pane.type("the ")
    pane.wait_for("^the first line")
    pane.send_keys("Escape")
    pane.type(":wq\n")
    is_sane(pane)
    assert (made.work / "note.txt").read_text() == "the first line\nsecond line\n"


def test_vim_stops_and_goes_on_and_follows_a_resize(made: Allowed, pane: Tmux) -> None:
    pane.type("jackin-exec vim -u NONE -N +'set ruler' other.txt\n")
    pane.wait_for(r"^~\s*$")
    pane.send_keys("C-z")
    pane.wait_for(r"Stopped")
    pane.wait_for(PROMPT)
    pane.type("clear; fg\n")
    pane.wait_for(r"^~\s*$")
    pane.call("resize-window", "-x", "60", "-y", "12")
    pane.type(":echo 'size' &columns 'by' &lines\n")
    pane.wait_for("size 60 by 12")
    pane.type(":q\n")
    is_sane(pane)


def test_less_pages_and_searches(made: Allowed, pane: Tmux) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 1001))
    (made.work / "long.txt").write_text(lines)
    pane.type("jackin-exec less long.txt\n")
    pane.wait_for(r"^line 23$")
    pane.send_keys("Space")
    pane.wait_for(r"^line 46$")
    pane.type("/line 700\n")
    pane.wait_for(r"^line 70[0-9]$")
    pane.type("q")
    is_sane(pane)


def test_top_refreshes_and_quits(made: Allowed, pane: Tmux) -> None:
    pane.type("jackin-exec top -d 0.3\n")
    pane.wait_for("load average")
    pane.type("h")
    pane.wait_for("Help for Interactive Commands")
    pane.send_keys("Escape")
    pane.wait_for("load average")
    pane.type("q")
    is_sane(pane)


# --- a Textual program --------------------------------------------------------------------

COUNTER = """\
from textual.app import App, ComposeResult
from textual.widgets import Button, Input, Label

class Counter(App[None]):
    BINDINGS = [("ctrl+q", "quit", "Quit")]

    def compose(self) -> ComposeResult:
        yield Input(placeholder="type here")
        yield Label("nothing yet")

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(Label).update(f"typed: {event.value} at {self.size.width}")

Counter().run()
"""


def test_a_textual_program_takes_keys_and_draws(short_tmp: Path) -> None:
    """Its own pty, raw mode, alternate screen, mouse and colours."""
    textual = importlib.util.find_spec("textual")
    assert textual is not None
    assert textual.origin is not None
    (short_tmp / "counter.py").write_text(COUNTER)
    packages = Path(textual.origin).parents[1]
    more = f'[capsules.web.binaries.python3.env]\nPYTHONPATH = "{packages}"\n'
    interpreter = "python3"
    with (
        allowed(interpreter, more=more) as made,
        tmux(
            ["/bin/bash", "--norc", "-i"],
            env={**made.agent.env, "PS1": "bash-agent$ "},
            cwd=str(made.work),
        ) as pane,
    ):
        pane.wait_for(PROMPT)
        pane.type(f"jackin-exec python3 {short_tmp}/counter.py\n")
        pane.wait_for("nothing yet")
        pane.type("abc")
        pane.wait_for("typed: abc at 80")
        pane.call("resize-window", "-x", "100", "-y", "30")
        pane.type("d")
        pane.wait_for("typed: abcd at 100")
        pane.send_keys("C-q")
        is_sane(pane)


# --- from a capsule with a boundary -------------------------------------------------------

CAPSULE = """schema = 1
[broker]
keyring = "vault"
no_operator = "wait"
[env]
TOKEN = {{ value = "{token}", on_demand = true }}
[capsules.web]
kind = "bwrap"
uids = [{uid}]
host_binaries = ["sh", "vim"]
mounts = [{{ capsule = "/workspaces/app", host = "{project}" }}]
[[rules]]
action = "allow"
capsule = "web"
argv = ["sh", "..."]
bindings = ["TOKEN"]
stdin = "live"
tty = true
trust_cwd = true
[[rules]]
action = "allow"
capsule = "web"
argv = ["vim", "..."]
stdin = "live"
tty = true
"""


@pytest.fixture
def project() -> Generator[Path]:
    require_root()
    require_bwrap()
    with short_directory(0o755) as folder:
        os.chown(folder, AGENT_UID, AGENT_UID)
        folder.chmod(0o777)  # a confined command has no capability to write what is another's
        yield folder


@pytest.fixture
def capsule(project: Path) -> Generator[tuple[Broker, str]]:
    token = "tok" + os.urandom(10).hex()
    text = CAPSULE.format(token=token, uid=AGENT_UID, project=project)
    with broker(text, env={"PATH": "/usr/bin:/bin"}) as running:
        yield running, token


def test_an_agent_in_a_capsule_gets_a_terminal_through_its_own(
    capsule: tuple[Broker, str], project: Path
) -> None:
    """Three terminals in a row: the launcher's, the capsule's, the command's."""
    running, token = capsule
    argv = [program("jackin-broker"), "launch", "--quiet", "--", "bash", "--norc", "-i"]
    folder = str(running.folder / "home")
    with terminal(argv, env=running.env, cwd=folder, rows=30, cols=100) as launcher:
        launcher.wait_for(PROMPT)
        script = 'tty; stty size; echo "$TOKEN"; trap "stty size; exit 7" WINCH; '
        script += "while :; do sleep 0.05; done"
        launcher.type(f"clear; jackin-exec sh -c '{script}'\r")
        launcher.wait_for(r"^/dev/pts/\d+\n30 100\n\[redacted:TOKEN\]$")
        launcher.resize(20, 90)
        launcher.wait_for("^20 90$")
        launcher.wait_for(PROMPT)
        launcher.type("echo st=$?\r")
        launcher.wait_for("^st=7$")
        launcher.type("clear; jackin-exec sh -c 'echo here; exec sleep 600'\r")
        launcher.wait_for("^here$")
        launcher.press("ctrl-z")
        launcher.wait_for("Stopped")
        launcher.type("clear; fg\r")
        launcher.wait_for("^jackin-exec sh")
        launcher.press("ctrl-c")
        launcher.wait_for(PROMPT)
        launcher.type("exit\r")
        launcher.wait_ended()
        assert token.encode() not in launcher.written


def test_vim_in_a_capsule_writes_the_project(capsule: tuple[Broker, str], project: Path) -> None:
    running, _ = capsule
    argv = [program("jackin-broker"), "launch", "--quiet", "--", "bash", "--norc", "-i"]
    env = {name: value for name, value in running.env.items() if name != "TERM"}
    with tmux(argv, env=env, cwd=str(running.folder / "home")) as pane:
        pane.wait_for(PROMPT)
        pane.type("jackin-exec vim -u NONE -N note.txt\n")
        pane.wait_for(r"^~\s*$")
        pane.type("i")
        pane.wait_for("-- INSERT --")
        pane.type("from inside")
        pane.send_keys("Escape")
        pane.type(":wq\n")
        wait_until(lambda: (project / "note.txt").exists(), "vim has saved")
        is_sane(pane)
    assert (project / "note.txt").read_text() == "from inside\n"
