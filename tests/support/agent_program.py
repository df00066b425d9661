"""The agent of the tests: a program that runs inside the capsule and does what it is told.

One JSON object a line on stdin is an order, one on stdout an answer. It runs under the capsule's
own interpreter, standard library alone, and is no part of the product: it only calls programs
and looks around, as an agent would. Orders: `start`, `kill`, `look`.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from typing import Any

_answers = threading.Lock()
_children: dict[int, subprocess.Popen[bytes]] = {}


def answer(**fields: Any) -> None:
    """Write one line."""
    with _answers:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def start(order: dict[str, Any]) -> None:
    """Run a program; answer with its pid now, and with all that it wrote when it ends."""
    stdin = base64.b64decode(order["stdin"]) if order["stdin"] is not None else None
    try:
        child = subprocess.Popen(
            order["argv"],
            cwd=order["cwd"],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        answer(id=order["id"], error=str(error))
        return
    _children[order["id"]] = child
    answer(id=order["id"], pid=child.pid)

    def follow() -> None:
        out, err = child.communicate(stdin)
        answer(
            id=order["id"],
            status=child.returncode,
            stdout=base64.b64encode(out).decode(),
            stderr=base64.b64encode(err).decode(),
        )

    threading.Thread(target=follow, daemon=True).start()


def readable(path: str) -> bytes | None:
    """A file's beginning, or None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(1024 * 1024)
    except OSError:
        return None


def look(order: dict[str, Any]) -> None:
    """Answer with everything readable: each process's argv and environment, each file."""
    found: dict[str, str] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            content = readable(f"/proc/{pid}/{name}")
            if content:
                found[f"/proc/{pid}/{name}"] = base64.b64encode(content).decode()
    roots: list[str] = order["roots"]
    for root in roots:
        for folder, _, names in os.walk(root):
            for path in (os.path.join(folder, name) for name in names):
                content = readable(path) if os.path.isfile(path) else None
                if content:
                    found[path] = base64.b64encode(content).decode()
    answer(id=order["id"], found=found)


def main() -> None:
    """Obey until stdin ends."""
    answer(id=0, uid=os.getuid(), pid=os.getpid(), environ=dict(os.environ))
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "start":
            start(order)
        elif order["do"] == "kill":
            os.kill(_children[order["target"]].pid, order["signal"])
        elif order["do"] == "look":
            look(order)


main()
