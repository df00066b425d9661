"""The directories of single commands: private, in memory where possible, and gone after them."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import stat
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jackin_broker.bindings import Binding, Credential, Delivery, FileSource
from jackin_broker.deliveries import Place, Prepared, Scratch, prepare, scratch_root
from jackin_broker.deliveries.scratch import is_in_memory
from jackin_broker.errors import ConfigError
from support.real import END_GRACE_S, first_line, is_running, require_program, wait_until


def test_a_directory_is_the_operators_alone_and_leaves_nothing(short_tmp: Path) -> None:
    scratch = Scratch(short_tmp / "commands")
    one, two = scratch.make(), scratch.make()
    assert one != two
    assert stat.S_IMODE(one.stat().st_mode) == stat.S_IMODE(scratch.root.stat().st_mode) == 0o700
    (one / "file").write_text("x")
    scratch.remove(one)
    assert (one.exists(), two.exists()) == (False, True)
    scratch.remove(two)
    scratch.remove(two)
    assert not scratch.root.exists()


def test_what_cannot_be_removed_now_goes_with_the_next_command(short_tmp: Path) -> None:
    """Without a free descriptor nothing can be listed: it was forgotten, with a value in it."""
    scratch = Scratch(short_tmp / "commands")
    left = scratch.make()
    (left / "file").write_text("x")
    with no_free_descriptor():
        scratch.remove(left)
    assert left.exists()
    scratch.remove(scratch.make())
    assert not left.exists()


def test_a_value_in_a_file_goes_where_no_descriptor_is_free(short_tmp: Path) -> None:
    value = "tok" + secrets.token_hex(12)
    credential = Credential(
        Binding("TOKEN", FileSource("/x"), delivery=Delivery.FILE), value.encode()
    )
    place = Place(is_confined=False, scratch=Scratch(short_tmp / "commands"), lifetime_s=1)

    async def deliver_and_clean() -> Path:
        prepared = await prepare([credential], place)
        path = Path(os.fsdecode(prepared.env[b"TOKEN_FILE"]))
        assert path.read_text() == value  # noqa: ASYNC240 - nothing else runs in this loop
        with no_free_descriptor():
            await prepared.clean()
        return path

    assert not asyncio.run(deliver_and_clean()).exists()


def test_what_one_cannot_take_back_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    prepared = Prepared()
    done: list[str] = []

    async def first() -> None:
        done.append("first")

    async def broken() -> None:
        raise ZeroDivisionError("nobody foresaw this")

    prepared.cleanups += [first, broken]
    asyncio.run(prepared.clean())
    assert done == ["first"]
    assert "ZeroDivisionError: nobody foresaw this" in caplog.text


@contextmanager
def no_free_descriptor() -> Generator[None]:
    """Let this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_place_that_others_can_change_is_refused(short_tmp: Path) -> None:
    """Somebody made it first, in a directory that everybody can write."""
    (short_tmp / "commands").symlink_to(short_tmp)
    short_tmp.chmod(0o777)
    with pytest.raises(ConfigError):
        Scratch(short_tmp / "commands").make()
    with pytest.raises(ConfigError):
        Scratch(short_tmp / "commands").sweep()


def test_a_sweep_removes_what_is_left_and_ends_its_agents_alone(short_tmp: Path) -> None:
    """What listens at a left socket and is no ssh-agent of ours is not touched."""
    agent = require_program("ssh-agent", package="openssh-client")
    scratch = Scratch(short_tmp / "commands")
    left, other = scratch.make(), scratch.make()
    (left / "file").write_text("x")
    socat = require_program("socat", package="socat")
    with (
        subprocess.Popen([agent, "-D", "-a", str(left / "agent")], stdout=subprocess.PIPE) as ours,
        subprocess.Popen([socat, f"UNIX-LISTEN:{other}/agent,fork", "PIPE"]) as theirs,
    ):
        try:
            first_line(ours)
            wait_until((other / "agent").exists, "the other one listens")
            scratch.sweep()
            assert not scratch.root.exists()
            ours.wait(END_GRACE_S)
            assert is_running(theirs.pid)
        finally:
            for process in (ours, theirs):
                process.kill()


def test_without_anything_left_a_sweep_does_nothing(short_tmp: Path) -> None:
    Scratch(short_tmp / "commands").sweep()


@pytest.mark.parametrize("place", ["/dev/shm", "/usr/lib", "/nonexistent/below"])
def test_it_is_in_memory_wherever_that_can_be_had(place: str) -> None:
    """A value must not reach a disk, and two brokers do not share a place."""
    private_dir, shared = Path(place), Path("/dev/shm")
    root = scratch_root(private_dir)
    assert root == scratch_root(private_dir)
    if is_in_memory(private_dir) or not is_in_memory(shared):
        assert root == private_dir / "commands"
    else:
        assert root.parent == shared
        assert str(os.geteuid()) in root.name
        assert root != scratch_root(private_dir / "other")
