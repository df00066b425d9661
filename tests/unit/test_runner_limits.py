"""Optional limits of one command: what it may reserve, how many processes it may have."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jackin_broker.config.usage import ADDRESS_SPACE_MIN_BYTES
from jackin_broker.protocol import TerminalSize
from jackin_broker.runner.confine import Confinement
from support import real, second_uid
from support.commands import UNCONFINED, Sink, confined, run, shell, within, workdir_at
from support.readable import is_passable, readable_copy

MIB = 1 << 20
LIMIT_BYTES = 256 * MIB
# Prints its hard and soft limit, then whether it can have more than the limit.
RESERVE = """
import mmap, resource
print(resource.getrlimit(resource.RLIMIT_AS))
for size in (1 << 26, 1 << 29):
    try:
        mmap.mmap(-1, size)
        print("reserved")
    except OSError as error:
        print("refused", error.errno)
try:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
except (OSError, ValueError):
    print("cannot be raised")
"""


def reserve(how: Confinement, path: Path) -> list[str]:
    sink = Sink()
    argv: list[str | bytes] = [real.SYSTEM_PYTHON, "-I", "-c", RESERVE]
    with workdir_at(path) as cwd:
        limited = run(argv, sink, workdir=cwd, how=how, address_space_bytes=LIMIT_BYTES)
        assert within(limited).exit_code == 0, sink.err
    return sink.out.decode().splitlines()


def test_a_command_reserves_no_more_memory_than_its_limit(tmp_path: Path) -> None:
    lines = reserve(UNCONFINED, tmp_path)
    assert lines[0] == str((LIMIT_BYTES, LIMIT_BYTES))
    assert lines[1] == "reserved"
    assert lines[2].startswith("refused")


def test_a_confined_one_cannot_raise_it_again(tmp_path: Path) -> None:
    real.require_bwrap()
    with workdir_at(tmp_path) as cwd:
        lines = reserve(confined(cwd), tmp_path)
    assert lines[0] == str((LIMIT_BYTES, LIMIT_BYTES))
    assert lines[2].startswith("refused")
    assert lines[3] == "cannot be raised"


@pytest.mark.parametrize("is_confined", [True, False])
@pytest.mark.parametrize("terminal", [None, TerminalSize(24, 80)])
def test_the_smallest_limit_is_enough_for_whoever_leads_the_command(
    tmp_path: Path, is_confined: bool, terminal: TerminalSize | None
) -> None:
    if is_confined:
        real.require_bwrap()
    sink = Sink()
    least = ADDRESS_SPACE_MIN_BYTES
    with workdir_at(tmp_path) as cwd:
        how = confined(cwd) if is_confined else UNCONFINED
        script = shell("ulimit -v; (sleep 600 &) ; exit 3")
        limited = run(
            script, sink, workdir=cwd, how=how, terminal=terminal, address_space_bytes=least,
            drain_s=0.1,
        )  # fmt: skip
        assert within(limited).exit_code == 3
    assert sink.out.split() == [b"%d" % (least // 1024)]


def test_without_a_limit_it_is_the_operators_own(tmp_path: Path) -> None:
    sink = Sink()
    argv = shell("ulimit -v; ulimit -u; ulimit -Hv; ulimit -Hu")
    within(run(argv, sink))
    mine = subprocess.run(argv, capture_output=True, timeout=real.START_LIMIT_S)
    assert sink.out == mine.stdout


# In a process of a plain uid, for root has no such limit: how many of ten children could start.
COUNT = """
import json, os, sys
from pathlib import Path
from support.commands import Sink, confined, run, within, workdir_at
code = '''
import os, sys
started = 0
for _ in range(10):
    try:
        if os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
    except BlockingIOError:
        break
    started += 1
print(started)
'''
sink = Sink()
with workdir_at(Path(sys.argv[1])) as cwd:
    argv = [sys.argv[3], "-I", "-c", code]
    how = confined(cwd)
    ended = within(run(argv, sink, workdir=cwd, how=how, processes=int(sys.argv[2]), drain_s=0.1))
print(json.dumps([ended.exit_code, sink.out.decode(), sink.err.decode()]))
"""


@pytest.mark.parametrize(("limit", "children"), [(1, 0), (4, 3), (0, 10)])
def test_a_confined_command_has_no_more_processes_than_its_limit(
    open_tmp: Path, limit: int, children: int
) -> None:
    """It counts its own alone: a user namespace of its own, see setrlimit(2)."""
    real.require_root()
    real.require_bwrap()
    interpreter = os.path.realpath(sys.executable)
    if not is_passable(Path(interpreter)):
        real.missing(f"a second uid cannot run {interpreter}: use the system's Python")
    library = readable_copy(open_tmp / "library")
    project = open_tmp / "project"
    project.mkdir()
    shutil.chown(project, second_uid.AGENT_UID)
    done = second_uid.run_as(
        [interpreter, "-c", COUNT, str(project), str(limit), real.SYSTEM_PYTHON],
        env={"PYTHONPATH": str(library), "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    status, out, err = json.loads(done.stdout)
    assert (status, out) == (0, f"{children}\n"), err
