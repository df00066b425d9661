"""What cannot be started is refused with words and the right status, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import secrets
import select
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.protocol import EndedBy, StdinKind
from jackin_broker.runner import host
from jackin_broker.runner.confine import UNCONFINED, Confinement
from jackin_broker.runner.spec import Ended, NoSuchCommand, RunSpec, SpawnFailed
from support import real
from support.commands import (
    PATH,
    Sink,
    confined,
    finish,
    run,
    shell,
    start,
    within,
    workdir_at,
)

# Standard streams, its channel, and both ends of its wake-up pipe: no room for a request's.
WARDEN_DESCRIPTORS = 6


@pytest.fixture(params=["unconfined", "confined"])
def how(request: pytest.FixtureRequest) -> Confinement:
    """Both ways to run; the second needs bubblewrap."""
    if request.param == "unconfined":
        return UNCONFINED
    real.require_bwrap()
    with workdir_at(Path("/")) as cwd:
        return confined(cwd)


def program(directory: Path, text: str, mode: int = 0o755) -> str:
    """A program in a directory that is shown."""
    path = directory / "tool"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def refusal(argv: list[str | bytes], cwd: Path, how: Confinement) -> Refusal:
    """Why this did not start."""
    with workdir_at(cwd) as workdir, pytest.raises(Refusal) as caught:
        within(run(argv, workdir=workdir, how=how))
    return caught.value


def test_a_program_that_does_not_exist_is_127(how: Confinement, short_tmp: Path) -> None:
    """The caller exits with what a shell would."""
    error = refusal(["/usr/bin/no-such-program"], short_tmp, how)
    assert isinstance(error, NoSuchCommand)
    assert (error.exit_code, error.code) == (127, DenialCode.SPAWN_FAILED)
    assert "/usr/bin/no-such-program does not exist" in str(error)


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("#!/bin/sh\n", 0o644, "may not be executed"),
        ("echo no first line\n", 0o755, "no program that the kernel can run"),
        ("#!/no/such/interpreter\n", 0o755, "interpreter or loader"),
    ],
)
def test_a_program_that_cannot_run_is_126_and_says_why(
    how: Confinement, short_tmp: Path, text: str, mode: int, words: str
) -> None:
    """The kernel's own answer, in words, with what to do."""
    error = refusal([program(short_tmp, text, mode)], short_tmp, how)
    assert isinstance(error, SpawnFailed)
    assert not isinstance(error, NoSuchCommand)
    assert error.exit_code == 126
    assert words in str(error)
    assert error.hint


def test_too_many_arguments_are_refused_in_words(how: Confinement, short_tmp: Path) -> None:
    """E2BIG comes from execve, after everything of ours went well."""
    error = refusal(["/bin/true", *["x" * 100_000] * 40], short_tmp, how)
    assert "longer than the kernel takes" in str(error)


def test_a_refused_start_tells_the_sink_nothing(short_tmp: Path) -> None:
    """The first word of a sink announces a command that runs; none does."""
    sink = Sink()
    with pytest.raises(SpawnFailed):
        within(run(["/usr/bin/no-such-program"], sink))
    assert (sink.ended, sink.consumed) == ([], 0)


def test_descriptors_and_processes_do_not_leak(how: Confinement, short_tmp: Path) -> None:
    """Every way through, many times: as many descriptors as before."""

    async def many() -> tuple[int, int, list[str]]:
        await every_way()
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            await every_way()
        gc.collect()
        return before, len(os.listdir("/proc/self/fd")), own_children()

    async def every_way() -> None:
        await run(["/bin/cat"], how=how)
        running = await start(["/bin/cat"], Sink(), how=how, stdin=StdinKind.LIVE)
        running.write_stdin(b"x" * 1_000_000)
        running.close_stdin()
        await finish(running)
        with pytest.raises(SpawnFailed):
            await run(["/usr/bin/no-such-program"], how=how)
        await run(["/bin/sleep", "600"], how=how, run_s=0.02)

    before, after, children = within(many())
    assert after == before
    assert len(children) == 1  # the warden


def test_a_cancelled_start_leaves_nothing(how: Confinement) -> None:
    """The caller goes away while its command is being started."""

    async def cancel() -> tuple[int, int]:
        await run(["/bin/true"], how=how)
        before = len(os.listdir("/proc/self/fd"))
        for turns in range(12):
            task = asyncio.ensure_future(start(["/bin/sleep", "600.25"], Sink(), how=how))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            done = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(done[0], asyncio.CancelledError)
        await run(["/bin/true"], how=how)  # the answers to what was cancelled came before this
        await asyncio.to_thread(real.wait_until, lambda: sleepers() == 0, "sleepers end")
        real_after = -1
        for _ in range(200):
            real_after = len(os.listdir("/proc/self/fd"))
            if real_after == before:
                break
            await asyncio.sleep(0.02)
        return before, real_after

    before, after = within(cancel())
    assert after == before


def own_children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def sleepers() -> int:
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += b"600.25" in (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
    return found


def test_a_warden_that_was_killed_is_replaced() -> None:
    """What runs goes on, what comes next gets a new one."""

    async def replace() -> tuple[bytes, int]:
        sink = Sink()
        running = await start(shell("read x; echo $x"), sink, stdin=StdinKind.LIVE)
        warden = own_children()[0]
        pidfd = os.pidfd_open(int(warden))
        os.kill(int(warden), signal.SIGKILL)
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        assert poller.poll(10_000)
        os.close(pidfd)
        code = (await run(["/bin/true"])).exit_code
        running.write_stdin(b"on\n")
        await finish(running)
        return sink.out, code

    assert within(replace()) == (b"on\n", 0)


def test_a_value_is_in_no_argument_repr_or_refusal(how: Confinement, short_tmp: Path) -> None:
    """Values go in the environment of the command alone (orva 74: seen by `ps`)."""
    value = "tok" + secrets.token_hex(16)
    needle = value.encode()

    async def look() -> tuple[bytes, list[str]]:
        sink = Sink()
        script = "echo ready; read x; printenv VALUE"
        with workdir_at(short_tmp) as cwd:
            spec = RunSpec(
                "/bin/sh",
                (b"sh", b"-c", script.encode()),
                cwd,
                {**PATH, b"VALUE": needle},
                how,
                StdinKind.LIVE,
            )
            assert value not in repr(spec)
            running = await host.start(spec, sink)
        assert value not in repr(running)
        await sink.until_out(b"ready")
        seen = await asyncio.to_thread(holders, needle)
        running.write_stdin(b"\n")
        running.close_stdin()
        await finish(running)
        return sink.out, seen

    out, seen = within(look())
    assert needle in out
    assert seen == ["environ sh"]


def holders(needle: bytes) -> list[str]:
    """In which arguments and environments of the machine the value is."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        for kind in ("cmdline", "environ"):
            try:
                if needle in (entry / kind).read_bytes():
                    found.append(f"{kind} {(entry / 'comm').read_text().strip()}")
            except OSError:
                continue
    return found


def test_a_fork_that_fails_is_one_commands_misfortune(short_tmp: Path) -> None:
    """The warden's end is the end of all confined commands, so it must not end of this."""
    real.require_bwrap()

    async def three() -> tuple[Refusal, bool, Ended]:
        with workdir_at(short_tmp) as cwd:
            how = confined(cwd)
        other = await start(["/bin/sleep", "600"], Sink(), how=how)
        warden = int(own_children()[0])
        before = resource.prlimit(warden, resource.RLIMIT_NOFILE)
        resource.prlimit(warden, resource.RLIMIT_NOFILE, (WARDEN_DESCRIPTORS, before[1]))
        try:
            with pytest.raises(SpawnFailed) as caught:
                await run(["/bin/true"])
        finally:
            resource.prlimit(warden, resource.RLIMIT_NOFILE, before)
        is_left = other.has_ended
        last = await run(["/bin/true"])
        other.end(EndedBy.OPERATOR)
        await finish(other)
        return caught.value, is_left, last

    error, has_ended, last = within(three())
    assert "no process or descriptor is left" in str(error)
    assert not has_ended
    assert last.exit_code == 0


def test_a_command_whose_process_cannot_be_watched_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of descriptors here: it would have run unwatched until the fork's limit."""
    receive = socket.recv_fds

    def truncated(*asked: Any) -> tuple[bytes, list[int], int, Any]:
        words, descriptors, flags, address = receive(*asked)
        for fd in descriptors:
            os.close(fd)
        return words, [], flags | socket.MSG_CTRUNC, address

    async def refused() -> Refusal:
        monkeypatch.setattr(socket, "recv_fds", truncated)
        with pytest.raises(SpawnFailed) as caught:
            await start(["/bin/sleep", "600"], Sink())
        return caught.value

    assert "no process or descriptor is left" in str(within(refused()))
