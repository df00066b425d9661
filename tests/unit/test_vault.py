"""The vault keeps what it is given, opens for whom it should, and is never silently overwritten.

Whose rules: DESIGN §8, STACK "embedded default".
"""

from __future__ import annotations

import asyncio
import json
import pickle
import secrets
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from keyring.errors import KeyringLocked, PasswordDeleteError

from jackin_broker import vault_opener
from jackin_broker.age import Identity
from jackin_broker.errors import SourceFault
from jackin_broker.sources.vault_keyring import VaultKeyring
from jackin_broker.vault import Vault, VaultError
from support.real import require_program
from support.sources import told
from support.terminal import terminal
from support.vaults import locked_vault, unlocked_vault, vault_identity, vault_passphrase

WRITERS = 40
ITEMS_EACH = 2
# 40 interpreters on two cores.
WRITERS_LIMIT_S = 90
# The stock tool pays for the passphrase as well.
AGE_LIMIT_S = 60

_WRITER = """
import sys
from pathlib import Path
from jackin_broker.vault import Vault
vault = Vault(Path(sys.argv[1]))
vault.adopt(sys.stdin.readline())
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    vault.set("service", f"{sys.argv[2]}-{number}", f"value of {sys.argv[2]}-{number}")
"""


def a_value() -> str:
    return "tok" + secrets.token_hex(12)


@pytest.mark.parametrize(
    "value", ["x", "with\nlines\n", "nul\0inside", "emoji 🔑 \u202e", "long " * 10_000]
)
def test_a_value_comes_back_as_it_went_in(tmp_path: Path, value: str) -> None:
    vault = unlocked_vault(tmp_path)
    vault.set("service", "name", value)
    again = Vault(vault.path)
    again.adopt(vault_identity())
    assert again.get("service", "name") == value
    assert again.get("service", "other") is None
    assert again.get("other", "name") is None


def test_a_removed_value_is_gone_and_its_neighbours_stay(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    vault.set("service", "one", "1")
    vault.set("service", "two", "2")
    assert vault.delete("service", "one")
    assert not vault.delete("service", "one")
    assert vault.get("service", "one") is None
    assert vault.get("service", "two") == "2"


def test_the_files_are_their_owners_alone_and_hold_no_value_in_the_clear(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    value = a_value()
    vault.set("service", "name", value)
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert len(files) == 3  # data, key, lock; no draft is left behind
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert value.encode() not in path.read_bytes()


def test_a_locked_vault_says_how_to_unlock_it(tmp_path: Path) -> None:
    with pytest.raises(VaultError, match="locked") as refused:
        locked_vault(tmp_path).get("service", "name")
    assert refused.value.fault is SourceFault.LOCKED
    assert refused.value.hint == "jackin-broker vault unlock"


def test_without_a_vault_the_answer_says_how_to_make_one(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "vault.age")
    assert not vault.exists
    for act in (lambda: vault.get("a", "b"), lambda: vault.unlock("x")):
        with pytest.raises(VaultError) as refused:
            act()
        assert refused.value.fault is SourceFault.UNAVAILABLE
        assert refused.value.hint == "jackin-broker vault create"


def test_a_vault_that_is_there_is_never_made_anew(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    vault.set("service", "name", "kept")
    before = (vault.path.read_bytes(), vault.key_path.read_bytes())
    with pytest.raises(VaultError, match="already"):
        Vault(vault.path).create("other")
    vault.key_path.rename(tmp_path / "elsewhere")
    with pytest.raises(VaultError, match=r"vault\.key\.age is not"):
        Vault(vault.path).create("other")
    assert (vault.path.read_bytes(), (tmp_path / "elsewhere").read_bytes()) == before


def test_an_empty_passphrase_makes_nothing(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "vault.age")
    with pytest.raises(VaultError, match="empty passphrase"):
        vault.create("")
    assert not vault.exists


def test_a_changed_passphrase_opens_the_same_values_and_the_old_one_nothing(
    tmp_path: Path,
) -> None:
    vault = unlocked_vault(tmp_path)
    value = a_value()
    vault.set("service", "name", value)
    new = "new" + secrets.token_hex(12)
    vault.change(vault_passphrase(), new)
    assert vault.get("service", "name") == value, "who is unlocked stays so"
    again = Vault(vault.path)
    with pytest.raises(VaultError, match="passphrase does not open"):
        again.unlock(vault_passphrase())
    assert not again.is_unlocked
    again.unlock(new)
    assert again.get("service", "name") == value


def test_a_wrong_passphrase_changes_nothing(tmp_path: Path) -> None:
    vault = locked_vault(tmp_path)
    before = vault.key_path.read_bytes()
    with pytest.raises(VaultError, match="passphrase does not open"):
        vault.change("wrong" + secrets.token_hex(4), "new")
    assert vault.key_path.read_bytes() == before


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied", "another's", "text"])
def test_damage_is_said_and_never_overwritten(tmp_path: Path, how: str) -> None:
    vault = unlocked_vault(tmp_path)
    vault.set("service", "name", a_value())
    whole = vault.path.read_bytes()
    damaged = {
        "cut": whole[:-5],
        "flipped": whole[:-5] + bytes((whole[-5] ^ 1,)) + whole[-4:],
        "emptied": b"",
        "another's": Identity.generate().encrypt(b"{}"),
        "text": b"not an age file at all",
    }[how]
    vault.path.write_bytes(damaged)
    acts = (
        lambda: vault.get("service", "name"),
        lambda: vault.set("service", "name", "new"),
        lambda: vault.delete("service", "name"),
        lambda: Vault(vault.path).adopt(vault_identity()),
    )
    for act in acts:
        with pytest.raises(VaultError, match="is damaged, or belongs to another key"):
            act()
    assert vault.path.read_bytes() == damaged


def test_a_lost_data_file_is_not_an_empty_vault(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    vault.path.unlink()
    with pytest.raises(VaultError, match="missing, though its key is there"):
        vault.set("service", "name", "new")
    assert not vault.path.exists()


@pytest.mark.parametrize("key", [b"", b"text", b"age-encryption.org/v1\n-> scrypt x"])
def test_a_damaged_key_is_said(tmp_path: Path, key: bytes) -> None:
    vault = locked_vault(tmp_path)
    vault.key_path.write_bytes(key)
    with pytest.raises(VaultError, match="key file is damaged"):
        vault.unlock(vault_passphrase())


@pytest.mark.parametrize("cut", [0, 20, -2])
def test_a_broken_identity_is_said_without_any_of_its_text(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    broken = vault_identity()[:cut]
    with pytest.raises(VaultError, match="key file is damaged") as refused:
        locked_vault(tmp_path).adopt(broken)
    assert not broken or broken.strip() not in told(refused.value, caplog)
    assert refused.value.__cause__ is None


def test_a_newer_vault_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    newer = msgspec.json.encode({"schema": 2, "items": {}})
    vault.path.write_bytes(Identity(vault_identity()).encrypt(newer))
    before = vault.path.read_bytes()
    with pytest.raises(VaultError, match="schema 2"):
        vault.set("service", "name", "value")
    assert vault.path.read_bytes() == before


def test_forty_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(vault.path), str(number), str(ITEMS_EACH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    identity = vault_identity().strip()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(f"{identity}\n")
        writer.stdin.flush()
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=WRITERS_LIMIT_S)
        assert writer.returncode == 0
    names = [f"{writer}-{item}" for writer in range(WRITERS) for item in range(ITEMS_EACH)]
    lost = [name for name in names if vault.get("service", name) != f"value of {name}"]
    assert lost == []


def test_the_stock_age_tool_opens_it_with_the_passphrase(tmp_path: Path) -> None:
    age = require_program("age", package="age")
    vault = unlocked_vault(tmp_path)
    value = a_value()
    vault.set("github", "me", value)
    argv = [age, "-d", "-i", str(vault.key_path), str(vault.path)]
    with terminal(argv, env={}, cols=200) as screen:
        screen.wait_for("passphrase")
        screen.type(f"{vault_passphrase()}\r")
        assert screen.wait_ended(limit_s=AGE_LIMIT_S) == 0
        printed = screen.written
    # Before the JSON, the tool clears the line on which it asked.
    held = json.loads(printed[printed.index(b"{") :])
    assert held == {"schema": 1, "items": {"github": {"me": value}}}


def test_the_event_loop_goes_on_while_the_vault_is_unlocked(tmp_path: Path) -> None:
    vault = locked_vault(tmp_path)

    async def count_while_unlocking() -> int:
        count = 0
        unlocking = asyncio.ensure_future(vault_opener.unlock(vault, vault_passphrase()))
        while not unlocking.done():
            await asyncio.wait((unlocking,), timeout=0.02)
            count += 1
        await unlocking
        return count

    # In this process the loop would turn once or twice: the library holds the lock throughout.
    assert asyncio.run(count_while_unlocking()) > 10
    assert vault.is_unlocked


def test_unlocking_elsewhere_says_the_same_of_a_wrong_passphrase(tmp_path: Path) -> None:
    vault = locked_vault(tmp_path)
    wrong = "wrong" + secrets.token_hex(12)
    with pytest.raises(VaultError, match="passphrase does not open") as refused:
        asyncio.run(vault_opener.unlock(vault, wrong))
    assert wrong not in str(refused.value)
    assert not vault.is_unlocked


def test_as_a_backend_of_the_keyring_library_it_keeps_that_librarys_contract(
    tmp_path: Path,
) -> None:
    vault = unlocked_vault(tmp_path)
    backend = VaultKeyring(vault)
    assert backend.get_password("service", "name") is None
    cast("Any", backend).set_password("service", "name", "value")  # wrapped without types
    assert backend.get_password("service", "name") == "value"
    backend.delete_password("service", "name")
    with pytest.raises(PasswordDeleteError):
        backend.delete_password("service", "name")
    vault.lock()
    with pytest.raises(KeyringLocked):
        backend.get_password("service", "name")
    assert not VaultKeyring.viable, "the library never chooses it by itself"


def test_what_holds_a_key_or_values_shows_neither(tmp_path: Path) -> None:
    vault = unlocked_vault(tmp_path)
    identity = Identity(vault_identity())
    for shown in (repr(vault), repr(identity), str(identity), f"{identity}"):
        assert "AGE-SECRET-KEY" not in shown
        assert vault_identity().strip() not in shown
    with pytest.raises(TypeError):
        pickle.dumps(identity)
