"""A real capsule with an agent in it, started by the installed `jackin-broker launch`.

The agent (`agent_program.py`) is ordered through the launch's own stdin and stdout. It refuses to
know what the agent is made to try. The capsule ends when the launch's stdin closes.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .broker import Broker, program
from .real import END_GRACE_S, START_LIMIT_S, end_process

AGENT: Final = Path(__file__).with_name("agent_program.py")
# What a request takes that waits for nobody; only a hang takes longer.
CALL_LIMIT_S: Final = 40.0
# A container's engine is asked twice before its agent starts.
LAUNCH_LIMIT_S: Final = 60.0
# Where an agent may find something that it should not.
LOOKED_AT: Final = (
    "/jackin",
    "/tmp",
    "/run",
    "/var/tmp",
    "/dev/shm",
    "/home",
    "/root",
    "/workspace",
)


@dataclass(frozen=True)
class Ended:
    """A program that the agent ran: its exit status and what it wrote."""

    status: int
    stdout: bytes
    stderr: bytes


class Call:
    """A program that the agent started and that may still run."""

    def __init__(self, agent: Agent, number: int, pid: int) -> None:
        self._agent = agent
        self.number: Final = number
        # As the capsule numbers it.
        self.pid: Final = pid

    def wait(self, limit_s: float = CALL_LIMIT_S) -> Ended:
        """What came of it."""
        got = self._agent.next_answer(self.number, limit_s)
        out, err = base64.b64decode(got["stdout"]), base64.b64decode(got["stderr"])
        return Ended(got["status"], out, err)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Have the agent send a signal to it."""
        self._agent.order("kill", target=self.number, signal=int(number))


class Agent:
    """The agent in its capsule, by way of the launch's pipes."""

    def __init__(self, launch: subprocess.Popen[bytes]) -> None:
        self.launch: Final = launch
        self._numbers = itertools.count(1)
        # Answers that came while another one was waited for, and a line's beginning.
        self._unread: list[dict[str, Any]] = []
        self._partial = b""
        hello = self.next_answer(0, LAUNCH_LIMIT_S)
        self.uid: Final[int] = hello["uid"]
        self.environ: Final[dict[str, str]] = hello["environ"]

    def order(self, do: str, **fields: Any) -> int:
        """Send one order; its number."""
        number = next(self._numbers)
        assert self.launch.stdin is not None
        line = json.dumps({"do": do, "id": number, **fields})
        self.launch.stdin.write(line.encode() + b"\n")
        self.launch.stdin.flush()
        return number

    def next_answer(self, number: int, limit_s: float) -> dict[str, Any]:
        """The next answer to an order.

        Raises: AssertionError where none comes within the limit.
        """
        deadline = time.monotonic() + limit_s
        while True:
            for got in self._unread:
                if got["id"] == number:
                    self._unread.remove(got)
                    assert "error" not in got, got["error"]
                    return got
            self._read(deadline - time.monotonic())

    def start(self, *argv: str, cwd: str = "/workspace", stdin: bytes | None = None) -> Call:
        """Have the agent start a program."""
        data = None if stdin is None else base64.b64encode(stdin).decode()
        number = self.order("start", argv=list(argv), cwd=cwd, stdin=data)
        return Call(self, number, self.next_answer(number, START_LIMIT_S)["pid"])

    def run(self, *argv: str, cwd: str = "/workspace", stdin: bytes | None = None) -> Ended:
        """Have the agent run a program to its end."""
        return self.start(*argv, cwd=cwd, stdin=stdin).wait()

    def look(self, *roots: str) -> dict[str, bytes]:
        """Every file and every process's argv and environment that the agent can read."""
        number = self.order("look", roots=list(roots or LOOKED_AT))
        found = self.next_answer(number, CALL_LIMIT_S)["found"]
        return {path: base64.b64decode(content) for path, content in found.items()}

    def _read(self, limit_s: float) -> None:
        assert self.launch.stdout is not None
        fd = self.launch.stdout.fileno()
        ready, _, _ = select.select([fd], [], [], max(0.0, limit_s))
        data = os.read(fd, 1 << 20) if ready else b""
        if not data:
            raise AssertionError("the launch ended" if ready else "no answer from the agent")
        *lines, self._partial = (self._partial + data).split(b"\n")
        # What is no JSON is the launch's own banner.
        self._unread.extend(json.loads(line) for line in lines if line.startswith(b"{"))


@contextmanager
def launched(broker: Broker, *options: str) -> Generator[Agent]:
    """An agent in a capsule that `jackin-broker launch OPTIONS` made, ended on the way out."""
    errors = broker.folder / "launch.err"
    with errors.open("ab") as stderr:
        launch = subprocess.Popen(
            [
                *(*broker.prefix, program("jackin-broker"), "launch", *options, "--"),
                *("/usr/bin/python3", "-I", "-u", "-c", AGENT.read_text()),
            ],
            env=broker.env,
            cwd=broker.folder / "home",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        try:
            agent = Agent(launch)
        except AssertionError as error:
            raise AssertionError(f"{error}; launch said: {errors.read_text()}") from None
        yield agent
    finally:
        _close(launch)


def _close(launch: subprocess.Popen[bytes]) -> None:
    """Let the agent go, and with it the capsule."""
    assert launch.stdin is not None
    try:
        launch.stdin.close()
        launch.wait(END_GRACE_S)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        pass  # it ended already, or end_process ends it
    finally:
        end_process(launch)


def places_of(value: str, found: dict[str, bytes]) -> list[str]:
    """The places whose content holds the value."""
    return [place for place, content in found.items() if value.encode() in content]
