"""Helpers answer one at a time, are hardened before they hear a value, and are killed whole.

Whose rule: `sources/helper_process.py`, `sources/helper_wire.py`, STACK "keyring helper".
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from jackin_broker.sources.helper_process import (
    HELPERS_MAX,
    HelperGone,
    HelperPool,
    HelperProcess,
)
from support.real import is_running, wait_until
from support.sources import ENOUGH_S

# It says what it is, repeats what it hears, hangs or ends when told to.
_STANDIN = """
import os, resource, time
from jackin_broker.hardening import is_dumpable
from jackin_broker.sources.helper_wire import HelperChannel
channel = HelperChannel()
while (body := channel.receive()) is not None:
    if body == b"hang":
        time.sleep(600)
    if body == b"end":
        break
    if body == b"state":
        core = resource.getrlimit(resource.RLIMIT_CORE)
        body = f"{is_dumpable()} {core} {os.getcwd()} {os.getsid(0) == os.getpid()}".encode()
    channel.send(body)
"""


@pytest.fixture
def pool(tmp_path: Path) -> HelperPool:
    (tmp_path / "standin.py").write_text(_STANDIN)
    return HelperPool(("standin",), {"PYTHONPATH": str(tmp_path)})


async def say(pool: HelperPool, word: bytes) -> bytes:
    async def conversation(helper: HelperProcess) -> bytes:
        return await helper.ask(word)

    return await asyncio.wait_for(pool.run(conversation), ENOUGH_S)


def test_a_helper_is_hardened_before_it_hears_anything(pool: HelperPool) -> None:
    async def ask() -> bytes:
        state = await say(pool, b"state")
        pool.close()
        return state

    assert asyncio.run(ask()) == b"False (0, 0) / True"


def test_messages_of_any_length_come_back(pool: HelperPool) -> None:
    async def ask() -> list[bytes]:
        said = [await say(pool, word) for word in (b"", b"x", b"y" * 1_000_000)]
        pool.close()
        return said

    assert asyncio.run(ask()) == [b"", b"x", b"y" * 1_000_000]


def test_the_warm_one_is_used_again(pool: HelperPool) -> None:
    async def ask() -> None:
        await say(pool, b"one")
        first = pool.pids
        await say(pool, b"two")
        assert pool.pids == first
        assert len(first) == 1
        pool.close()
        assert pool.pids == frozenset()

    asyncio.run(ask())


def test_one_that_ends_in_the_middle_is_said_to_be_gone(pool: HelperPool) -> None:
    async def ask() -> None:
        with pytest.raises(HelperGone):
            await say(pool, b"end")
        assert await say(pool, b"next") == b"next"
        pool.close()

    asyncio.run(ask())


def test_a_conversation_that_is_given_up_kills_its_helper(pool: HelperPool) -> None:
    async def give_up() -> frozenset[int]:
        hanging = asyncio.ensure_future(say(pool, b"hang"))
        while not pool.pids:
            await asyncio.wait((hanging,), timeout=0.01)
        pids = pool.pids
        hanging.cancel()
        await asyncio.wait((hanging,))
        assert pool.pids == frozenset()
        return pids

    for pid in asyncio.run(give_up()):
        wait_until(lambda pid=pid: not is_running(pid), f"helper {pid} is gone")


def test_many_at_once_are_all_answered_by_a_few(pool: HelperPool) -> None:
    async def ask() -> list[bytes]:
        words = [str(number).encode() for number in range(40)]
        said = await asyncio.gather(*(say(pool, word) for word in words))
        assert len(pool.pids) <= HELPERS_MAX
        pool.close()
        return said

    assert asyncio.run(ask()) == [str(number).encode() for number in range(40)]


def test_blocked_ones_leave_room_for_others_and_a_full_pool_waits(pool: HelperPool) -> None:
    async def ask() -> None:
        hanging = [asyncio.ensure_future(say(pool, b"hang")) for _ in range(HELPERS_MAX - 1)]
        while len(pool.pids) < HELPERS_MAX - 1:
            await asyncio.wait(hanging, timeout=0.01)
        assert await say(pool, b"through") == b"through"
        hanging.append(asyncio.ensure_future(say(pool, b"hang")))
        waiting = asyncio.ensure_future(say(pool, b"late"))
        done, _ = await asyncio.wait((waiting,), timeout=1)
        assert not done, "all helpers are busy"
        assert len(pool.pids) == HELPERS_MAX
        hanging[0].cancel()
        assert await waiting == b"late"
        for one in hanging:
            one.cancel()
        await asyncio.wait(hanging)
        pool.close()

    asyncio.run(ask())


def test_closing_lets_a_conversation_end_well_and_then_ends_its_helper(pool: HelperPool) -> None:
    async def ask() -> None:
        async def conversation(helper: HelperProcess) -> bytes:
            pool.close()
            return await helper.ask(b"after")

        assert await asyncio.wait_for(pool.run(conversation), ENOUGH_S) == b"after"
        assert pool.pids == frozenset()

    asyncio.run(ask())


def test_nothing_of_the_working_directory_is_imported(
    pool: HelperPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "project"
    trap.mkdir()
    (trap / "socket.py").write_text("raise SystemExit('the project was imported')")
    monkeypatch.chdir(trap)

    async def ask() -> bytes:
        said = await say(pool, b"well")
        pool.close()
        return said

    assert asyncio.run(ask()) == b"well"
    assert os.getcwd() == str(trap)


def test_who_waits_for_room_gets_it_from_starts_that_were_given_up(
    pool: HelperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They told nobody: the one that waited had no value until its deadline."""
    starting: list[asyncio.Task[bytes] | None] = []
    is_full = asyncio.Event()

    async def stuck(*_: object) -> HelperProcess:
        starting.append(asyncio.current_task())
        if len(starting) == HELPERS_MAX:
            is_full.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def last() -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(HelperProcess, "start", stuck)
            asked = [asyncio.create_task(say_slowly(pool)) for _ in range(HELPERS_MAX + 1)]
            async with asyncio.timeout(ENOUGH_S):
                await is_full.wait()
        (waiting,) = (task for task in asked if task not in starting)
        for task in asked:
            if task is not waiting:
                task.cancel()
        async with asyncio.timeout(ENOUGH_S):
            answer = await waiting
        pool.close()
        return answer

    assert asyncio.run(last()) == b"hello"


async def say_slowly(pool: HelperPool) -> bytes:
    """Like `say`, in the caller's own task."""
    return await pool.run(lambda helper: helper.ask(b"hello"))
