"""An operator's machine for one test: secrets where nobody may look, a project of the agent's.

The programs that look for them are here too. It refuses to know how commands are confined.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jackin_broker.config.model import BinaryConfig

from . import real
from .commands import Sink, confined, run, within, workdir_at


@dataclass
class Machine:
    """An operator's HOME with a project in it, and what nobody may see."""

    home: Path
    project: Path
    secret: str = field(default_factory=lambda: "tok" + secrets.token_hex(12))

    @property
    def trust_roots(self) -> tuple[str, ...]:
        return tuple(str(self.home / name) for name in ("config", "state", "run"))

    def run(
        self,
        argv: list[str | bytes],
        config: BinaryConfig | None = None,
        *,
        read_only: bool = False,
        env: dict[bytes, bytes] | None = None,
    ) -> Sink:
        """Run a confined command in the project."""
        sink = Sink()
        with workdir_at(self.project, read_only=read_only) as cwd:
            how = confined(cwd, config, self.trust_roots)
            ended = within(run(argv, sink, workdir=cwd, how=how, env=env))
        sink.exit_code = ended.exit_code
        return sink

    def python(self, code: str, config: BinaryConfig | None = None, *words: str) -> str:
        """What a confined Python program prints; it must succeed."""
        sink = self.run([real.SYSTEM_PYTHON, "-I", "-c", textwrap.dedent(code), *words], config)
        assert sink.exit_code == 0, sink.err.decode()
        return sink.out.decode()


def furnish(home: Path) -> Machine:
    """A machine with secrets in every place that must be hidden."""
    project = home / "src" / "app"
    project.mkdir(parents=True)
    made = Machine(home, project)
    for place in ("config/config.toml", "state/vault.age", "run/note", ".netrc", "src/other/.env"):
        path = home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made.secret)
    return made


# Prints the paths of all files below the given places that contain the first word.
SEARCH: Final = """
    import os, sys
    needle = sys.argv[1].encode()
    found = []
    for top in sys.argv[2:]:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    with open(path, "rb") as file:
                        if needle in file.read(1 << 20):
                            found.append(path)
                except OSError:
                    continue
    print(found)
"""


class Neighbour:
    """Another process of the operator with a secret in its environment."""

    def __init__(self, secret: str) -> None:
        self._process = subprocess.Popen(["/bin/sleep", "60"], env={"SECRET": secret})

    def __enter__(self) -> int:
        return self._process.pid

    def __exit__(self, *_: object) -> None:
        real.end_process(self._process)


# Prints whether a socket can be connected to.
CONNECT: Final = """
    import socket, sys
    kind, name = sys.argv[1:]
    family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
    place = {"path": name, "abstract": "\\0" + name, "tcp": ("127.0.0.1", name)}[kind]
    if kind == "tcp":
        place = (place[0], int(place[1]))
    try:
        with socket.socket(family) as one:
            one.connect(place)
        print("reached")
    except OSError as error:
        print("refused", error.errno)
"""


def is_running(marker: str) -> bool:
    """Whether a process with this word among its arguments is left."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(marker) in words:
                return True
    return False
