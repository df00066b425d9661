"""Links in a directory of the operator's: only ours are touched, whatever an agent does there."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from jackin_broker.errors import ConfigError
from jackin_broker.link_folder import all_manifests, sync_links

TARGET = "/jackin/bin/jackin-exec"


@pytest.fixture
def folder(short_tmp: Path) -> Path:
    made = short_tmp / "bin"
    made.mkdir()
    return made


@pytest.fixture
def manifests(short_tmp: Path) -> Path:
    return short_tmp / "state"


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    """Each name's inode and, for a link, where it leads."""
    return {
        path.name: (path.lstat().st_ino, os.readlink(path) if path.is_symlink() else "")
        for path in folder.iterdir()
    }


def test_each_name_gets_a_link_and_a_second_run_changes_nothing(
    folder: Path, manifests: Path
) -> None:
    done = sync_links(folder, ["gh", "wicket"], TARGET, manifests)
    assert done.made == ("gh", "wicket")
    assert {os.readlink(folder / name) for name in done.made} == {TARGET}
    before = snapshot(folder), sorted(p.stat().st_mtime_ns for p in manifests.iterdir())
    again = sync_links(folder, ["gh", "wicket"], TARGET, manifests)
    assert (again.made, again.removed, again.in_the_way) == ((), (), ())
    assert (snapshot(folder), sorted(p.stat().st_mtime_ns for p in manifests.iterdir())) == before


def test_a_name_that_is_no_longer_listed_loses_its_link(folder: Path, manifests: Path) -> None:
    sync_links(folder, ["gh", "wicket"], TARGET, manifests)
    done = sync_links(folder, ["gh"], TARGET, manifests)
    assert done.removed == ("wicket",)
    assert sorted(snapshot(folder)) == ["gh"]


def test_another_target_replaces_our_links(folder: Path, manifests: Path) -> None:
    sync_links(folder, ["gh"], TARGET, manifests)
    done = sync_links(folder, ["gh"], "/elsewhere/jackin-exec", manifests)
    assert (done.made, done.removed) == (("gh",), ())
    assert os.readlink(folder / "gh") == "/elsewhere/jackin-exec"


def test_what_somebody_else_put_there_is_never_touched(folder: Path, manifests: Path) -> None:
    (folder / "gh").write_text("theirs")
    (folder / "wicket").symlink_to(TARGET)  # the same target, but not made by us
    (folder / "dir").mkdir()
    before = snapshot(folder)
    done = sync_links(folder, ["gh", "wicket", "dir"], TARGET, manifests)
    assert done.in_the_way == ("dir", "gh", "wicket")
    assert snapshot(folder) == before
    sync_links(folder, [], TARGET, manifests)
    assert snapshot(folder) == before


def test_a_link_of_ours_that_somebody_replaced_is_theirs_now(folder: Path, manifests: Path) -> None:
    sync_links(folder, ["gh", "git"], TARGET, manifests)
    (folder / "gh").unlink()
    (folder / "gh").write_text("theirs")
    (folder / "git").unlink()
    (folder / "git").symlink_to("/usr/bin/git")
    done = sync_links(folder, [], TARGET, manifests)
    assert done.removed == ()
    assert (folder / "gh").read_text() == "theirs"
    assert os.readlink(folder / "git") == "/usr/bin/git"


def test_a_link_that_was_removed_is_made_again(folder: Path, manifests: Path) -> None:
    sync_links(folder, ["gh"], TARGET, manifests)
    (folder / "gh").unlink()
    assert sync_links(folder, ["gh"], TARGET, manifests).made == ("gh",)


def test_nothing_in_the_directory_says_what_was_made(folder: Path, manifests: Path) -> None:
    """An agent that shares it cannot have us remove or overwrite anything."""
    sync_links(folder, ["gh"], TARGET, manifests)
    assert sorted(snapshot(folder)) == ["gh"]
    victim = folder.parent / "victim"
    victim.write_text("precious")
    for name in (".manifest.json", ".lock", "git", "wicket"):
        (folder / name).symlink_to(victim)
    sync_links(folder, ["git", "wicket"], TARGET, manifests)
    sync_links(folder, [], TARGET, manifests)
    assert victim.read_text() == "precious"


def test_while_another_run_has_the_lock_nothing_is_done(folder: Path, manifests: Path) -> None:
    sync_links(folder, ["gh"], TARGET, manifests)
    (lock,) = manifests.glob("*.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = sync_links(folder, ["gh", "git"], TARGET, manifests)
    assert done.is_skipped
    assert sorted(snapshot(folder)) == ["gh"]
    assert sync_links(folder, ["gh", "git"], TARGET, manifests).made == ("git",)


def test_a_run_that_was_cut_off_leaves_no_link_that_nobody_knows(
    folder: Path, manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = os.symlink, 0

    def cut(*args: object, **more: object) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        real(*args, **more)  # type: ignore[arg-type] # passed on as they came

    with monkeypatch.context() as patch:
        patch.setattr(os, "symlink", cut)
        with pytest.raises(KeyboardInterrupt):
            sync_links(folder, ["gh", "git"], TARGET, manifests)
    assert sorted(snapshot(folder)) == ["gh"]
    assert sync_links(folder, [], TARGET, manifests).removed == ("gh",)


def test_directories_do_not_share_a_manifest(folder: Path, manifests: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    sync_links(folder, ["gh"], TARGET, manifests)
    sync_links(other, ["git"], TARGET, manifests)
    assert sync_links(other, [], TARGET, manifests).removed == ("git",)
    assert sorted(snapshot(folder)) == ["gh"]
    assert {one.folder for one in all_manifests(manifests)} == {
        os.path.realpath(folder),
        os.path.realpath(other),
    }


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_directory_is_an_error(folder: Path, manifests: Path, name: str) -> None:
    (folder / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a directory"):
        sync_links(folder / name, ["gh"], TARGET, manifests)


def test_a_broken_manifest_is_an_error_and_nothing_is_touched(
    folder: Path, manifests: Path
) -> None:
    sync_links(folder, ["gh"], TARGET, manifests)
    (record,) = manifests.glob("*.json")
    record.write_text("{")
    with pytest.raises(ConfigError, match="is not a manifest"):
        sync_links(folder, [], TARGET, manifests)
    assert sorted(snapshot(folder)) == ["gh"]


def test_a_link_that_is_put_on_the_way_at_this_moment_is_not_followed(
    short_tmp: Path, manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent may own a directory above, in a home that it shares."""
    shared, elsewhere = short_tmp / "shared", short_tmp / "elsewhere"
    for place in (shared, elsewhere):
        (place / "bin").mkdir(parents=True)

    def swap(_: Path) -> None:
        shared.rename(short_tmp / "aside")
        shared.symlink_to(elsewhere)
        manifests.mkdir(mode=0o700)

    monkeypatch.setattr("jackin_broker.link_folder.ensure_private_dir", swap)
    with pytest.raises(ConfigError, match="moved"):
        sync_links(shared / "bin", ["gh"], TARGET, manifests)
    assert not list((elsewhere / "bin").iterdir())
