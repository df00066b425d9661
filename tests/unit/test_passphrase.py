"""A passphrase comes from a file only if that is its owner's alone.

Whose rule: issue "The main job" item 6, `passphrase.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jackin_broker.errors import ConfigError
from jackin_broker.passphrase import PASSPHRASE_FILE_VARIABLE, from_file


def written(folder: Path, content: bytes, mode: int = 0o600) -> dict[str, str]:
    file = folder / "passphrase"
    file.write_bytes(content)
    file.chmod(mode)
    return {PASSPHRASE_FILE_VARIABLE: str(file)}


def test_without_the_variable_there_is_none() -> None:
    assert from_file({}) is None
    assert from_file({PASSPHRASE_FILE_VARIABLE: ""}) is None


@pytest.mark.parametrize(
    ("content", "passphrase"),
    [
        (b"correct horse", "correct horse"),
        (b"correct horse\n", "correct horse"),
        (b"correct horse\r\n", "correct horse"),
        (b" spaces stay \n\n", " spaces stay \n"),
        ("grün\n".encode(), "grün"),
    ],
)
def test_one_newline_goes(tmp_path: Path, content: bytes, passphrase: str) -> None:
    assert from_file(written(tmp_path, content)) == passphrase


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_file_that_others_can_use_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, mode: int
) -> None:
    environ = written(tmp_path, b"correct horse", mode)
    with pytest.raises(ConfigError, match="can be read by others") as refused:
        from_file(environ)
    assert refused.value.hint == f"chmod 600 {environ[PASSPHRASE_FILE_VARIABLE]}"
    assert "correct horse" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe secret", b"x" * 5000])
def test_what_is_no_passphrase_is_refused_without_being_repeated(
    tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(ConfigError) as refused:
        from_file(written(tmp_path, content))
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_folders_fifos_and_nothing_are_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for path, words in (
        (tmp_path, "not a regular file"),
        (fifo, "not a regular file"),
        (tmp_path / "absent", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=words):
            from_file({PASSPHRASE_FILE_VARIABLE: str(path)})
