"""A file is replaced whole or not at all; a lock is held by one process at a time.

Whose rule: `atomic.py`.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jackin_broker.atomic import held_lock, replace_file
from support.real import START_LIMIT_S

_TAKE = """
import sys
from pathlib import Path
from jackin_broker.atomic import held_lock
with held_lock(Path(sys.argv[1])):
    print("taken", flush=True)
"""


def test_the_new_file_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "file"
    old = os.umask(0)
    try:
        replace_file(path, b"one")
        replace_file(tmp_path / "other", b"one", mode=0o640)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o640


def test_a_failure_leaves_the_old_content_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path: Path) -> None:
    """Operators keep their settings elsewhere and link to them."""
    kept = tmp_path / "dotfiles"
    kept.mkdir()
    (kept / "file").write_bytes(b"old")
    link = tmp_path / "file"
    link.symlink_to(kept / "file")
    replace_file(link, b"new")
    assert link.is_symlink()
    assert (kept / "file").read_bytes() == b"new"


def test_a_lock_keeps_other_processes_out_until_it_is_let_go(tmp_path: Path) -> None:
    lock = tmp_path / "folder" / "lock"
    with held_lock(lock):
        other = subprocess.Popen(
            [sys.executable, "-c", _TAKE, str(lock)], stdout=subprocess.PIPE, text=True
        )
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1)
    out, _ = other.communicate(timeout=START_LIMIT_S)
    assert out == "taken\n"
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    assert stat.S_IMODE(lock.parent.stat().st_mode) == 0o700
