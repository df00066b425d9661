"""DESIGN §9: confined commands run where they were approved, and do ordinary work."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from jackin_broker.config.model import BinaryConfig
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.protocol import StdinKind
from jackin_broker.runner.confine import Confinement
from jackin_broker.workdir import WorkDir
from support import real, second_uid
from support.commands import Sink, confined, finish, run, shell, start, within, workdir_at
from support.machine import Machine, furnish
from support.readable import is_passable, readable_copy

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def bubblewrap() -> str:
    return real.require_bwrap()


@pytest.fixture
def machine(private_home: Path) -> Machine:
    return furnish(private_home)


@pytest.mark.parametrize("is_link", [True, False])
@pytest.mark.parametrize("is_root", [True, False])
def test_a_replaced_working_directory_is_refused(
    machine: Machine, is_link: bool, is_root: bool
) -> None:
    """Approved for one directory, run in none other: neither a link nor a new directory."""
    inner = machine.project / "inner"
    inner.mkdir()
    with workdir_at(inner, root=inner if is_root else machine.project) as cwd:
        inner.rename(machine.project / "aside")
        if is_link:
            inner.symlink_to(machine.home / "src" / "other")
        else:
            inner.mkdir()
        with pytest.raises(Refusal) as caught:
            within(run(["/bin/pwd"], workdir=cwd, how=confined(cwd)))
    assert caught.value.code is DenialCode.WORKDIR_REJECTED


@pytest.mark.parametrize("is_confined", [True, False])
def test_a_directory_swapped_in_a_tight_loop_never_leads_outside(
    machine: Machine, is_confined: bool
) -> None:
    """Resolve-then-open escaped its mount 2,253 times of 78,924 in this race."""
    inner, aside = machine.project / "inner", machine.project / "aside"
    inner.mkdir()
    (inner / "marker").touch()
    outside = machine.home / "src" / "other"
    link = machine.project / "link"
    link.symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            inner.rename(aside)
            link.rename(inner)
            inner.rename(link)
            aside.rename(inner)

    async def race() -> list[bytes]:
        seen: list[bytes] = []
        with workdir_at(inner, root=machine.project) as cwd:
            how = confined(cwd, BinaryConfig(confine=is_confined))
            thread = threading.Thread(target=swap)
            thread.start()
            try:
                for _ in range(40):
                    seen.append(await listing(cwd, how))
            finally:
                stop.set()
                thread.join()
        return seen

    seen = within(race())
    assert set(seen) <= {b"marker\n", b"workdir_rejected"}
    assert is_confined or set(seen) == {b"marker\n"}


async def listing(cwd: WorkDir, how: Confinement) -> bytes:
    """What `ls` printed, or why it did not run."""
    sink = Sink()
    try:
        await run(["/bin/ls"], sink, workdir=cwd, how=how)
    except Refusal as refusal:
        return refusal.code.value.encode()
    return sink.out


def test_the_root_can_be_the_working_directory(machine: Machine) -> None:
    """A fallback of `/` is plain, read-only, and empty where it must be."""
    sink = Sink()
    with workdir_at(Path("/")) as cwd:
        within(run(shell(f"pwd; ls {machine.home}"), sink, workdir=cwd, how=confined(cwd)))
    assert sink.out == b"/\n"


def test_a_directory_whose_name_is_not_text_works(machine: Machine) -> None:
    """Names are bytes; only the screen turns them into text."""
    odd = Path(os.fsdecode(os.fsencode(machine.project) + b"/\xff \n'$x"))
    odd.mkdir()
    machine.project = odd
    assert machine.run(["/bin/pwd"]).out == os.fsencode(odd) + b"\n"


@pytest.mark.parametrize(
    ("package", "argv"),
    [
        ("git", ["git", "--version"]),
        ("openssh-client", ["ssh", "-V"]),
        ("openssh-client", ["ssh", "-G", "example.com"]),
        ("python3", ["python3", "-c", "import ssl, sqlite3; print('fine')"]),
        ("postgresql-client", ["psql", "--version"]),
        ("less", ["less", "--version"]),
        ("curl", ["curl", "--version"]),
    ],
)
def test_ordinary_programs_run(machine: Machine, package: str, argv: list[str]) -> None:
    """Confinement must not be what makes people switch it off."""
    program = shutil.which(argv[0], path=real.SEARCH_PATH)
    if program is None:
        real.missing(f"{argv[0]} is absent: apt-get install {package}")
    sink = machine.run([program, *argv[1:]])
    assert sink.exit_code == 0, sink.err
    assert sink.out or sink.err


def test_git_works_on_the_project(machine: Machine) -> None:
    """Commit, status and log, as the operator, with the files where they belong."""
    git = real.require_program("git", package="git")
    script = (
        f"{git} init -q . && echo x > file && {git} add file && "
        f"{git} -c user.name=t -c user.email=t@example.com commit -qm one && "
        f"{git} status --porcelain && {git} log --oneline | wc -l"
    )
    sink = machine.run(shell(script))
    assert (sink.exit_code, sink.out.strip()) == (0, b"1"), sink.err
    assert (machine.project / ".git").stat().st_uid == os.geteuid()


def test_two_commands_share_no_temporary_file(machine: Machine) -> None:
    """`/tmp` is each command's own."""

    async def both() -> bytes:
        first, second = Sink(), Sink()
        with workdir_at(machine.project) as cwd:
            how = confined(cwd, None, machine.trust_roots)
            one = await start(
                shell("echo x > /tmp/mine; echo ready; read x"),
                first,
                workdir=cwd,
                how=how,
                stdin=StdinKind.LIVE,
            )
            await first.until_out(b"ready")
            await run(["/bin/ls", "/tmp"], second, workdir=cwd, how=how)
            one.close_stdin()
            await finish(one)
        return second.out

    assert b"mine" not in within(both())


AS_USER = """
import os, sys
from pathlib import Path
from support.commands import Sink, confined, run, shell, within, workdir_at
sink = Sink()
with workdir_at(Path(sys.argv[1])) as cwd:
    script = shell("id -u; pwd; touch made; ls -A /tmp")
    ended = within(run(script, sink, workdir=cwd, how=confined(cwd)))
sys.stdout.write(sink.out.decode() + sink.err.decode())
sys.exit(ended.exit_code)
"""


def test_a_plain_uid_is_confined_as_well(open_tmp: Path) -> None:
    """The operator is not root; nothing here may need more than a user has."""
    real.require_root()
    interpreter = os.path.realpath(sys.executable)
    if not is_passable(Path(interpreter)):
        real.missing(f"a second uid cannot run {interpreter}: use the system's Python")
    library = readable_copy(open_tmp / "library")
    project = open_tmp / "project"
    project.mkdir()
    os.chown(project, second_uid.AGENT_UID, second_uid.AGENT_UID)
    done = second_uid.run_as(
        [interpreter, "-c", AS_USER, str(project)],
        env={"PYTHONPATH": str(library), "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
    )
    top = project.parent.relative_to("/tmp").parts[0]
    assert done.stdout.decode().split() == [str(second_uid.AGENT_UID), str(project), top], done
    assert (project / "made").stat().st_uid == second_uid.AGENT_UID


def test_concurrent_commands_do_not_disturb_each_other(machine: Machine) -> None:
    """Twenty at once, each with its own answer."""

    async def all_at_once() -> list[bytes]:
        sinks = [Sink() for _ in range(20)]
        with workdir_at(machine.project) as cwd:
            how = confined(cwd)
            await asyncio.gather(
                *(
                    run(["/bin/echo", str(n)], sink, workdir=cwd, how=how)
                    for n, sink in enumerate(sinks)
                )
            )
        return [sink.out for sink in sinks]

    assert within(all_at_once()) == [b"%d\n" % n for n in range(20)]
