"""A broker with a bridge into a capsule of kind remote, and clients that come over it.

The seed's client is `seed_client.sh`; ours are the installed shim and the shell shim. It refuses to
know the bridge's insides: addresses and token come from `jackin-broker capsule env`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from .broker import PROGRAMS, Broker, broker
from .real import SEARCH_PATH, require_program, short_directory
from .source_tree import REPOSITORY

SEED_CLIENT: Final = Path(__file__).with_name("seed_client.sh")
SHELL_SHIM: Final = REPOSITORY / "capsule" / "jackin_capsule" / "jackin-exec-sh"
# A call of a test takes milliseconds; only a hang takes longer.
CALL_LIMIT_S: Final = 60.0
_HOST_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
_HEAD: Final = """schema = 1
[broker]
no_operator = "wait"
"""
_CAPSULE: Final = """[capsules.{name}]
kind = "remote"
host_binaries = [{listed}]
mounts = [{{ capsule = "{work}", host = "{work}" }}]
compat = ["construct"]
fallback_cwd = "{work}"
"""


class Bridged:
    """The broker, the directory that the capsule shares, and the capsule's variables."""

    def __init__(self, running: Broker, work: Path, name: str) -> None:
        self.broker: Final = running
        self.work: Final = work
        self.name: Final = name
        self.env: dict[str, str] = {}
        self.links: Final = work.parent / "links"
        self.refresh()

    def refresh(self) -> None:
        """Enter the capsule anew: its variables as they are now; none where it has no bridge."""
        done = self.broker.run("capsule", "env", self.name, "--json")
        self.env = dict(json.loads(done.stdout)["env"]) if done.returncode == 0 else {}

    @property
    def url(self) -> str:
        return self.env["JACKIN_EXEC_URL"]

    @property
    def token(self) -> str:
        return self.env["JACKIN_EXEC_TOKEN"]

    def environ(self, **more: str) -> dict[str, str]:
        """What a program in the capsule has."""
        return {
            "PATH": f"{PROGRAMS}:{SEARCH_PATH}",
            "LANG": "C.UTF-8",
            "HOME": str(self.work),
            **self.env,
            **more,
        }

    def argv_of(self, client: Path, argv: Sequence[str]) -> list[str]:
        """`client` under the name of the command, as a link in a directory of its own."""
        self.links.mkdir(exist_ok=True)
        link = self.links / argv[0]
        link.unlink(missing_ok=True)
        link.symlink_to(client)
        return [str(link), *argv[1:]]

    def seed(
        self, *argv: str, stdin: bytes = b"", cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[bytes]:
        """One call by the client that was written from the seed's text."""
        for program, package in (("curl", "curl"), ("jq", "jq"), ("base64", "coreutils")):
            require_program(program, package=package)
        return self._run(self.argv_of(SEED_CLIENT, argv), stdin, cwd, more)

    def shell(
        self, *argv: str, stdin: bytes | None = None, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[bytes]:
        """One call by the shim for sh and curl."""
        require_program("curl", package="curl")
        return self._run([str(SHELL_SHIM), "--", *argv], stdin, cwd, more)

    def frames(
        self, *argv: str, stdin: bytes | None = None, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[bytes]:
        """One call by jackin-exec, over TCP."""
        return self._run([str(PROGRAMS / "jackin-exec"), "--", *argv], stdin, cwd, more)

    def post(
        self, body: object, *options: str, token: str | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """`POST /exec` with curl; stdout is the body and, on a line of its own, the status."""
        require_program("curl", package="curl")
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        argv = ["curl", "-sSN", "-X", "POST", "--data-binary", "@-", "-w", "\n%{http_code}"]
        if token != "":
            argv += ["-H", f"X-Construct-Exec-Token: {self.token if token is None else token}"]
        return self._run([*argv, *options, f"{self.url}/exec"], data, None, {})

    def line(self, event: str) -> dict[str, Any]:
        """The newest line of that kind in the record."""
        return next(line for line in reversed(self.broker.audit()) if line["event"] == event)

    def _run(
        self, argv: Sequence[str], stdin: bytes | None, cwd: Path | None, more: dict[str, str]
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            argv,
            env=self.environ(**more),
            cwd=cwd or self.work,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=CALL_LIMIT_S,
        )


def status_and_body(done: subprocess.CompletedProcess[bytes]) -> tuple[int, bytes]:
    """What `post` got."""
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), body


def configuration(
    work: Path, allowed: Sequence[str], asked: Sequence[str], *, name: str = "vm", more: str = ""
) -> str:
    """One remote capsule whose listed programs run as they are, allowed or asked."""
    listed = ", ".join(f'"{one}"' for one in (*allowed, *asked))
    text = _HEAD + _CAPSULE.format(name=name, listed=listed, work=work) + more
    for one in (*allowed, *asked):
        text += f"[capsules.{name}.binaries.{one}]\nconfine = false\n"
    for one in allowed:
        text += (
            f'[[rules]]\naction = "allow"\nargv = ["{one}", "..."]\nstdin = "live"\ntty = true\n'
        )
    return text


@contextmanager
def bridged(
    *allowed: str,
    asked: Sequence[str] = (),
    more: str = "",
    limits: str = "",
    env: dict[str, str] | None = None,
) -> Generator[Bridged]:
    """A running broker with a bridge. `more` goes into the capsule's table."""
    with short_directory() as folder:
        work = folder / "work"
        work.mkdir()
        text = configuration(work, allowed, asked, more=more) + limits
        with broker(text, env={"PATH": _HOST_PATH, **(env or {})}) as running:
            yield Bridged(running, work, "vm")


def has_program(name: str) -> bool:
    """Whether a program is here at all."""
    return shutil.which(name, path=os.pathsep.join((SEARCH_PATH, ""))) is not None
