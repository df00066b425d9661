"""Network namespaces of a test's own, each joined to this machine by a pair of virtual wires.

`ip netns` and veth; needs root. What runs inside also gets a file system of its own (bubblewrap):
the system's programs read-only, the capsule's programs as a copy, nothing else of this machine's.
It refuses to know the broker. Everything is removed on the way out.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .real import START_LIMIT_S, missing, require_bwrap, require_program, require_root

# For benchmarks between networks (RFC 2544): nobody's, so nothing else is there. A /30 each, at
# random, so that two runs of the tests do not meet.
_NETWORK: Final = "198.18.{third}.{fourth}"
_SYSTEM: Final = (
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/sbin",
    "/etc/alternatives",
    "/etc/ld.so.cache",
)
CWD: Final = "/workspaces/app"


class NetworkNamespace:
    """One namespace: `outside` is our address as it sees it, `inside` its own."""

    def __init__(self, name: str, programs: Path) -> None:
        third, first = secrets.randbelow(256), 4 * secrets.randbelow(64)
        self.name: Final = name
        self.outside: Final = _NETWORK.format(third=third, fourth=first + 1)
        self.inside: Final = _NETWORK.format(third=third, fourth=first + 2)
        self._programs = programs

    def argv(self, *command: str, tty: bool = False) -> list[str]:
        """The argv that runs a command inside, in a file system of its own."""
        bind = [word for place in _SYSTEM for word in ("--ro-bind-try", place, place)]
        return [
            *("ip", "netns", "exec", self.name, require_bwrap()),
            *(*bind, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
            *("--ro-bind", str(self._programs), "/jackin/bin", "--dir", CWD, "--chdir", CWD),
            *("--unshare-pid", "--die-with-parent", *(() if tty else ("--new-session",)), "--"),
            *command,
        ]

    def run(
        self, *command: str, env: dict[str, str], stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command inside to its end."""
        return subprocess.run(
            self.argv(*command),
            env=environ(env),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=60,
        )


def environ(env: dict[str, str]) -> dict[str, str]:
    """What a program inside has, beside `env`."""
    path = "/jackin/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {"PATH": path, "LANG": "C.UTF-8", "HOME": "/tmp", **env}


@contextmanager
def network_namespace(programs: Path) -> Generator[NetworkNamespace]:
    """A namespace; `programs` is a directory whose copy is its /jackin/bin."""
    require_root()
    require_bwrap()
    ip = require_program("ip", package="iproute2")
    name = f"jx{os.getpid()}{secrets.token_hex(2)}"
    made = NetworkNamespace(name, programs)
    ours, theirs = f"{name[:13]}o", f"{name[:13]}i"
    added = subprocess.run([ip, "netns", "add", name], capture_output=True, timeout=START_LIMIT_S)
    if added.returncode:
        missing(f"network namespaces cannot be made here: {added.stderr.decode().strip()}")
    try:
        steps: Sequence[Sequence[str]] = (
            ("link", "add", ours, "type", "veth", "peer", "name", theirs),
            ("link", "set", theirs, "netns", name),
            ("address", "add", f"{made.outside}/30", "dev", ours),
            ("link", "set", ours, "up"),
            ("-n", name, "address", "add", f"{made.inside}/30", "dev", theirs),
            ("-n", name, "link", "set", theirs, "up"),
            ("-n", name, "link", "set", "lo", "up"),
            ("-n", name, "route", "add", "default", "via", made.outside),
        )
        for step in steps:
            subprocess.run([ip, *step], check=True, capture_output=True, timeout=START_LIMIT_S)
        yield made
    finally:
        # With the namespace goes its end of the pair, and with that ours.
        subprocess.run([ip, "netns", "delete", name], capture_output=True, timeout=START_LIMIT_S)
        subprocess.run([ip, "link", "delete", ours], capture_output=True, timeout=START_LIMIT_S)


def copy_programs(source: Path, to: Path) -> Path:
    """The capsule's programs as somebody would copy them into a VM."""
    shutil.copytree(source, to, symlinks=True)
    return to
