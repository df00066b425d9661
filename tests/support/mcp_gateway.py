"""Streamable HTTP in front of a relay, for a test suite that speaks nothing else.

The least of it: one JSON answer a POST, no streams. It adds nothing to what the server says and
refuses to know any method but `initialize`, which begins a session. Local, and of the tests alone.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from .broker import Broker
from .mcp_client import RawClient, raw_client

_SESSION = "Mcp-Session-Id"


class _Gateway(ThreadingHTTPServer):
    """The sessions, each a relay with its server."""

    daemon_threads = True

    def __init__(self, broker: Broker, cwd: Path, parts: ExitStack) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._broker, self._cwd, self._parts = broker, cwd, parts
        self._sessions: dict[str, tuple[RawClient, threading.Lock]] = {}

    def begin(self) -> str:
        name = secrets.token_hex(8)
        client = self._parts.enter_context(raw_client(self._broker, self._cwd))
        self._sessions[name] = (client, threading.Lock())
        return name

    def pass_on(self, session: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, or None for what is not answered."""
        client, lock = self._sessions[session]
        with lock:
            client.send_line(json.dumps(message).encode())
            return client.answer(message["id"]) if "id" in message else None


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        gateway = cast(_Gateway, self.server)
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get(_SESSION) or gateway.begin()
        answer = gateway.pass_on(session, message)
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(202 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header(_SESSION, session)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def gateway(broker: Broker, cwd: Path) -> Generator[str]:
    """The URL of a gateway to this broker's capsule of kind none."""
    with ExitStack() as parts:
        server = _Gateway(broker, cwd, parts)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
