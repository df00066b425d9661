"""An MCP client written from the specification: JSON-RPC lines, and nothing of an SDK.

It drives a program that serves MCP on its stdin and stdout, as `jackin-capsule mcp` does. It
refuses to know what the tools do. Every wait is bounded; every line that comes is checked.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from .broker import Broker, program
from .real import SEARCH_PATH, end_process

# A server starts in a second on a quiet machine; only a hang takes longer than this.
ANSWER_LIMIT_S: Final = 60.0
LATEST_HANDSHAKE: Final = "2025-11-25"
EXEC: Final = "jackin_exec"
WAIT: Final = "jackin_exec_wait"
CHECK: Final = "jackin_exec_check"
# JSON-RPC's: null answers what could not be read.
Id = int | str | None


class RawClient:
    """One client and the program that it started."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.process: Final = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._numbers = itertools.count(1)
        self._answers: dict[Id, dict[str, Any]] = {}
        self._partial = b""
        self.notifications: Final[list[dict[str, Any]]] = []

    # --- sending ------------------------------------------------------------------------

    def send(self, **message: Any) -> None:
        """One message, as a line."""
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_line(self, line: bytes) -> None:
        """A line, whatever is in it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; its id."""
        number = next(self._numbers)
        self.send(id=number, method=method, params=params or {})
        return number

    def cancel(self, number: int) -> None:
        """Take a request back, as the specification has it."""
        self.send(method="notifications/cancelled", params={"requestId": number})

    # --- receiving ----------------------------------------------------------------------

    def answer(self, number: Id, *, limit_s: float = ANSWER_LIMIT_S) -> dict[str, Any]:
        """The whole message that answers a request.

        Raises: AssertionError where none comes within the limit.
        """
        deadline = time.monotonic() + limit_s
        while number not in self._answers:
            assert self.read(deadline - time.monotonic()), f"no answer in {limit_s:g} s"
        return self._answers.pop(number)

    def is_answered(self, number: Id) -> bool:
        """Whether an answer has been read."""
        return number in self._answers

    def wait_for_notification(self, method: str, *, limit_s: float = ANSWER_LIMIT_S) -> None:
        """Return when one of this method has come; it is taken off the list.

        Raises: AssertionError where none comes within the limit.
        """
        deadline = time.monotonic() + limit_s
        while True:
            for found in self.notifications:
                if found["method"] == method:
                    self.notifications.remove(found)
                    return
            assert self.read(deadline - time.monotonic()), f"no {method} in {limit_s:g} s"

    def read(self, limit_s: float) -> bool:
        """Take what comes next; False when nothing came, or the program has ended."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        ready, _, _ = select.select([fd], [], [], max(0.0, limit_s))
        data = os.read(fd, 1 << 20) if ready else b""
        if not data:
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._sort(json.loads(line))
        return True

    def _sort(self, message: dict[str, Any]) -> None:
        assert message["jsonrpc"] == "2.0", message
        if "method" in message:
            assert "id" not in message, f"nothing is asked of this client: {message}"
            self.notifications.append(message)
        else:
            assert ("result" in message) != ("error" in message), message
            assert message["id"] not in self._answers, f"answered twice: {message}"
            self._answers[message["id"]] = message

    # --- what clients do ----------------------------------------------------------------

    def handshake(self, version: str = LATEST_HANDSHAKE) -> dict[str, Any]:
        """Initialise; what the server says of itself."""
        number = self.request(
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "raw", "version": "1"},
            },
        )
        result: dict[str, Any] = self.answer(number)["result"]
        self.send(method="notifications/initialized")
        return result

    def start(self, tool: str, arguments: dict[str, Any], *, token: str | int | None = None) -> int:
        """Call a tool; the request's id."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return self.request("tools/call", params)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and wait; its result."""
        return self.result(self.start(tool, arguments))

    def result(self, number: int, *, limit_s: float = ANSWER_LIMIT_S) -> dict[str, Any]:
        """The result of a call."""
        answer = self.answer(number, limit_s=limit_s)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools by name."""
        listed = self.answer(self.request("tools/list"))["result"]["tools"]
        return {tool["name"]: tool for tool in listed}

    def progress(self, token: str | int) -> list[dict[str, Any]]:
        """What has been reported for this token so far."""
        return [
            one["params"]
            for one in self.notifications
            if one["method"] == "notifications/progress" and one["params"]["progressToken"] == token
        ]

    def end(self) -> int:
        """Close its stdin, as a client ends a server; the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(ANSWER_LIMIT_S)


def relay_environment(broker: Broker, capsule: str) -> dict[str, str]:
    """The environment of a relay that is called from outside a capsule: kind none."""
    return {"PATH": SEARCH_PATH, "JACKIN_BROKER_SOCKET": broker.socket_of(capsule)}


@contextmanager
def raw_client(broker: Broker, cwd: Path, *, capsule: str = "web") -> Generator[RawClient]:
    """A client of a capsule of kind none, before its handshake; ended on the way out."""
    argv = [program("jackin-capsule"), "mcp"]
    client = RawClient(argv, relay_environment(broker, capsule), cwd)
    try:
        yield client
    finally:
        end_process(client.process)
