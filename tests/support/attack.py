"""What an agent's code looks for when it runs as a host command, and how it comes to run.

`ATTACK` is a program that looks wherever something of the operator's could be, writes what it
found beside itself and leaves a process behind; `WAYS` are projects in which a listed program runs
it. It refuses to know how commands are confined: unconfined, it finds everything.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .real import SYSTEM_PYTHON

# Before the dot: longer than any test; the rest tells one attack's process from another's.
_STAYS_S: Final = "600"
_TIDY: Final = ("-c", "user.name=t", "-c", "user.email=t@example.com")

# Its first lines are filled in: where to look, for what, and how its leftover is known.
ATTACK: Final = """\
#!{python} -I
import json, os, socket, subprocess, sys
marker, places, sockets, leftover = {marker!r}.encode(), {places!r}, {sockets!r}, {leftover!r}
found = {{"files": [], "environments": [], "sockets": []}}

def has(path):
    try:
        with open(path, "rb") as file:
            return marker in file.read(1 << 20)
    except OSError:
        return False

for place in places:
    for folder, _, names in os.walk(place):
        for path in (os.path.join(folder, name) for name in names):
            if os.path.isfile(path) and has(path):
                found["files"].append(path)
            elif os.path.exists(path) and path.endswith("agent"):
                sockets.append(path)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if has(f"/proc/{{pid}}/environ"):
        found["environments"].append(pid)
for path in sockets:
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(path.replace("@", "\\0", 1) if path.startswith("@") else path)
        except OSError:
            continue
        found["sockets"].append(path)
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen(["/bin/sleep", leftover], start_new_session=True, **quiet)
with open({out!r}, "w") as file:
    json.dump(found, file)
"""


@dataclass(frozen=True)
class Target:
    """What an attack looks for: files and environments with `marker` in them, and sockets."""

    marker: str
    places: Sequence[str]
    sockets: Sequence[str]


class Attack:
    """One attack in one project."""

    def __init__(self, project: Path, target: Target) -> None:
        self.project: Final = project
        self.leftover: Final = f"{_STAYS_S}.{os.getpid()}{abs(hash(project)) % 10_000:04}"
        self.program: Final = project / "attack"
        self._out: Final = project / "found"
        self.program.write_text(
            ATTACK.format(
                python=SYSTEM_PYTHON,
                marker=target.marker,
                places=list(target.places),
                sockets=list(target.sockets),
                leftover=self.leftover,
                out=str(self._out),
            )
        )
        self.program.chmod(0o755)

    @property
    def has_run(self) -> bool:
        return self._out.exists()

    @property
    def found(self) -> dict[str, list[str]]:
        """What it found, by kind."""
        answer: dict[str, list[str]] = json.loads(self._out.read_text())
        return answer


def git(project: Path, *words: str) -> None:
    """A git command of the project's owner, who is the agent."""
    subprocess.run(["git", *_TIDY, *words], cwd=project, check=True, capture_output=True)


def _repository(attack: Attack) -> None:
    git(attack.project, "init", "-q")
    git(attack.project, "commit", "-q", "--allow-empty", "-m", "one")


def fsmonitor(attack: Attack) -> list[str]:
    """`git status` asks a program which files changed."""
    _repository(attack)
    git(attack.project, "config", "core.fsmonitor", str(attack.program))
    return ["git", "status"]


def gpg_program(attack: Attack) -> list[str]:
    """`git log --show-signature` has a program verify what looks like a signature."""
    _repository(attack)
    raw = _read(attack.project, "cat-file", "commit", "HEAD")
    head, _, message = raw.partition(b"\n\n")
    ends = [b"-----%s PGP SIGNATURE-----" % word for word in (b"BEGIN", b"END")]
    signed = head + b"\ngpgsig " + b"\n \n x\n ".join(ends) + b"\n\n" + message
    made = _read(attack.project, "hash-object", "-t", "commit", "-w", "--stdin", stdin=signed)
    git(attack.project, "reset", "-q", "--hard", made.decode().strip())
    git(attack.project, "config", "gpg.program", str(attack.program))
    return ["git", "log", "--show-signature"]


def pre_push(attack: Attack) -> list[str]:
    """`git push` runs a hook of the repository's."""
    _repository(attack)
    shutil.copy(attack.program, attack.project / ".git" / "hooks" / "pre-push")
    git(attack.project, "init", "-q", "--bare", "remote.git")
    return ["git", "push", "./remote.git", "HEAD:refs/heads/x"]


def npm_script(attack: Attack) -> list[str]:
    """A script of package.json."""
    scripts = {"name": "x", "version": "1.0.0", "scripts": {"x": str(attack.program)}}
    (attack.project / "package.json").write_text(json.dumps(scripts))
    return ["npm", "run", "x"]


def makefile(attack: Attack) -> list[str]:
    """A recipe."""
    (attack.project / "Makefile").write_text(f"all:\n\t{attack.program}\n")
    return ["make"]


WAYS: Final[dict[str, Callable[[Attack], list[str]]]] = {
    "core.fsmonitor": fsmonitor,
    "gpg.program": gpg_program,
    "pre-push": pre_push,
    "npm script": npm_script,
    "Makefile": makefile,
}


def _read(project: Path, *words: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["git", *words], cwd=project, check=True, capture_output=True, input=stdin
    )
    return done.stdout
