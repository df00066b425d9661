"""A command's leader inside the capsule (`command.py`), as a process of its own: how it ends it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from jackin_broker.init_protocol import Job, encode_job
from jackin_broker.protocol import TerminalSize, Text
from support.real import START_LIMIT_S, end_process, require_program
from support.source_tree import REPOSITORY

LEAD = """
import sys
sys.path.insert(0, sys.argv[1])
from jackin_capsule import command, jobs
command.Leader(jobs.read_job(int(sys.argv[2]), {}), int(sys.argv[3]), (), None).lead()
"""
PROMPT = "standing-by "


@dataclass
class Led:
    """A leader, the broker's end of its control socket, and the terminal's."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    master: int

    def told(self) -> list[bytes]:
        """The words of its next message."""
        return self.control.recv(64).split()

    def until_shown(self, text: str) -> None:
        """Return when the terminal shows it."""
        shown = b""
        while text.encode() not in shown:
            ready, _, _ = select.select([self.master], [], [], START_LIMIT_S)
            assert ready, f"not within {START_LIMIT_S:g} s: {text!r} after {shown!r}"
            shown += os.read(self.master, 4096)


@contextmanager
def led(*argv: str) -> Generator[Led]:
    """A leader whose command has a terminal and runs."""
    env: dict[str, Text] = {"PS1": PROMPT, "PATH": "/usr/bin:/bin", "TERM": "dumb"}
    job = encode_job(Job(argv, "/", env, terminal=TerminalSize(24, 80)))
    work = os.memfd_create("job")
    os.write(work, job)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(START_LIMIT_S)
    words = [str(REPOSITORY / "capsule"), str(work), str(theirs.fileno())]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LEAD, *words],
        pass_fds=(work, theirs.fileno()),
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    os.close(work)
    master = -1
    try:
        with ours:
            _, (master,), _, _ = socket.recv_fds(ours, 64, 1)
            made = Led(process, ours, master)
            assert made.told()[0] == b"started"
            yield made
        process.wait(START_LIMIT_S)  # it lets go of everything once the broker has
    finally:
        if master >= 0:
            os.close(master)
        end_process(process)


def test_an_interactive_shell_is_hung_up_on_because_it_ignores_term() -> None:
    """Without it only KILL would end it, after the whole grace."""
    require_program("bash", package="bash")
    with led("bash", "--norc", "--noprofile", "-i") as shell:
        shell.until_shown(PROMPT)
        shell.control.send(b"end")
        word, status = shell.told()
        assert word == b"ended"
        assert os.WTERMSIG(int(status)) == signal.SIGHUP


def test_a_hang_up_that_comes_too_early_is_said_again() -> None:
    """A bash that is just taking the TERM leaves the HUP behind it; here the first one is lost."""
    lost = "import os, signal, sys, time\ngot = []\n"
    lost += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    lost += "signal.signal(signal.SIGHUP, lambda *_: got.append(1) if not got else os._exit(7))\n"
    lost += "print('ready', flush=True)\nwhile True: time.sleep(60)\n"
    with led("python3", "-c", lost) as stubborn:
        stubborn.until_shown("ready")
        stubborn.control.send(b"end")
        word, status = stubborn.told()
        assert word == b"ended"
        assert os.waitstatus_to_exitcode(int(status)) == 7


@pytest.mark.parametrize("order", [b"kill", b""])
def test_what_ignores_every_word_is_killed(order: bytes) -> None:
    """On the broker's order, or when the broker is gone."""
    deaf = "trap '' TERM HUP; echo ready; while :; do sleep 1; done"
    with led("sh", "-c", deaf) as command:
        command.until_shown("ready")
        if order:
            command.control.send(order)
            word, status = command.told()
            assert word == b"ended"
            assert os.WTERMSIG(int(status)) == signal.SIGKILL
