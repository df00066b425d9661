"""DESIGN §8, §9: `su` is unconfined, as configured, and is told its password when it asks.

The operator is a plain user here, as everywhere but in these tests: of root nobody asks anything.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from support.accounts import Account, password_hash, with_accounts
from support.agent import Agent
from support.broker import Broker
from support.real import missing, require_program, short_directory
from support.second_uid import unused_uid

CONFIG: Final = """schema = 1
[broker]
no_operator = "wait"
keyring = "vault"
[env]
SU_PASS = {{ file = "{folder}/password", on_demand = true, deliver = "prompt", prompt = "word: $" }}
[capsules.web]
kind = "none"
uids = [0]
host_binaries = ["su"]
[capsules.web.binaries.su]
confine = false
[[rules]]
action = "allow"
argv = ["su", "..."]
bindings = ["SU_PASS"]
trust_cwd = true
"""


class Bench(NamedTuple):
    """A broker of a plain user, the agent, and the account that su opens."""

    broker: Broker
    agent: Agent
    other: Account
    password: str


def readable_copy(place: Path) -> Path:
    """Our packages where every uid can read them; the interpreter's own must be readable."""
    if not all(step.stat().st_mode & 0o001 for step in Path(sys.executable).resolve().parents):
        missing(f"a second uid cannot run {sys.executable}: put the environment elsewhere")
    for name in ("jackin_broker", "jackin_capsule", "jackin_picker"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        shutil.copytree(spec.submodule_search_locations[0], place / name)
    return place


@pytest.fixture
def bench() -> Iterator[Bench]:
    require_program("su", package="util-linux")
    password = "pass" + secrets.token_hex(12)
    with short_directory(0o755) as folder, short_directory(0o711) as home:
        uid = unused_uid(1520)
        operator = Account("operator", uid, str(home))
        other = Account("other", unused_uid(uid + 1), "/", password_hash=password_hash(password))
        prefix = with_accounts(folder, operator, other, run_as=operator)
        library = readable_copy(folder / "library")
        env = {"PYTHONPATH": str(library), "PATH": "/usr/bin:/bin"}
        made = Broker(home, CONFIG.format(folder=home), env, prefix)
        (home / "password").write_text(password)
        (home / "password").chmod(0o600)
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, uid)
        try:
            made.start()
            yield Bench(made, Agent(made, "web", home / "home"), other, password)
        finally:
            made.end()


def test_su_is_told_the_password_and_nobody_sees_it(bench: Bench) -> None:
    """What a set-uid program runs is hidden from a plain user: its uid says what it became."""
    done = bench.agent.run("su", "other", "-c", "id -u")
    assert done.returncode == 0, (done.stdout, done.stderr, bench.broker.stderr)
    assert done.stdout.splitlines()[-1] == str(bench.other.uid).encode()
    assert bench.password.encode() not in done.stdout + done.stderr
    assert bench.broker.audit()[-1]["typed"] == ["SU_PASS"]


def test_what_su_starts_is_told_nothing(bench: Bench) -> None:
    """A value is typed once; and the same question is another program's by then."""
    script = 'stty -echo; printf "Password: "; read -t 1 -r x; echo "got [$x]"'
    argv = ("su", "other", "--session-command", f"bash -c '{script}'")
    done = bench.agent.run(*argv)
    assert b"got []" in done.stdout, done
    assert bench.broker.audit()[-1]["typed"] == ["SU_PASS"]
