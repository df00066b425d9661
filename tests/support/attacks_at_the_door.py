"""What an agent tries at its capsule's doorway, and beyond it; run by the capsule's own Python.

Standard library alone. Its argument is JSON: host paths of the operator's, sockets among them. It
prints one JSON object: what it reached, and what the broker answered. It refuses to know what is
right: the test does.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress

_DOOR = "/jackin/run/broker.sock"
_LIMIT_S = 30.0
# More than a capsule may have at once.
_FLOOD = 200


def connected(path: str = _DOOR) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)  # waits for a place in the queue
    sock.settimeout(_LIMIT_S)
    return sock


def reached(paths: list[str]) -> list[str]:
    """The sockets that let it in, by their host paths and by what other processes see."""
    found: list[str] = []
    for path in paths:
        for seen in (path, f"/proc/1/root{path}", f"/jackin/run/..{path}"):
            try:
                connected(seen).close()
            except OSError:
                continue
            found.append(seen)
    return found


def squatted() -> list[str]:
    """What could be changed where the doorway is."""
    done: list[str] = []
    for name, attempt in (
        ("unlink", lambda: os.unlink(_DOOR)),
        ("rename", lambda: os.rename(_DOOR, _DOOR + ".old")),
        ("chmod", lambda: os.chmod(_DOOR, 0o640)),
        ("bind", lambda: socket.socket(socket.AF_UNIX).bind(_DOOR + ".new")),
        ("link", lambda: os.symlink("/tmp", "/jackin/run/link")),
        ("program", lambda: os.unlink("/jackin/bin/jackin-exec")),
    ):
        try:
            attempt()
        except OSError:
            continue
        done.append(name)
    return done


def said(*pieces: bytes, ends: bool = False) -> str:
    """What the broker answers to these bytes, sent one after the other."""
    with connected() as sock:
        answer = b""
        with suppress(OSError):
            for piece in pieces:
                sock.sendall(piece)
            if ends:
                sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(65_536):
                answer += part
    return answer[4:].decode(errors="replace")


def frame(**message: object) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body


def request(cwd: str) -> bytes:
    return frame(type="ExecCommand", protocol=1, command="uname", args=[], cwd=cwd)


def flooded() -> str:
    """What the last of many who say nothing is told; all of them leave then."""
    held: list[socket.socket] = []
    try:
        for _ in range(_FLOOD):
            held.append(connected())
        return held[-1].recv(65_536)[4:].decode(errors="replace")
    finally:
        for sock in held:
            sock.close()


def main() -> None:
    """Try it all."""
    places: dict[str, list[str]] = json.loads(sys.argv[1])
    with suppress(FileExistsError):
        os.symlink("/etc", "/workspace/link")
    print(
        json.dumps(
            {
                "reached": reached(places["sockets"]),
                "seen": [path for path in places["files"] if os.path.exists(path)],
                "squatted": squatted(),
                "answers": {
                    "giant": said((2**32 - 1).to_bytes(4, "big")),
                    "half": said(b"\0\0", ends=True),
                    "slow": said(b"\0", b"\0", b"\1", b"\0", b"{", ends=True),
                    "decide": said(frame(type="Decide", id="x", approve=True)),
                    "status": said(frame(type="GetStatus", seq=1)),
                    "record": said(frame(type="RecordInit", seq=1, name="web", pid=os.getpid())),
                    "link": said(request("/workspace/link")),
                    "flood": flooded(),
                },
            }
        )
    )


main()
