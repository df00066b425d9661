"""DESIGN §8, §9: what deliveries leave on the host while a command runs, and after anything.

Kind `none` and unconfined, so that everything is on the host: nothing may be in an argv, in what a
nested call gets, or left behind, however command, caller or broker end.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pexpect
import pytest

from support.agent import Agent, finish
from support.broker import PROGRAMS, Broker, broker
from support.lending import scratch_of
from support.namespaces import descendants_of
from support.real import is_running, require_program, short_directory, wait_until
from support.ssh_server import make_key

CONFIG: Final = """schema = 1
[broker]
no_operator = "wait"
keyring = "vault"
[env]
PLAIN = {{ file = "{folder}/PLAIN", on_demand = true }}
AS_FILE = {{ file = "{folder}/AS_FILE", on_demand = true, deliver = "file" }}
ON_STDIN = {{ file = "{folder}/ON_STDIN", on_demand = true, deliver = "stdin" }}
ASKED = {{ file = "{folder}/ASKED", on_demand = true, deliver = "prompt", prompt = "word: $" }}
KEY = {{ file = "{folder}/KEY", on_demand = true, deliver = "ssh-agent", passphrase = "OPENS" }}
OPENS = {{ file = "{folder}/OPENS", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["sh", "python3", "sleep"]
[capsules.web.binaries.sh]
confine = false
[capsules.web.binaries.python3]
confine = false
[limits]
kill_grace_s = 1
"""
NAMES: Final = ("PLAIN", "AS_FILE", "ON_STDIN", "ASKED", "OPENS")
# CASES 3b: the broker or the caller was killed, and so long after nothing is left.
GONE_WITHIN_S: Final = 2.0
# Reads all that it was given, says so, and goes on.
TAKES_ALL: Final = (
    "import getpass, os, sys\n"
    "found = [os.environ['PLAIN'], open(os.environ['AS_FILE_FILE']).read()]\n"
    "found.append(getpass.getpass('word: ') if sys.stdin.isatty() else sys.stdin.read())\n"
    "print(os.system('ssh-add -l >/dev/null'), *found, os.environ['AS_FILE_FILE'], flush=True)\n"
    "import time; time.sleep(600)\n"
)


class Bench:
    """A broker with a credential for each delivery."""

    def __init__(self, made: Broker, agent: Agent, folder: Path, values: dict[str, str]) -> None:
        self.broker, self.agent, self.folder, self.values = made, agent, folder, values

    @contextmanager
    def lent(self, *argv: str, ticked: str) -> Generator[subprocess.Popen[bytes]]:
        """A running command with these credentials ticked."""
        with self.agent.running(*argv) as child:
            self.broker.approve(self.broker.wait_for_request()["id"], *ticked.split())
            yield child

    def agents(self) -> list[int]:
        """The ssh-agents below the broker."""
        below = descendants_of(self.broker.pid)
        return [pid for pid in below if b"ssh-agent\0-D" in cmdline_of(pid)]


def cmdline_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it ended meanwhile


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_warden(pid: int) -> bool:
    return b"warden_process" in cmdline_of(pid)


@pytest.fixture
def bench() -> Iterator[Bench]:
    require_program("ssh-agent", package="openssh-client")
    with short_directory() as folder:
        values = {name: "tok" + secrets.token_hex(12) for name in NAMES}
        values["KEY"] = make_key(folder / "KEY", values["OPENS"])
        (folder / "work").mkdir()
        for name in NAMES:
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(values[name])
        with broker(CONFIG.format(folder=folder), env={"PATH": "/usr/bin:/bin"}) as made:
            yield Bench(made, Agent(made, "web", folder / "work"), folder, values)


class Watch(threading.Thread):
    """Reads every process's arguments, over and over, for as long as the block lasts."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            self.seen |= {cmdline_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


@pytest.mark.parametrize("last", ["ON_STDIN", "ASKED"])
def test_all_at_once_and_no_value_is_ever_in_an_argument(bench: Bench, last: str) -> None:
    """Orva#74, bws#1568: from the answer to the end, of whatever is started for it."""
    with (
        Watch() as watch,
        bench.lent("python3", "-c", TAKES_ALL, ticked=f"PLAIN AS_FILE KEY {last}") as child,
    ):
        assert child.stdout is not None
        line = next(one for one in child.stdout if one.startswith((b"0 ", b"256 ")))
        child.kill()
        finish(child)
    markers = [b"[redacted:%s]" % name.encode() for name in ("PLAIN", "AS_FILE", last)]
    assert line.split()[:4] == [b"0", *markers]
    secret_lines = [*bench.values["KEY"].splitlines()[1:-1], *(bench.values[n] for n in NAMES)]
    assert len(watch.seen) > 1
    for words in watch.seen:
        assert not any(value.encode() in words for value in secret_lines), words


def test_a_file_is_the_operators_alone_and_goes_with_the_command(bench: Bench) -> None:
    script = 'stat -c "%a %u" "$AS_FILE_FILE" "${AS_FILE_FILE%/*}"; echo "$AS_FILE_FILE"; read x'
    with bench.lent("sh", "-c", script + " || true", ticked="AS_FILE") as child:
        done = finish(child)
    file, directory, path = done.stdout.decode().splitlines()
    assert (file, directory) == (f"600 {os.geteuid()}", f"700 {os.geteuid()}")
    assert not os.path.exists(path)
    assert scratch_of(bench.broker) == []


def test_a_nested_call_has_nothing_of_the_first(bench: Bench) -> None:
    """agi-cli#333: the whole tree below inherited the secrets."""
    shim = shlex.quote(str(PROGRAMS / "jackin-exec"))
    socket = shlex.quote(bench.agent.env["JACKIN_BROKER_SOCKET"])
    inner = "sh -c 'env; cat; echo done'"
    script = f"JACKIN_BROKER_SOCKET={socket} {shim} {inner} </dev/null"
    with bench.lent("sh", "-c", script, ticked="PLAIN AS_FILE KEY ON_STDIN") as child:
        bench.broker.approve(bench.broker.wait_for_request()["id"])
        done = finish(child)
    assert done.stdout.endswith(b"done\n"), done.stderr
    for name in (b"PLAIN", b"AS_FILE", b"SSH_AUTH_SOCK", b"redacted"):
        assert name not in done.stdout


def gone(pids: list[int]) -> bool:
    return not any(is_running(pid) for pid in pids)


def test_with_the_caller_go_agent_and_file(bench: Bench) -> None:
    """agent-secret#34: the caller vanished after the start, and there was no record."""
    with bench.lent("python3", "-c", TAKES_ALL, ticked="PLAIN AS_FILE KEY") as child:
        assert child.stdout is not None
        child.stdout.readline()
        agents = bench.agents()
        assert len(agents) == len(scratch_of(bench.broker)) == 1
        child.kill()
        wait_until(lambda: gone(agents), "the ssh-agent is gone", limit_s=GONE_WITHIN_S)
        wait_until(lambda: bench.broker.audit()[-1]["event"] == "ended", "the end is on record")
    ended = bench.broker.audit()[-1]
    assert (ended["ended_by"], ended["pid_of_caller"]) == ("caller_gone", child.pid)
    assert scratch_of(bench.broker) == []


def test_a_killed_broker_leaves_no_agent_and_no_file(bench: Bench) -> None:
    with bench.lent("python3", "-c", TAKES_ALL, ticked="PLAIN AS_FILE KEY") as child:
        assert child.stdout is not None
        path = child.stdout.readline().split()[-1].decode()
        agents = bench.agents()
        assert os.path.exists(path)
        assert len(agents) == 1
        bench.broker.kill()
        wait_until(lambda: gone(agents), "the ssh-agent is gone", limit_s=GONE_WITHIN_S)
        wait_until(lambda: not scratch_of(bench.broker), "the file is gone")
        finish(child)


def test_what_a_killed_broker_had_sweep_leaves_the_next_ones_alone(bench: Bench) -> None:
    """It sweeps up to two seconds later; a service manager starts the next in a tenth of one."""
    with bench.lent("python3", "-c", TAKES_ALL, ticked="PLAIN AS_FILE KEY") as child:
        assert child.stdout is not None
        child.stdout.readline()
        (left,) = scratch_of(bench.broker)
        (warden,) = [pid for pid in children_of(bench.broker.pid) if is_warden(pid)]
        os.kill(warden, signal.SIGSTOP)
        bench.broker.kill()
        bench.broker.start()
        script = 'until test -e go; do sleep 0.02; done; wc -c <"$AS_FILE_FILE"'
        with bench.lent("sh", "-c", script, ticked="AS_FILE") as other:
            wait_until(lambda: scratch_of(bench.broker) not in ([], [left]), "it was lent")
            os.kill(warden, signal.SIGCONT)
            wait_until(lambda: gone([warden]), "the former broker's warden is gone")
            (bench.agent.cwd / "go").touch()
            done = finish(other)
        finish(child)
    assert done.stdout.split() == [str(len(bench.values["AS_FILE"])).encode()], done.stderr
    assert scratch_of(bench.broker) == []


def test_what_was_left_is_swept_at_the_next_start(bench: Bench) -> None:
    """An agent that nobody ended, and a file, from a broker and helpers that were all killed."""
    with bench.lent("python3", "-c", TAKES_ALL, ticked="PLAIN AS_FILE KEY") as child:
        assert child.stdout is not None
        child.stdout.readline()
        (agent,) = bench.agents()
        (left,) = scratch_of(bench.broker)
        for pid in descendants_of(bench.broker.pid):
            if pid != agent:
                os.kill(pid, signal.SIGSTOP)
        family = [pid for pid in descendants_of(bench.broker.pid) if pid != agent]
        bench.broker.kill()
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        finish(child)
    wait_until(lambda: gone(family), "the helpers are gone")
    assert is_running(agent)
    assert list(left.iterdir())
    bench.broker.start()
    assert scratch_of(bench.broker) == []
    wait_until(lambda: gone([agent]), "the ssh-agent is gone", limit_s=GONE_WITHIN_S)


def test_a_caller_with_a_terminal_is_answered_for_and_types_on(bench: Bench) -> None:
    """What is typed before it was answered reaches the command after it."""
    code = "import getpass; getpass.getpass('word: '); print('now', input())"
    argv = ["-t", "--", "python3", "-c", code]
    shim = str(PROGRAMS / "jackin-exec")
    env, cwd = bench.agent.env, str(bench.agent.cwd)
    child: pexpect.spawn[bytes] = pexpect.spawn(shim, argv, env=env, cwd=cwd, timeout=30)
    child.delaybeforesend = None
    try:
        bench.broker.approve(bench.broker.wait_for_request()["id"], "ASKED")
        child.expect_exact("word: ")
        child.sendline("for the command")
        child.expect_exact("now for the command")
        child.expect(pexpect.EOF)
        child.wait()
    finally:
        child.close(force=True)
    assert child.exitstatus == 0
    wait_until(lambda: bench.broker.audit()[-1]["event"] == "ended", "the end is on record")
    assert bench.broker.audit()[-1]["typed"] == ["ASKED"]
