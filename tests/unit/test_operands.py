"""File operands: which files an approval covers, and that they are compared before the run."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker.operands import (
    DIGESTED_MAX_BYTES,
    DIGESTED_MAX_COUNT,
    EXAMINED_MAX_ARGS,
    EXAMINED_MAX_BYTES,
    OPERANDS_MAX_COUNT,
    PARTED_MAX_BYTES,
    PARTS_MAX,
    FileOperand,
    Reach,
    changed_operand,
    file_operands,
    has_more,
    is_unchanged,
    reach_of,
)


class Project:
    """A project that the agent writes, open as a working directory."""

    def __init__(self, root: Path) -> None:
        self.path = root / "project"
        self.outside = root / "outside"
        self.path.mkdir()
        self.outside.mkdir()
        self.fd = os.open(self.path, os.O_PATH | os.O_DIRECTORY)
        self.roots = (os.fsencode(self.path),)

    def write(self, name: str, data: bytes = b"select 1") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def operands(self, *args: str | bytes) -> tuple[FileOperand, ...]:
        return file_operands([os.fsencode(arg) for arg in args], self.fd, self.roots)

    def paths(self, *args: str | bytes) -> list[bytes]:
        return [operand.path for operand in self.operands(*args)]

    def reach(self, *args: str | bytes) -> Reach:
        """Seen from a directory outside, which the agent cannot write."""
        fd = os.open(self.outside, os.O_PATH | os.O_DIRECTORY)
        try:
            return reach_of([os.fsencode(arg) for arg in args], fd, self.roots)
        finally:
            os.close(fd)

    def changed(self, before: tuple[FileOperand, ...], *args: str) -> bytes | None:
        return changed_operand(before, [os.fsencode(arg) for arg in args], self.fd, self.roots)


@pytest.fixture
def project(private_home: Path) -> Iterator[Project]:
    made = Project(Path(os.path.realpath(private_home)))
    before = len(os.listdir("/proc/self/fd"))
    yield made
    assert len(os.listdir("/proc/self/fd")) == before, "a descriptor was leaked"
    os.close(made.fd)


def test_file_under_a_writable_root_is_digested_with_its_place(project: Project) -> None:
    """DESIGN §6: digested when asked, marked in the prompt."""
    path = project.write("report.sql", b"select 1")
    (operand,) = project.operands("-f", "report.sql")
    assert (operand.path, operand.argument) == (b"report.sql", 1)
    assert operand.sha256 == hashlib.sha256(b"select 1").hexdigest()
    assert (operand.size_bytes, operand.inode) == (8, path.stat().st_ino)


@pytest.mark.parametrize(
    ("arg", "path"),
    [
        ("x.sql", b"x.sql"),
        ("./x.sql", b"./x.sql"),
        ("sub/../x.sql", b"sub/../x.sql"),
        ("--file=x.sql", b"x.sql"),
        ("-fx.sql", b"x.sql"),
        ("-f=x.sql", b"x.sql"),
        ("@x.sql", b"x.sql"),
        ("--data=@x.sql", b"x.sql"),
        ("--field=body=@x.sql", b"x.sql"),
        ("-F@x.sql", b"x.sql"),
        ("if=x.sql", b"x.sql"),
        ("a=b=c=@x.sql", b"x.sql"),
        ("other.sql,x.sql", b"x.sql"),
        ("--files=other.sql,x.sql", b"x.sql"),
        ("x.sql:/there", b"x.sql"),
        ("body=@x.sql;type=text/plain", b"x.sql"),
        ("host=db passfile=x.sql sslmode=off", b"x.sql"),
        ("passfile='x.sql' host=db", b"x.sql"),
    ],
)
def test_path_within_an_argument_is_found(project: Project, arg: str, path: bytes) -> None:
    """Read generously: a wrong guess costs a digest, a missed file an approval."""
    project.write("x.sql")
    (project.path / "sub").mkdir()
    assert project.paths(arg) == [path]


def test_absolute_path_and_bytes_that_are_no_text_are_found(project: Project) -> None:
    """Paths are bytes."""
    absolute = os.fsencode(project.write("x.sql"))
    name = b"\xff\n.sql"
    (project.path / os.fsdecode(name)).write_bytes(b"x")
    assert project.paths(absolute, name) == [absolute, name]


def test_what_the_agent_cannot_write_is_not_an_operand(project: Project) -> None:
    """DESIGN §6: files which the agent can write."""
    other = project.outside / "x.sql"
    other.write_bytes(b"x")
    assert project.paths(str(other), "/etc/passwd") == []


def test_way_through_a_directory_of_the_agent_counts(project: Project) -> None:
    """A link there can be turned to another file; so can one on the way back out."""
    target = project.outside / "x.sql"
    target.write_bytes(b"x")
    (project.path / "link").symlink_to(target)
    (project.outside / "in").symlink_to(project.path / "link")
    (project.outside / "back").symlink_to(project.path)
    back = f"{project.outside}/back/../outside/x.sql"
    assert project.paths("link", str(project.outside / "in"), back) == [
        b"link",
        os.fsencode(project.outside / "in"),
        os.fsencode(back),
    ]
    before = project.operands("link")
    (project.path / "link").unlink()
    (project.path / "link").symlink_to("/etc/passwd")
    assert project.changed(before, "link") == b"link"


@pytest.mark.timeout(10)
def test_looking_never_blocks_and_never_counts_what_is_no_file(project: Project) -> None:
    """A FIFO without a writer, a directory, a device, a socket's name, a loop."""
    os.mkfifo(project.path / "fifo")
    (project.path / "folder").mkdir()
    (project.path / "null").symlink_to("/dev/null")
    (project.path / "loop").symlink_to("loop")
    args = ("fifo", "folder", "null", "loop", "absent", "", "-", "x" * 5000, "--=@")
    assert project.paths(*args) == []


def test_changed_bytes_removed_and_new_files_are_named(project: Project) -> None:
    """CASES 3d: a file swapped, or made, between prompt and run."""
    script = project.write("a.sh", b"one")
    args = ("a.sh", "later.sh")
    before = project.operands(*args)
    assert project.changed(before, *args) is None
    script.write_bytes(b"two")
    assert not is_unchanged(before[0], project.fd)
    assert project.changed(before, *args) == b"a.sh"
    script.unlink()
    assert project.changed(before, *args) == b"a.sh"
    script.mkdir()
    assert project.changed(before, *args) == b"a.sh"
    script.rmdir()
    os.replace(project.write("copy", b"one"), script)
    assert project.changed(before, *args) is None
    project.write("later.sh")
    assert project.changed(before, *args) == b"later.sh"


def test_same_file_twice_is_one_operand(project: Project) -> None:
    """The prompt shows each once."""
    project.write("a")
    assert project.paths("a", "a", "--x=a") == [b"a"]


def test_beyond_the_limits_files_are_compared_by_stat(project: Project) -> None:
    """DESIGN §6: up to 16 files, 16 MiB; more are not passed over in silence."""
    names = [f"f{number:03}" for number in range(OPERANDS_MAX_COUNT + 1)]
    for name in names:
        project.write(name)
    operands = project.operands(*names)
    assert len(operands) == OPERANDS_MAX_COUNT
    assert [bool(o.sha256) for o in operands].count(True) == DIGESTED_MAX_COUNT
    assert has_more(names_as_bytes(names), operands)
    last = project.path / names[OPERANDS_MAX_COUNT - 1]
    assert project.changed(operands, *names) is None
    times = (operands[-1].mtime_ns, operands[-1].mtime_ns)
    last.write_bytes(b"select 2")
    os.utime(last, ns=times)
    assert project.changed(operands, *names) == operands[-1].path


def test_large_file_is_not_read_and_still_compared(project: Project) -> None:
    """A sparse file of a terabyte costs nothing."""
    large, small = project.write("large"), project.write("small")
    os.truncate(large, 1 << 40)
    first, second = project.operands("large", "small")
    assert (first.sha256, first.size_bytes) == ("", 1 << 40)
    assert second.sha256
    os.truncate(large, (1 << 40) + 1)
    assert not is_unchanged(first, project.fd)
    os.truncate(small, DIGESTED_MAX_BYTES)
    assert project.operands("small")[0].sha256
    os.truncate(small, DIGESTED_MAX_BYTES + 1)
    assert not project.operands("small")[0].sha256


def test_number_of_arguments_looked_at_is_bounded(project: Project) -> None:
    """And what was not looked at is said."""
    project.write("a")
    args = [b"x"] * EXAMINED_MAX_ARGS + [b"a"]
    assert file_operands(args, project.fd, project.roots) == ()
    assert has_more(args, ())
    assert not has_more(args[1:], ())


def test_whatever_the_agent_can_put_in_place_counts_for_a_rule(project: Project) -> None:
    """A directory holds hooks, a pipe any bytes, and what is absent can appear."""
    (project.path / "folder").mkdir()
    os.mkfifo(project.path / "pipe")
    (project.outside / "own").mkdir()
    for name in ("folder", "pipe", "absent"):
        assert project.reach("-f", str(project.path / name)).is_writable
        assert project.reach(f"--file=../project/{name}").is_writable
    assert project.reach("own", "absent", "/usr/bin", "/dev/stdin", "-") == Reach()


def test_a_path_within_a_list_or_a_text_counts_for_a_rule_too(project: Project) -> None:
    """Else `dbname=x passfile=…` would have a credential lent without `trust_cwd`."""
    path = str(project.write("x.sql"))
    for arg in (f"file://{path}", f"/usr/a,{path}", f"{path}:/b", f"host=a passfile={path}"):
        assert project.reach(arg).is_writable
    assert project.reach("fix ../project/x.sql, please", "a=/usr/a,b=/usr/b c=d") == Reach()


def test_a_longer_list_than_is_looked_at_is_said(project: Project) -> None:
    project.write("x.sql")
    for arg in (b"a," * PARTS_MAX + b"x.sql", b"a=b " * (PARTED_MAX_BYTES // 4) + b"c=x.sql"):
        assert has_more([arg], ())
        assert project.reach(arg).is_writable
    assert not has_more([b"a," * (PARTS_MAX - 1) + b"x.sql"], ())


def test_what_was_not_looked_at_counts_for_a_rule(project: Project) -> None:
    """An agent hides a file behind more arguments than are looked at."""
    path = os.fsencode(project.write("x.sql"))
    assert project.reach(*[b"x"] * EXAMINED_MAX_ARGS, path).is_writable
    long = [b"/%04d/" % number + b"x" * 2000 for number in range(EXAMINED_MAX_BYTES // 2000)]
    assert project.reach(*long, path).is_writable
    assert has_more([*long, path], ())


def test_a_path_that_is_another_for_the_command_than_for_us_is_said(project: Project) -> None:
    """Its `/proc/self/cwd` is the project, ours is not: nothing there is digested."""
    project.write("x.sql")
    os.mkfifo(project.path / "pipe")
    for name in ("/proc/self/cwd/x.sql", "/proc/thread-self/cwd/../x", "/dev/fd/9"):
        assert project.reach("-f", name) == Reach(is_writable=True, moving=os.fsencode(name))
    pipe = os.fsencode(project.path / "pipe")
    assert project.reach(pipe).moving == pipe
    assert project.reach(str(project.path / "x.sql")).moving == b""


@pytest.mark.timeout(10)
def test_looking_at_the_longest_arguments_is_bounded(project: Project) -> None:
    """4 MiB of `a/../a/../` are seconds of system calls, if all of them are looked at."""
    path = b"/usr/../" * 500 + b"usr/bin/env"
    args = [b"/%d/../" % number + path for number in range(EXAMINED_MAX_ARGS)]
    start = time.process_time()
    file_operands(args, project.fd, project.roots)
    reach_of(args, project.fd, project.roots)
    lists = [b"a=b," * 200] * EXAMINED_MAX_ARGS
    file_operands(lists, project.fd, project.roots)
    reach_of([*lists, b"w" * 4_000_000 + b" x"], project.fd, project.roots)
    assert time.process_time() - start < 2


def names_as_bytes(names: list[str]) -> list[bytes]:
    return [name.encode() for name in names]
