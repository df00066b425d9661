"""The operator's attention, with a real tmux and a real notifier: seen once, and nothing executed.

A terminal emulator is attached to a tmux server of the test's own, as the operator's terminal is;
the broker was started inside it. An agent asks, and what it wrote must not act anywhere.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.agent import Agent, finish
from support.broker import Broker
from support.real import is_running, require_program, short_directory, wait_until
from support.terminal import Terminal, terminal
from support.tmux import Tmux, tmux

SEARCH_PATH: Final = "/usr/bin:/bin"
CONFIG: Final = """schema = 1
[broker]
picker = "tmux-popup"
{broker}
[env]
TOKEN = {{ file = "{folder}/token", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["sh", "touch"]
[capsules.web.binaries.sh]
confine = false
[capsules.web.binaries.touch]
confine = false
"""
# What a shell, a format and a notification would make something of.
MARK: Final = "executed"
# A second, and what a loaded machine adds; what is excluded is a wait for somebody.
AT_ONCE_S: Final = 5.0


@dataclass
class Desk:
    """The operator's terminal with a shell in tmux, the broker started there, an agent."""

    folder: Path
    broker: Broker
    agent: Agent
    server: Tmux
    token: str

    @contextmanager
    def in_front(self, rows: int = 30, cols: int = 100) -> Generator[Terminal]:
        """Somebody sits before it."""
        argv = [require_program("tmux", package="tmux"), "-S", str(self.server.socket), "attach"]
        with terminal(argv, env=dict(os.environ), rows=rows, cols=cols) as screen:
            screen.wait_for("the shell")
            wait_until(lambda: self.broker.ask("status")["can_pop_up"], "somebody is seen")
            yield screen

    @property
    def tmux_calls(self) -> list[str]:
        """Every argument vector that tmux got from the broker."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@contextmanager
def desk(settings: str = "") -> Generator[Desk]:
    with ExitStack() as stack:
        folder = stack.enter_context(short_directory())
        token = "tok-" + secrets.token_hex(12)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(token)
        (folder / "work").mkdir()
        shell = ["sh", "-c", "echo the shell; exec cat"]
        server = stack.enter_context(tmux(shell, env=dict(os.environ), cwd=str(folder / "work")))
        bin_dir = folder / "bin"
        bin_dir.mkdir()
        write_program(
            bin_dir / "tmux",
            f'printf "%s " "$@" >> {folder}/calls; echo >> {folder}/calls',
            f'exec {require_program("tmux", package="tmux")} "$@"',
        )
        config = CONFIG.format(folder=folder, broker=settings.format(folder=folder))
        home = folder / "operator"
        home.mkdir()
        broker = Broker(
            home,
            config,
            {"PATH": f"{bin_dir}:{SEARCH_PATH}", "TMUX": f"{server.socket},1,0"},
        )
        stack.callback(broker.end)
        broker.start()
        yield Desk(folder, broker, Agent(broker, "web", folder / "work"), server, token)


def write_program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(stat.S_IRWXU)


def shown(screen: Terminal, command: str) -> None:
    """The popup shows this request, ready."""
    screen.wait_for(rf"(?s)asks to run.*{re.escape(command)}.*● ready")


def approve(screen: Terminal) -> None:
    """Tick the one credential and run it."""
    screen.press("space")
    screen.wait_for(r"\[x\] TOKEN")
    screen.press("enter")


def test_it_pops_up_over_the_shell_and_goes_when_it_is_answered() -> None:
    with desk() as made, made.in_front() as screen:
        with made.agent.running("sh", "-c", "echo $TOKEN; exit 3") as child:
            shown(screen, "echo $TOKEN; exit 3")
            approve(screen)
            done = finish(child)
        assert (done.returncode, done.stdout) == (3, b"[redacted:TOKEN]\n")
        screen.wait_gone("asks to run")
        screen.wait_for("the shell")
        screen.type("still mine\r")
        screen.wait_for("^still mine\n.*still mine")


def test_escape_in_the_popup_denies() -> None:
    with desk() as made, made.in_front() as screen, made.agent.running("touch", "ran") as child:
        shown(screen, "touch")
        screen.press("escape")
        done = finish(child)
        assert (done.returncode, b"(operator_denied)" in done.stderr) == (126, True)
        screen.wait_gone("asks to run")
        assert not (made.folder / "work" / "ran").exists()


def test_typing_into_the_shell_answers_nothing_when_it_pops_up() -> None:
    with desk() as made, made.in_front() as screen, made.agent.running("touch", "ran"):

        def typed_into() -> bool:
            """A person who looks elsewhere and types on."""
            screen.type("y\r 1p\r")
            return "asks to run" in screen.text

        screen.wait_until(typed_into, "it pops up")
        screen.type("yes\r 1 2p\r")
        shown(screen, "touch")
        assert made.broker.wait_for_request()["state"] == "waiting"
        assert not (made.folder / "work" / "ran").exists()


def test_a_burst_is_one_popup() -> None:
    with desk() as made, made.in_front() as screen, ExitStack() as calls:
        children = [
            calls.enter_context(made.agent.running("touch", f"ran{number}")) for number in range(5)
        ]
        made.broker.wait_for_request(count=5)
        for left in range(5, 0, -1):
            screen.wait_for(rf"(?s){left} waiting.*● ready")
            screen.press("escape")
        for child in children:
            assert finish(child).returncode == 126
        screen.wait_gone("asks to run")
        assert sum("display-popup" in call for call in made.tmux_calls) == 1


def test_a_popup_that_was_left_comes_back_for_the_next_request_alone() -> None:
    with desk() as made, made.in_front() as screen, made.agent.running("touch", "one") as first:
        shown(screen, "one")
        screen.press("q")
        screen.wait_gone("asks to run")
        assert made.broker.wait_for_request()["args"] == ["one"]
        with made.agent.running("touch", "two") as second:
            screen.wait_for(r"(?s)2 waiting.*● ready")
            screen.press("escape")
            screen.wait_for(r"(?s)1 waiting.*● ready")
            screen.press("escape")
            assert finish(first).returncode == finish(second).returncode == 126
        assert sum("display-popup" in call for call in made.tmux_calls) == 2


def test_where_a_picker_is_attached_nothing_pops_up() -> None:
    with desk() as made, made.in_front() as screen:
        with attached_picker(made) as picker, made.agent.running("touch", "ran") as child:
            shown(picker, "touch")
            assert made.broker.ask("status")["operators"] == 1
            picker.press("escape")
            assert finish(child).returncode == 126
        assert "asks to run" not in screen.text
        assert not any("display-popup" in call for call in made.tmux_calls)


@contextmanager
def attached_picker(made: Desk) -> Generator[Terminal]:
    argv = [sys.executable, "-m", "jackin_broker", "attach"]
    with terminal(argv, env=made.broker.env) as picker:
        picker.wait_for("Nothing waits for an answer")
        yield picker


def test_who_can_get_a_popup_counts_as_an_operator_and_nobody_else_does() -> None:
    """CASES 3c, claude-code#56764: a prompt that nobody could see blocked for 25 minutes."""
    with desk() as made:
        began = time.monotonic()
        done = made.agent.run("touch", "ran")
        assert time.monotonic() - began < AT_ONCE_S
        assert (done.returncode, b"(no_operator)" in done.stderr) == (126, True)
        assert made.broker.ask("status")["can_pop_up"] is False
        with made.in_front() as screen, made.agent.running("touch", "ran") as child:
            shown(screen, "touch")
            screen.press("escape")
            assert b"(operator_denied)" in finish(child).stderr


def test_nothing_that_an_agent_writes_is_executed_or_reaches_tmux() -> None:
    """`#(…)` in a tmux title or format runs; so would a name in a shell."""
    with desk('notify = ["{folder}/bin/told"]') as made:
        write_program(made.folder / "bin" / "told", f'printf "%s\\n" "$@" >> {made.folder}/told')
        evil = f"#(touch {made.folder}/{MARK})$(touch {made.folder}/{MARK})`touch {MARK}`"
        link = made.folder / "work" / f"#(touch {MARK})"
        link.symlink_to("/bin/true")
        reason = ["--reason", evil]
        with made.in_front() as screen:
            with made.agent.running("touch", evil, "#{client_name}", options=reason) as child:
                screen.wait_for(r"(?s)#\(touch .*● ready")
                screen.press("escape")
                assert finish(child).returncode == 126
                screen.wait_gone("asks to run")
            title = made.server.call("display-message", "-p", "#{pane_title} #{window_name}")
            assert "touch" not in title
        assert not list(made.folder.rglob(MARK))
        assert made.tmux_calls
        assert not any("touch" in call or evil in call for call in made.tmux_calls)
        assert (made.folder / "told").read_text() == "touch\n"


def test_the_notifier_is_told_once_a_request_by_one_clean_name() -> None:
    """opencode#43493, KiroCrew#1843: turns that were blocked were silent."""
    settings = 'notify = ["{folder}/bin/told", "jackin-exec"]\nno_operator = "wait"'
    with desk(settings) as made:
        told = made.folder / "told"
        write_program(
            made.folder / "bin" / "told",
            f'printf "%s|" "$#" "$@" >> {told}; env >> {told}.env; echo >> {told}',
        )
        with made.agent.running("touch", made.token, "ran") as one:
            wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "it is told")
            with made.agent.running("sh", "-c", "true") as two:
                wait_until(lambda: told.read_text().count("\n") == 2, "it is told again")
                for child in (one, two):
                    child.kill()
                    finish(child)
        assert told.read_text() == "2|jackin-exec|touch|\n2|jackin-exec|sh|\n"
        variables = {line.split("=")[0] for line in Path(f"{told}.env").read_text().splitlines()}
        assert "TMUX" not in variables
        assert "XDG_STATE_HOME" not in variables
        assert made.token not in Path(f"{told}.env").read_text()


def test_the_notifier_cannot_answer() -> None:
    """It descends from the broker, as what an agent runs does."""
    with desk('notify = ["{folder}/bin/told"]\nno_operator = "wait"') as made:
        answer = made.folder / "answer"
        write_program(
            made.folder / "bin" / "told",
            f"export XDG_RUNTIME_DIR={made.broker.env['XDG_RUNTIME_DIR']}",
            f"{sys.executable} -m jackin_broker requests > {answer}.tmp 2>&1",
            f"mv {answer}.tmp {answer}",
        )
        with made.agent.running("touch", "ran") as child:
            wait_until(answer.exists, "it has tried")
            child.kill()
            finish(child)
        assert "error" in answer.read_text()


@pytest.mark.parametrize("program", ["/nowhere/told", "/bin/false"])
def test_a_notifier_that_fails_changes_nothing(program: str) -> None:
    with desk(f'notify = ["{program}"]') as made:
        with made.in_front() as screen, made.agent.running("touch", "ran") as child:
            shown(screen, "touch")
            screen.press("escape")
            assert finish(child).returncode == 126
        notices = made.broker.ask("status")["notices"]
        assert any("notify" in line for line in notices) == (program == "/nowhere/told")


def test_a_broker_that_ends_takes_its_popup_along() -> None:
    with desk() as made, made.in_front() as screen, made.agent.running("touch", "ran"):
        shown(screen, "touch")
        made.broker.stop()
        screen.wait_gone("asks to run")
        screen.wait_for("the shell")


def test_the_number_for_a_status_line_is_a_number_and_nothing_else() -> None:
    with desk('no_operator = "wait"') as made:
        assert made.broker.run("status", "--waiting").stdout == "0\n"
        with made.agent.running("touch", "#(touch x)") as child:
            made.broker.wait_for_request()
            assert made.broker.run("status", "--waiting").stdout == "1\n"
            child.kill()
            finish(child)
        pid = made.broker.pid
        made.broker.stop()
        assert not is_running(pid)
        done = made.broker.run("status", "--waiting")
        assert (done.returncode, done.stdout) == (1, "")
