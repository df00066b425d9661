"""When jackin-exec-sh asks for what, and what it says when it is not told: a bridge by script."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.bridge import SHELL_SHIM
from support.real import SEARCH_PATH, START_LIMIT_S, require_program

TOKEN = "tok"


class Script:
    """What the bridge answers to each request below `/plain/ID`."""

    def __init__(self, refused: tuple[str, ...] = (), lost: tuple[str, ...] = ()) -> None:
        self.refused = refused
        self.lost = lost
        self.status_is_asked = threading.Event()

    def answer(self, name: str) -> bytes:
        if name == "status":
            self.status_is_asked.set()
            return b"9\n"
        assert self.status_is_asked.wait(START_LIMIT_S), "the status is asked for from the start"
        return b"out\n" if name == "stdout" else b""


@contextmanager
def bridge(script: Script) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._say(200, b"0a1b\n")

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            if name in script.lost:
                script.status_is_asked.set()
                self.close_connection = True
            elif name in script.refused:
                script.status_is_asked.set()
                self._say(401, b'{"error":"the token is wrong"}')
            else:
                self._say(200, script.answer(name))

        def do_DELETE(self) -> None:
            self._say(401, b"")

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join(START_LIMIT_S)


def call(script: Script) -> subprocess.CompletedProcess[bytes]:
    require_program("curl", package="curl")
    with bridge(script) as url:
        return subprocess.run(
            [str(SHELL_SHIM), "--", "true"],
            env={"PATH": SEARCH_PATH, "JACKIN_EXEC_URL": url, "JACKIN_EXEC_TOKEN": TOKEN},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * START_LIMIT_S,
        )


def test_the_status_is_asked_for_before_the_output_ends() -> None:
    """Later the token may be worthless and the port another: a command that runs keeps its end."""
    done = call(Script())
    assert (done.returncode, done.stdout, done.stderr) == (9, b"out\n", b"")


@pytest.mark.parametrize(
    "refused", [("stdout", "stderr", "status"), ("status",), ("stdout",)], ids="+".join
)
def test_a_token_that_is_taken_back_as_it_begins_is_said_and_124(refused: tuple[str, ...]) -> None:
    """docs/host-exec-bridge.md: ended from outside; never what the broker's refusal looks like."""
    done = call(Script(refused=refused))
    assert done.returncode == 124
    assert b"error: the token was taken back" in done.stderr
    assert b"jackin-broker capsule env NAME" in done.stderr
    assert b"the token is wrong" not in done.stdout


def test_a_broker_that_goes_before_it_told_the_status_is_said_and_124() -> None:
    done = call(Script(lost=("status",)))
    assert (done.returncode, done.stdout) == (124, b"out\n")
    assert b"error: the broker went away before it told the exit status" in done.stderr
