"""jackin-exec over TCP from a network and a file system of its own, as from a VM.

The only thing in common with the operator's side is the wire, and the copy of the programs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.bridge import Bridged, configuration
from support.broker import broker
from support.namespaces import descendants_of
from support.netns import CWD, NetworkNamespace, copy_programs, environ, network_namespace
from support.real import START_LIMIT_S, is_running, require_program, short_directory, wait_until
from support.terminal import terminal

BINARIES = ("sh", "cat", "wc", "true", "sleep", "sha256sum")
NAME = "secret-name"


@dataclass(frozen=True)
class Apart:
    """The broker's bridge, and a namespace beside it that was given its variables."""

    bridge: Bridged
    space: NetworkNamespace

    def exec(
        self, *argv: str, stdin: bytes | None = None, **more: str
    ) -> subprocess.CompletedProcess[bytes]:
        return self.space.run(
            "jackin-exec", "--", *argv, env={**self.bridge.env, **more}, stdin=stdin
        )

    def start(self, *argv: str, **more: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.space.argv("jackin-exec", "--", *argv),
            env=environ(self.bridge.env),
            stdin=more.get("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    with short_directory() as folder:
        work, programs = folder / "work", folder / "programs"
        work.mkdir()
        with network_namespace(programs) as space:
            where = f'bridge_bind = "{space.outside}"\n'
            text = configuration(work, BINARIES, (), name=NAME, more=where)
            text = text.replace(f'capsule = "{work}"', f'capsule = "{CWD}"')
            with broker(text, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}) as running:
                built = running.ask("links", "sync", "--interpreter", "/usr/bin/python3")
                copy_programs(Path(built[0]["bin_dir"]), programs)
                yield Apart(Bridged(running, work, NAME), space)


def test_status_and_both_outputs_are_the_commands_own(apart: Apart) -> None:
    done = apart.exec("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert apart.exec("sh", "-c", "kill -KILL $$").returncode == 137
    assert apart.exec("nothing-of-the-kind").returncode == 126


def test_a_linked_name_is_that_command(apart: Apart) -> None:
    done = apart.space.run("wc", "-c", env=apart.bridge.env, stdin=b"12345")
    assert (done.returncode, done.stdout.strip()) == (0, b"5")
    assert apart.bridge.line("ended")["argv"] == ["wc", "-c"]


def test_stdin_arrives_piece_by_piece_while_the_pipe_stays_open(apart: Apart) -> None:
    """What a request and a response could not carry."""
    with apart.start(
        "sh", "-c", "while read l; do echo got $l; done", stdin=subprocess.PIPE
    ) as shim:
        assert shim.stdin is not None
        assert shim.stdout is not None
        for word in (b"one", b"two", b"three"):
            shim.stdin.write(word + b"\n")
            shim.stdin.flush()
            assert shim.stdout.readline() == b"got " + word + b"\n"
        shim.stdin.close()
        assert shim.wait(START_LIMIT_S) == 0


def test_a_large_stdin_and_output_are_the_same_to_the_bit(apart: Apart) -> None:
    data = bytes(range(256)) * (32 * 1024)
    assert apart.exec("cat", stdin=data).stdout == data


def test_a_signal_reaches_the_command_once(apart: Apart) -> None:
    script = "trap 'echo int; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    with apart.start("sh", "-c", script) as shim:
        assert shim.stdout is not None
        assert shim.stdout.readline() == b"ready\n"
        _signal_shim(shim, signal.SIGINT)
        out, _ = shim.communicate(timeout=START_LIMIT_S)
    assert (shim.returncode, out) == (3, b"int\n")


def test_a_terminal_is_a_real_one_and_follows_the_callers(apart: Apart) -> None:
    script = (
        "test -t 0 && test -t 1 && test -t 2 && stty size; "
        "until [ \"$(stty size)\" = '20 70' ]; do sleep 0.05; done; "
        "read line; echo got $line; "
        "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done"
    )
    argv = apart.space.argv("jackin-exec", "-t", "sh", "-c", script, tty=True)
    with terminal(argv, env=environ(apart.bridge.env), rows=30, cols=90) as seen:
        seen.wait_for("30 90")
        seen.resize(20, 70)
        seen.type("typed\r")
        seen.wait_for("^got typed")
        seen.wait_for("^ready")
        seen.press("ctrl-c")
        assert seen.wait_ended() == 4
    assert apart.bridge.line("ended")["exit_code"] == 4


def test_a_killed_client_leaves_nothing_running(apart: Apart) -> None:
    leader = apart.bridge.work / "leader"
    with apart.start("sh", "-c", "echo $$ > leader; sleep 600") as shim:
        wait_until(lambda: leader.exists() and bool(leader.read_text()), "it runs")
        shim.kill()
    pid = int(leader.read_text())
    wait_until(lambda: not is_running(pid), "the command has ended")
    wait_until(lambda: apart.bridge.line("ended")["ended_by"] == "caller_gone", "it is on record")


def test_an_open_silent_stdin_does_not_keep_a_command(apart: Apart) -> None:
    with apart.start("true", stdin=subprocess.PIPE) as shim:
        assert shim.wait(START_LIMIT_S) == 0


def test_a_wrong_token_is_126_and_the_shim_says_that_nothing_was_sent(apart: Apart) -> None:
    done = apart.exec("true", JACKIN_EXEC_TOKEN="0" * 64)
    assert done.returncode == 126
    assert b"does not have our token, so nothing was sent" in done.stderr


def test_only_a_url_is_said_and_is_126(apart: Apart) -> None:
    env = {**apart.bridge.env}
    del env["JACKIN_BROKER_ADDR"]
    done = apart.space.run("jackin-exec", "true", env=env)
    assert done.returncode == 126
    assert b"only JACKIN_EXEC_URL is set" in done.stderr


def test_an_adjacent_namespace_gets_401_and_nothing_of_our_names(apart: Apart) -> None:
    require_program("curl", package="curl")
    with short_directory() as folder:
        programs = copy_programs(apart.bridge.work.parent / "programs", folder / "programs")
        with network_namespace(programs) as neighbour:
            url = apart.bridge.url
            for path in ("/exec", "/", "/plain", "/status", f"/{NAME}"):
                done = neighbour.run(
                    *("curl", "-sS", "-m", "20", "-w", "%{http_code}", "-d", '{"argv":["cat"]}'),
                    url + path,
                    env={},
                )
                assert done.stdout.endswith(b"401"), (path, done)
                assert not any(one in done.stdout for one in (NAME.encode(), b"sha256sum"))
            said = neighbour.run(
                "jackin-exec", "cat", env={**apart.bridge.env, "JACKIN_EXEC_TOKEN": "1" * 64}
            )
            assert said.returncode == 126
            assert NAME.encode() not in said.stderr


def test_a_listener_without_the_token_learns_nothing_and_gets_no_request(apart: Apart) -> None:
    """A former address may be somebody else's by now."""
    with socket.create_server((apart.space.outside, 0)) as impostor:
        port = impostor.getsockname()[1]
        shim = subprocess.Popen(
            apart.space.argv("jackin-exec", "--", "cat", "private-argument"),
            env=environ(
                {**apart.bridge.env, "JACKIN_BROKER_ADDR": f"{apart.space.outside}:{port}"}
            ),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        impostor.settimeout(START_LIMIT_S)
        taken, _ = impostor.accept()
        with taken, shim:
            taken.settimeout(START_LIMIT_S)
            heard = taken.recv(4096)
            body = b'{"type":"Challenge","nonce":"' + b"0" * 64 + b'","proof":"' + b"0" * 64 + b'"}'
            taken.sendall(len(body).to_bytes(4, "big") + body)
            heard += taken.recv(4096)  # nothing: it hangs up
            _, err = shim.communicate(timeout=START_LIMIT_S)
    assert shim.returncode == 126
    assert b"private-argument" not in heard
    assert apart.bridge.token.encode() not in heard
    assert b"does not have our token" in err


def _signal_shim(shim: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To the shim itself, below `ip` and bubblewrap."""
    pids = descendants_of(shim.pid)
    named = [one for one in pids if b"jackin-exec" in Path(f"/proc/{one}/cmdline").read_bytes()]
    os.kill(named[-1], number)
