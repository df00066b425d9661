"""DESIGN §9: what git runs for a project is the project's code; confined, it finds nothing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support import real
from support.machine import Machine, Neighbour, furnish, is_running

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def bubblewrap() -> str:
    return real.require_bwrap()


@pytest.fixture
def machine(private_home: Path) -> Machine:
    return furnish(private_home)


@pytest.fixture
def listener(machine: Machine) -> Iterator[socket.socket]:
    """A socket like operator.sock, in the runtime directory."""
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(machine.home / "run" / "operator.sock"))
        made.listen()
        yield made


ATTACK = """#!/bin/sh
{{
  cat {home}/.netrc {home}/config/config.toml {home}/state/vault.age
  for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done | grep SECRET
  {python} -I - <<'CODE'
import socket
for place in ("{home}/run/operator.sock", "/tmp/tmux-{uid}/default"):
    try:
        socket.socket(socket.AF_UNIX).connect(place); print("reached", place)
    except OSError: pass
CODE
  setsid sh -c 'sleep 600.75' &
}} > {out} 2>/dev/null
echo ran >> {out}
exit 0
"""


@pytest.mark.parametrize("way", ["core.fsmonitor", "gpg.program", "pre-push", "alias"])
def test_code_that_git_runs_finds_nothing_and_leaves_nothing(
    machine: Machine, listener: socket.socket, way: str
) -> None:
    """STACK: `git push`, `git status`, `git log` run the project's code; all of it was used."""
    git = real.require_program("git", package="git")
    out = machine.project / "found"
    attack = machine.project / "attack"
    attack.write_text(
        ATTACK.format(home=machine.home, python=real.SYSTEM_PYTHON, uid=os.geteuid(), out=out)
    )
    attack.chmod(0o755)
    argv = prepare_attack(git, machine, attack, way)
    with Neighbour(machine.secret):
        machine.run(argv, env={b"PATH": b"/usr/bin:/bin", b"HOME": os.fsencode(machine.home)})
    text = out.read_text()
    assert text.endswith("ran\n")
    assert machine.secret not in text
    assert "reached" not in text
    real.wait_until(lambda: not is_running("600.75"), "what setsid started ends", limit_s=5)


def prepare_attack(git: str, machine: Machine, attack: Path, way: str) -> list[str | bytes]:
    """A repository in which `way` runs the attack, and the command that triggers it."""

    def do(*words: str) -> None:
        subprocess.run(
            [git, "-c", "user.name=t", "-c", "user.email=t@example.com", *words],
            cwd=machine.project,
            check=True,
            capture_output=True,
        )

    do("init", "-q")
    (machine.project / "file").write_text("x")
    do("add", "file")
    do("commit", "-q", "-m", "one")
    if way == "core.fsmonitor":
        do("config", way, str(attack))
        return [git, "status"]
    if way == "gpg.program":
        sign(machine, git)
        do("config", "gpg.program", str(attack))
        return [git, "log", "--show-signature"]
    if way == "alias":
        do("config", "alias.x", f"!{attack}")
        return [git, "x"]
    shutil.copy(attack, machine.project / ".git" / "hooks" / "pre-push")
    remote = machine.project / "remote.git"
    do("init", "-q", "--bare", str(remote))
    return [git, "push", str(remote), "HEAD:refs/heads/x"]


def sign(machine: Machine, git: str) -> None:
    """Put something that looks like a signature into the commit, so that git verifies it."""
    raw = subprocess.run(
        [git, "cat-file", "commit", "HEAD"],
        cwd=machine.project,
        check=True,
        capture_output=True,
    ).stdout
    head, _, message = raw.partition(b"\n\n")
    begin = b"-----BEGIN PGP " + b"SIGNATURE-----"
    end = b"-----END PGP " + b"SIGNATURE-----"
    signed = head + b"\ngpgsig " + begin + b"\n \n x\n " + end + b"\n\n" + message
    made = subprocess.run(
        [git, "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=machine.project,
        input=signed,
        check=True,
        capture_output=True,
    ).stdout.strip()
    subprocess.run([git, "reset", "-q", "--hard", made], cwd=machine.project, check=True)
