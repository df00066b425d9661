"""Who else could read or change a source's file or program is warned of, and nothing is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackin_broker.bindings import Binding, CommandSource, FileSource, OpSource, Source, ValueSource
from jackin_broker.sources.permissions import permission_warnings


def warned(source: Source, path: str = "/usr/bin:/bin") -> list[str]:
    return list(permission_warnings([Binding("TOKEN", source)], {"PATH": path}))


def test_a_private_file_and_an_installed_program_are_fine(short_tmp: Path) -> None:
    secret = short_tmp / "token"
    secret.touch(mode=0o600)
    assert warned(FileSource(str(secret))) == []
    assert warned(CommandSource(("true",))) == []
    assert warned(ValueSource("x")) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_can_read_is_warned_of(short_tmp: Path, mode: int) -> None:
    secret = short_tmp / "token"
    secret.touch()
    secret.chmod(mode)
    (line,) = warned(FileSource(str(secret)))
    assert line.startswith("env.TOKEN: ")
    assert f"(mode {mode:04o}), chmod 0600 {secret}" in line


def test_a_file_or_program_that_others_can_change_is_warned_of(short_tmp: Path) -> None:
    folder = short_tmp / "open"
    folder.mkdir()
    for name in ("token", "op", "tool"):
        (folder / name).touch(mode=0o700)
    folder.chmod(0o777)
    for source in (
        FileSource(str(folder / "token")),
        CommandSource((str(folder / "tool"),)),
        CommandSource(("tool", "x")),
        OpSource("op://a/b/c"),
    ):
        (line,) = warned(source, str(folder))
        assert "others decide what the value is" in line


def test_what_is_not_there_is_not_warned_of(short_tmp: Path) -> None:
    """Resolving says so, with what to do."""
    assert warned(FileSource(str(short_tmp / "absent"))) == []
    assert warned(CommandSource(("no-such-program",))) == []
