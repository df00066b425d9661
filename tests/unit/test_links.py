"""The programs of a capsule: complete, compiled, readable by any uid, updated in place."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jackin_broker.errors import ConfigError
from jackin_broker.links import build_programs
from support.real import SYSTEM_PYTHON, require_file
from support.second_uid import run_as


@pytest.fixture
def interpreter() -> str:
    return require_file(SYSTEM_PYTHON, package="python3")


def _run(program: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {"JACKIN_BROKER_SOCKET": "/nowhere/broker.sock"}
    return subprocess.run([program, *args], env=env, capture_output=True, text=True, timeout=30)


def test_the_programs_run_where_they_are_and_links_are_the_shim(
    short_tmp: Path, interpreter: str
) -> None:
    dest = short_tmp / "bin"
    assert build_programs(dest, ["gh", "git"], interpreter)
    assert os.readlink(dest / "gh") == "jackin-exec"
    for program in ("jackin-exec", "gh"):
        done = _run(dest / program, "pr", "list")
        assert done.returncode == 126, "no broker answers, so nothing was run"
        assert "/nowhere/broker.sock" in done.stderr
    assert _run(dest / "jackin-capsule", "--version").returncode == 0


def test_the_bytecode_is_used_and_needs_no_matching_times(
    short_tmp: Path, interpreter: str
) -> None:
    dest = short_tmp / "bin"
    build_programs(dest, [], interpreter)
    package = dest / "lib" / "jackin_capsule"
    compiled = list((package / "__pycache__").glob("shim.*.pyc"))
    assert len(compiled) == 1
    assert compiled[0].read_bytes()[4:8] == b"\x01\0\0\0", "an unchecked hash: PEP 552"
    os.utime(package / "shim.py", (0, 0))
    (package / "shim.py").write_text("raise SystemExit('the source was read')\n")
    assert "the source was read" not in _run(dest / "jackin-exec", "true").stderr


def test_everything_can_be_read_by_another_uid(open_tmp: Path, interpreter: str) -> None:
    dest = open_tmp / "bin"
    former = os.umask(0o077)
    try:
        build_programs(dest, ["gh"], interpreter)
    finally:
        os.umask(former)
    for path in [dest, *dest.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        is_program = path.parent == dest and not path.suffix
        wanted = 0o755 if path.is_dir() or is_program else 0o644
        assert mode == wanted, path
    assert run_as([str(dest / "gh"), "x"]).returncode == 126


def test_a_name_that_is_no_longer_listed_loses_its_link_and_no_more(
    short_tmp: Path, interpreter: str
) -> None:
    dest = short_tmp / "bin"
    build_programs(dest, ["gh", "git"], interpreter)
    (dest / "mine").write_text("not ours")
    (dest / "other").symlink_to("mine")
    inode = dest.stat().st_ino
    build_programs(dest, ["git"], interpreter)
    assert not os.path.lexists(dest / "gh")
    assert {"git", "mine", "other"} <= set(os.listdir(dest))
    assert dest.stat().st_ino == inode, "a running capsule keeps its mount"


def test_a_file_in_the_way_of_a_link_is_not_overwritten(short_tmp: Path, interpreter: str) -> None:
    dest = short_tmp / "bin"
    build_programs(dest, [], interpreter)
    (dest / "gh").write_text("mine")
    with pytest.raises(ConfigError, match="gh: is in the way"):
        build_programs(dest, ["gh"], interpreter)
    assert (dest / "gh").read_text() == "mine"


def test_nothing_is_written_again_while_nothing_changed(short_tmp: Path, interpreter: str) -> None:
    dest = short_tmp / "bin"
    build_programs(dest, ["gh"], interpreter)
    before = {path: path.lstat().st_mtime_ns for path in dest.rglob("*")}
    assert build_programs(dest, ["gh"], interpreter)
    assert {path: path.lstat().st_mtime_ns for path in dest.rglob("*")} == before


def test_an_interrupted_build_is_made_again(short_tmp: Path, interpreter: str) -> None:
    dest = short_tmp / "bin"
    build_programs(dest, [], interpreter)
    (dest / ".manifest.json").unlink()
    package = dest / "lib" / "jackin_capsule"
    (package / "shim.py").write_text("half a f")
    (package / "gone.py").write_text("a module of an older version")
    build_programs(dest, [], interpreter)
    assert not (package / "gone.py").exists()
    assert _run(dest / "jackin-exec", "true").returncode == 126


def test_an_interpreter_that_cannot_run_here_gives_programs_without_bytecode(
    short_tmp: Path,
) -> None:
    dest = short_tmp / "bin"
    assert not build_programs(dest, ["gh"], "/image/bin/python3")
    assert (dest / "jackin-exec").read_text().startswith("#!/image/bin/python3 -IS\n")
    assert not list(dest.rglob("*.pyc"))
    assert not build_programs(dest, ["gh"], "/image/bin/python3")


@pytest.mark.parametrize("name", ["", "jackin-exec", "jackin-capsule", "lib", "a/b", "..", "a\0"])
def test_a_name_that_would_be_no_program_is_refused(
    short_tmp: Path, interpreter: str, name: str
) -> None:
    with pytest.raises(ConfigError, match="host_binaries"):
        build_programs(short_tmp / "bin", [name], interpreter)


@pytest.mark.parametrize("path", ["python3", "/a b/python3", "/" + "x" * 300])
def test_an_interpreter_that_no_first_line_can_name_is_refused(short_tmp: Path, path: str) -> None:
    with pytest.raises(ConfigError):
        build_programs(short_tmp / "bin", [], path)


def test_the_package_is_found_without_being_imported(short_tmp: Path, interpreter: str) -> None:
    program = (
        "import sys; from pathlib import Path; from jackin_broker.links import build_programs\n"
        f"build_programs(Path({str(short_tmp / 'bin')!r}), [], {interpreter!r})\n"
        "assert 'jackin_capsule.shim' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
