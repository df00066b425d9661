"""A keyring answers, or it is said why not: never a hang, never a look at the wrong keyring.

Whose rules: DESIGN §8, CASES 3f (secretstorage#33, keyring#477, #569, #280). The Secret Service
is a real gnome-keyring on a bus of its own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker.bindings import Binding, KeyringSource
from jackin_broker.errors import DenialCode, SourceError, SourceFault
from jackin_broker.sources.base import Lookup
from jackin_broker.sources.keyring import KeyringReader, helper_env
from jackin_broker.vault import Vault
from support.real import is_running, wait_until
from support.secret_service import SecretService, secret_service
from support.sources import ENOUGH_S, SOON_S, make_resolver, refusal, values
from support.vaults import unlocked_vault

ITEM = KeyringSource("github", "me")
BINDING = Binding("GH_TOKEN", ITEM)
NO_VAULT = Vault(Path("/nonexistent/vault.age"))


@pytest.fixture(scope="module")
def running() -> Iterator[SecretService]:
    with secret_service() as service:
        yield service


@pytest.fixture
def service(running: SecretService) -> Iterator[SecretService]:
    """Unlocked at the start and at the end of each test."""
    yield running
    running.unlock()


@pytest.fixture
def value(service: SecretService) -> str:
    """What the item holds."""
    value = "tok" + secrets.token_hex(12)
    service.store(ITEM.service, ITEM.username, value)
    return value


def test_a_locked_keyring_is_said_at_once_where_nobody_can_be_asked(
    service: SecretService, value: str
) -> None:
    service.lock()
    started = time.monotonic()
    failed = refusal(make_resolver(service.env, keyring="secret-service"), BINDING)
    assert failed.fault is SourceFault.LOCKED
    assert failed.code is DenialCode.SOURCE_LOCKED
    assert "GH_TOKEN" in str(failed)
    assert "locked" in str(failed)
    assert failed.hint
    assert time.monotonic() - started < ENOUGH_S / 2


def test_a_locked_keyring_whose_question_nobody_answers_is_locked_at_the_deadline(
    service: SecretService, value: str
) -> None:
    """secretstorage#33: the unlocking blocks for ever."""
    service.lock()
    service.hang_prompts()
    started = time.monotonic()
    resolver = make_resolver(service.env, keyring="secret-service", timeout_s=SOON_S)
    failed = refusal(resolver, BINDING)
    assert failed.fault is SourceFault.LOCKED
    assert SOON_S <= time.monotonic() - started < SOON_S + 5


def test_after_a_deadline_the_helper_is_gone_and_the_next_look_up_works(
    service: SecretService, value: str
) -> None:
    async def both() -> bytes:
        reader = KeyringReader("secret-service", NO_VAULT, service.env, frozenset())
        service.lock()
        service.hang_prompts()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_S):
                await reader.read(ITEM, Lookup("GH_TOKEN"))
        assert reader.helper_pids == frozenset()
        service.unlock()
        try:
            return await reader.read(ITEM, Lookup("GH_TOKEN"))
        finally:
            await reader.close()

    assert asyncio.run(both()) == value.encode()


def test_a_keyring_that_stands_still_is_timed_out(service: SecretService, value: str) -> None:
    os.kill(service.pid, signal.SIGSTOP)
    try:
        resolver = make_resolver(service.env, keyring="secret-service", timeout_s=SOON_S)
        failed = refusal(resolver, BINDING)
    finally:
        os.kill(service.pid, signal.SIGCONT)
    assert failed.fault is SourceFault.TIMED_OUT
    assert failed.code is DenialCode.SOURCE_FAILED


def test_a_helper_that_was_killed_while_idle_is_replaced(
    service: SecretService, value: str
) -> None:
    async def three() -> list[bytes]:
        reader = KeyringReader("secret-service", NO_VAULT, service.env, frozenset())
        found = [await reader.read(ITEM, Lookup("GH_TOKEN"))]
        (first,) = reader.helper_pids
        found.append(await reader.read(ITEM, Lookup("GH_TOKEN")))
        assert reader.helper_pids == {first}, "one is kept warm"
        os.kill(first, signal.SIGKILL)
        found.append(await reader.read(ITEM, Lookup("GH_TOKEN")))
        assert first not in reader.helper_pids
        await reader.close()
        return found

    assert asyncio.run(three()) == [value.encode()] * 3


def test_closing_leaves_no_helper(service: SecretService, value: str) -> None:
    async def pids_after_use() -> frozenset[int]:
        reader = KeyringReader("secret-service", NO_VAULT, service.env, frozenset())
        await reader.read(ITEM, Lookup("GH_TOKEN"))
        pids = reader.helper_pids
        await reader.close()
        return pids

    for pid in asyncio.run(pids_after_use()):
        wait_until(lambda pid=pid: not is_running(pid), f"helper {pid} is gone")


def test_one_that_blocks_does_not_stop_the_others(service: SecretService, value: str) -> None:
    async def while_one_blocks() -> bytes:
        reader = KeyringReader("secret-service", NO_VAULT, service.env, frozenset())
        os.kill(service.pid, signal.SIGSTOP)
        blocked = asyncio.ensure_future(reader.read(ITEM, Lookup("BLOCKED")))
        while not reader.helper_pids:
            await asyncio.wait((blocked,), timeout=0.01)
        (first,) = reader.helper_pids
        os.kill(first, signal.SIGSTOP)  # it alone stays blocked
        os.kill(service.pid, signal.SIGCONT)
        try:
            return await asyncio.wait_for(reader.read(ITEM, Lookup("GH_TOKEN")), ENOUGH_S)
        finally:
            blocked.cancel()
            await asyncio.wait((blocked,))
            await reader.close()

    assert asyncio.run(while_one_blocks()) == value.encode()


def test_what_is_stored_is_read_and_what_is_removed_is_missing(service: SecretService) -> None:
    async def through() -> None:
        resolver = make_resolver(service.env, keyring="secret-service")
        await resolver.store("service", "name", "first")
        await resolver.store("service", "name", "second")
        binding = Binding("NAME", KeyringSource("service", "name"))
        (found,) = await resolver.resolve([binding])
        assert found.reveal() == b"second"
        assert await resolver.remove("service", "name")
        assert not await resolver.remove("service", "name")
        with pytest.raises(SourceError) as missing:
            await resolver.resolve([binding])
        assert missing.value.fault is SourceFault.MISSING
        assert missing.value.hint == "jackin-broker credential add NAME"
        await resolver.close()

    asyncio.run(through())


def test_without_a_session_bus_the_secret_service_is_unavailable_and_the_hint_helps() -> None:
    """keyring#477, #569, #280."""
    failed = refusal(make_resolver({}, keyring="secret-service"), BINDING)
    assert failed.fault is SourceFault.UNAVAILABLE
    assert "no D-Bus session bus" in str(failed)
    assert 'keyring = "vault"' in failed.hint


def test_a_bus_without_a_secret_service_is_told_apart(service: SecretService) -> None:
    service.stop()
    failed = refusal(make_resolver(service.env, keyring="secret-service"), BINDING)
    assert failed.fault is SourceFault.UNAVAILABLE
    assert "no Secret Service answers" in str(failed)


async def chosen(resolver_env: dict[str, str]) -> str:
    resolver = make_resolver(resolver_env, keyring="auto")
    try:
        return str(await resolver.keyring())
    finally:
        await resolver.close()


def test_auto_takes_the_secret_service_where_one_answers(service: SecretService) -> None:
    assert asyncio.run(chosen(service.env)) == "secret-service (chosen by auto)"


def test_auto_takes_the_vault_where_none_does_and_says_why(service: SecretService) -> None:
    assert asyncio.run(chosen({})) == "vault (no D-Bus session bus)"
    service.stop()
    said = asyncio.run(chosen(service.env))
    assert said == "vault (no Secret Service on the session bus)"


def test_auto_reads_the_vault_where_it_is_chosen(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    vault.set(ITEM.service, ITEM.username, "from the vault")
    assert values(make_resolver({}, keyring="auto", vault=vault), BINDING) == [b"from the vault"]


def test_a_locked_vault_says_how_to_unlock_it(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    vault.lock()
    failed = refusal(make_resolver({}, vault=vault), BINDING)
    assert failed.fault is SourceFault.LOCKED
    assert failed.hint == "jackin-broker vault unlock"


def test_the_session_bus_is_found_where_only_its_socket_is_known(service: SecretService) -> None:
    """systemd's place for it; a broker started from cron or ssh has no variable."""
    run = Path(service.env["XDG_RUNTIME_DIR"])
    bus = Path(service.env["DBUS_SESSION_BUS_ADDRESS"].removeprefix("unix:path=").split(",")[0])
    (run / "bus").symlink_to(bus)
    try:
        env = {name: text for name, text in service.env.items() if not name.startswith("DBUS")}
        assert asyncio.run(chosen(env)) == "secret-service (chosen by auto)"
    finally:
        (run / "bus").unlink()


def test_a_helper_gets_only_the_variables_that_a_keyring_needs() -> None:
    environ = {"HOME": "/h", "PATH": "/p", "GH_TOKEN": "x", "DISPLAY": ":0", "LD_PRELOAD": "y"}
    assert helper_env(environ, frozenset({"DISPLAY"})) == {"HOME": "/h", "PATH": "/p"}


def test_a_keyring_that_this_machine_cannot_have_is_said() -> None:
    failed = refusal(make_resolver({"HOME": "/"}, keyring="macos"), BINDING)
    assert failed.fault is SourceFault.UNAVAILABLE
    assert "macos keyring does not work" in str(failed)
    assert 'keyring = "vault"' in failed.hint


def test_a_look_up_that_comes_after_the_closing_leaves_no_helper(
    service: SecretService, value: str
) -> None:
    """A reload closes the former sources; each request that had them in hand left 30 MB."""

    async def late() -> tuple[bytes, frozenset[int]]:
        reader = KeyringReader("secret-service", NO_VAULT, service.env, frozenset())
        await reader.close()
        found = await reader.read(ITEM, Lookup("GH_TOKEN"))
        return found, reader.helper_pids

    assert asyncio.run(late()) == (value.encode(), frozenset())
