"""The CGI bridge of `git_http.py`, a program of its own: HTTP and a password before git.

`python git_bridge.py ROOT LOG` reads the password from stdin, prints its loopback port and serves
until it is ended. Only the right user and password reach `git http-backend`. It logs one line a
request, never the password.
"""

from __future__ import annotations

import base64
import hmac
import http.server
import os
import subprocess
import sys
from typing import Final

USER: Final = "agent"
# A back end that takes longer hangs.
GIT_LIMIT_S: Final = 60
# What a configuration of the machine could change about the server.
GIT_ENV: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_CONFIG_KEY_1": "init.defaultBranch",
    "GIT_CONFIG_VALUE_1": "main",
}


class _Handler(http.server.BaseHTTPRequestHandler):
    """CGI as RFC 3875 has it, as far as git's smart protocol needs it."""

    protocol_version = "HTTP/1.1"
    expected = b""
    root = ""
    log_file = ""

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._body())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr; `_answer` keeps the log."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts: list[bytes] = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _serve(self, body: bytes) -> None:
        given = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, self.expected):
            self._answer(401, [("WWW-Authenticate", 'Basic realm="git"')], b"")
            return
        path, _, query = self.path.partition("?")
        env = {
            **GIT_ENV,
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_USER": USER,
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env=env,
            capture_output=True,
            timeout=GIT_LIMIT_S,
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [
            (name.strip(), value.strip())
            for name, _, value in (line.partition(":") for line in head.decode().splitlines())
        ]
        status = next((value for name, value in headers if name == "Status"), "200 OK")
        rest = [(name, value) for name, value in headers if name != "Status"]
        self._answer(int(status.split()[0]), rest, content)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        with open(self.log_file, "a") as log:
            log.write(f"{status} {self.command} {self.path}\n")
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _listen(root: str, log_file: str) -> None:
    """Serve until the process is ended; prints the port first. The password is on stdin."""
    password = sys.stdin.readline().strip()
    credentials = base64.b64encode(f"{USER}:{password}".encode())
    _Handler.expected = b"Basic " + credentials
    _Handler.root = root
    _Handler.log_file = log_file
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    _listen(sys.argv[1], sys.argv[2])
