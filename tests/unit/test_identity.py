"""Pinned binaries: found where only root and the operator write, and noticed when they change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jackin_broker.errors import ConfigError
from jackin_broker.identity import BinaryState, find_binary, pin_again, state_of


@pytest.fixture
def bin_dir(private_home: Path) -> Path:
    folder = private_home / "bin"
    folder.mkdir(mode=0o755)
    return folder


def program(path: Path, text: str = "#!/bin/sh\necho one\n") -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_executed_is_the_path_found_and_pinned_the_file_behind_it(bin_dir: Path) -> None:
    """DESIGN §6; psql is such a link, and fails when run by its real path."""
    real = program(bin_dir / "wrapper-15")
    (bin_dir / "psql").symlink_to("wrapper-15")
    pinned = find_binary("psql", str(bin_dir))
    assert pinned.path == str(bin_dir / "psql")
    assert pinned.file.path == os.path.realpath(real)
    assert state_of(pinned) is BinaryState.SAME


@pytest.mark.parametrize("name", ["", "bin/x", "/bin/sh", "..", ".", "no-such-program"])
def test_name_that_is_none_or_nowhere_is_an_error_that_names_it(name: str) -> None:
    """DESIGN §6: missing at start: an error that names it; named without a slash."""
    with pytest.raises(ConfigError) as caught:
        find_binary(name, "/usr/bin:/bin")
    assert repr(name) in str(caught.value)


def test_directories_that_others_can_write_are_passed_over(bin_dir: Path) -> None:
    """DESIGN §6: only from directories that root or the operator alone can write."""
    first, second = bin_dir / "open", bin_dir / "closed"
    for folder in (first, second):
        folder.mkdir()
        program(folder / "tool")
    first.chmod(0o777)
    assert find_binary("tool", f"{first}:{second}").path == str(second / "tool")
    with pytest.raises(ConfigError, match="can be written by others"):
        find_binary("tool", str(first))


def test_every_component_and_every_link_on_the_way_counts(bin_dir: Path) -> None:
    """A link in a closed directory that leads through an open one is no better."""
    opened = bin_dir / "open"
    (opened / "deep").mkdir(parents=True)
    program(opened / "deep" / "tool")
    (bin_dir / "tool").symlink_to("open/deep/tool")
    find_binary("tool", str(bin_dir))
    opened.chmod(0o777)
    for path in (opened / "deep", bin_dir):
        with pytest.raises(ConfigError, match="can be written by others"):
            find_binary("tool", str(path))


def test_file_that_others_can_write_is_refused(bin_dir: Path) -> None:
    """The file itself, too."""
    program(bin_dir / "tool").chmod(0o775)
    with pytest.raises(ConfigError, match="can be written by others"):
        find_binary("tool", str(bin_dir))


def test_relative_and_empty_places_of_the_path_are_not_searched(
    bin_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They mean wherever the broker was started."""
    program(bin_dir / "tool")
    monkeypatch.chdir(bin_dir)
    for search_path in ("", ":", ".", "../bin"):
        with pytest.raises(ConfigError, match="not on the broker's PATH"):
            find_binary("tool", search_path)


def test_directories_fifos_and_plain_files_are_no_binaries(bin_dir: Path) -> None:
    """Looking never blocks on what merely has the name."""
    (bin_dir / "folder").mkdir()
    os.mkfifo(bin_dir / "fifo", 0o755)
    (bin_dir / "text").write_text("x")
    for name in ("folder", "fifo", "text"):
        with pytest.raises(ConfigError, match="not on the broker's PATH"):
            find_binary(name, str(bin_dir))


def test_same_bytes_in_a_new_file_are_the_same_binary(bin_dir: Path) -> None:
    """DESIGN §6: stat compared at each use, the digest when stat differs."""
    tool = program(bin_dir / "tool")
    pinned = find_binary("tool", str(bin_dir))
    copy = bin_dir / "copy"
    shutil.copy(tool, copy)
    os.replace(copy, tool)
    assert tool.stat().st_ino != pinned.file.inode
    assert state_of(pinned) is BinaryState.SAME


def test_other_bytes_are_a_change_also_with_size_and_times_kept(bin_dir: Path) -> None:
    """CASES 3d: a binary swapped between prompt and run."""
    tool = program(bin_dir / "tool", "#!/bin/sh\necho one\n")
    pinned = find_binary("tool", str(bin_dir))
    program(tool, "#!/bin/sh\necho two\n")
    os.utime(tool, ns=(pinned.file.mtime_ns, pinned.file.mtime_ns))
    assert tool.stat().st_size == pinned.file.size_bytes
    assert state_of(pinned) is BinaryState.CHANGED
    again = pin_again(pinned)
    assert state_of(again) is BinaryState.SAME
    assert again.file.sha256 != pinned.file.sha256


def test_link_that_leads_to_another_file_is_a_change(bin_dir: Path) -> None:
    """The pin is of where the path leads now."""
    program(bin_dir / "one")
    program(bin_dir / "two", "#!/bin/sh\necho 2\n")
    (bin_dir / "tool").symlink_to("one")
    pinned = find_binary("tool", str(bin_dir))
    (bin_dir / "tool").unlink()
    (bin_dir / "tool").symlink_to("two")
    assert state_of(pinned) is BinaryState.CHANGED


@pytest.mark.parametrize("mode", [0o4755, 0o777])
def test_changed_mode_is_a_change(bin_dir: Path, mode: int) -> None:
    """Set-uid, or writable by others: not what was pinned."""
    tool = program(bin_dir / "tool")
    pinned = find_binary("tool", str(bin_dir))
    tool.chmod(mode)
    assert state_of(pinned) is BinaryState.CHANGED


def test_directory_that_was_opened_to_others_is_a_change(bin_dir: Path) -> None:
    """What others can put there may be anything by the time it runs."""
    program(bin_dir / "tool")
    pinned = find_binary("tool", str(bin_dir))
    bin_dir.chmod(0o777)
    assert state_of(pinned) is BinaryState.CHANGED
    with pytest.raises(ConfigError, match="can be written by others"):
        pin_again(pinned)


def test_removed_binary_is_missing(bin_dir: Path) -> None:
    """DESIGN §6."""
    tool = program(bin_dir / "tool")
    pinned = find_binary("tool", str(bin_dir))
    tool.unlink()
    assert state_of(pinned) is BinaryState.MISSING
    with pytest.raises(ConfigError, match="no longer at"):
        pin_again(pinned)


def test_scripts_interpreter_is_pinned_with_it(bin_dir: Path) -> None:
    """What runs a script is as much what runs; through `env` as well."""
    interpreter = bin_dir / "lang"
    shutil.copy("/bin/sh", interpreter)
    direct = program(bin_dir / "direct", f"#!{interpreter} -e\n")
    program(bin_dir / "found", "#!/usr/bin/env -S X=1 lang\n")
    for name in (direct.name, "found"):
        pinned = find_binary(name, f"{bin_dir}:/usr/bin")
        assert pinned.interpreters[-1].path == os.path.realpath(interpreter)
        assert str(Path(os.path.realpath(bin_dir))) in pinned.directories
        assert state_of(pinned) is BinaryState.SAME
        with interpreter.open("ab") as file:
            file.write(b"changed")
        assert state_of(pinned) is BinaryState.CHANGED
        shutil.copy("/bin/sh", interpreter)


def test_script_without_its_interpreter_is_refused_at_start(bin_dir: Path) -> None:
    """Better said at start than at the first request."""
    program(bin_dir / "tool", "#!/nowhere/lang\n")
    with pytest.raises(ConfigError, match="'tool' is a script, and its interpreter /nowhere/lang"):
        find_binary("tool", str(bin_dir))


def test_interpreter_that_others_can_change_is_refused(bin_dir: Path) -> None:
    """It would run whatever the script says."""
    interpreter = bin_dir / "lang"
    shutil.copy("/bin/sh", interpreter)
    interpreter.chmod(0o777)
    program(bin_dir / "tool", f"#!{interpreter}\n")
    with pytest.raises(ConfigError, match="can be written by others"):
        find_binary("tool", str(bin_dir))


def test_binaries_of_this_machine_are_found_and_same() -> None:
    """Real parts: what a capsule would list."""
    for name in ("sh", "env", "ls"):
        assert state_of(find_binary(name, "/usr/local/bin:/usr/bin:/bin")) is BinaryState.SAME
