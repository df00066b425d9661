"""The key's file: what is believed, and what is not shown."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jackin_broker.bridge.tokens import BridgeKey, load_key, new_key, revoke_key, save_key
from jackin_broker.errors import ConfigError


def test_a_saved_key_is_loaded_again_and_is_private(short_tmp: Path) -> None:
    path, key = short_tmp / "bridge" / "web.json", new_key(1234, 1235)
    save_key(path, key)
    assert load_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_no_two_keys_are_the_same_and_each_has_256_bits() -> None:
    made = {new_key().token for _ in range(100)}
    assert len(made) == 100
    assert all(len(bytes.fromhex(token)) == 32 for token in made)


def test_a_key_has_no_text_form_that_holds_its_token() -> None:
    key = new_key(1, 2)
    assert key.token not in f"{key!r} {key}"


def test_only_the_token_matches() -> None:
    key = new_key()
    assert key.matches(key.token.encode())
    for wrong in (b"", b"0" * 64, key.token[:-1].encode(), key.token.upper().encode() + b"x"):
        assert not key.matches(wrong)


def test_a_revoked_key_is_gone_and_revoking_again_is_nothing(short_tmp: Path) -> None:
    path = short_tmp / "bridge" / "web.json"
    save_key(path, new_key())
    revoke_key(path)
    revoke_key(path)
    assert load_key(path) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_could_read_or_write_is_not_believed(short_tmp: Path, mode: int) -> None:
    path = short_tmp / "bridge" / "web.json"
    save_key(path, new_key())
    path.chmod(mode)
    with pytest.raises(ConfigError, match="others can read it"):
        load_key(path)


def test_a_link_is_not_followed(short_tmp: Path) -> None:
    path = short_tmp / "bridge" / "web.json"
    save_key(path, new_key())
    (path.parent / "link.json").symlink_to(path)
    with pytest.raises(ConfigError):
        load_key(path.parent / "link.json")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"token":"short"}', b'{"token":1}', b"\xff"])
def test_what_is_no_key_is_an_error_that_says_what_to_do(short_tmp: Path, content: bytes) -> None:
    path = short_tmp / "web.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="does not hold a token") as error:
        load_key(path)
    assert error.value.hint == f"remove it for a new token: rm {path}"


def test_the_struct_is_what_is_in_the_file(short_tmp: Path) -> None:
    path = short_tmp / "web.json"
    save_key(path, BridgeKey("ab" * 32, 5, 6))
    assert path.read_text() == '{"token":"' + "ab" * 32 + '","http_port":5,"frames_port":6}'
    assert os.stat(path).st_nlink == 1
