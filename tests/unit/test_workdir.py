"""The working directory: the right one, held open, or a refusal that says what to do."""

from __future__ import annotations

import os
import resource
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jackin_broker.config import CapsuleConfig, CapsuleKind, Mount, UnmappedCwd
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.mountwalk import DEPTH_MAX, PATH_MAX_BYTES
from jackin_broker.workdir import WorkDir, open_workdir

# Enough swaps that resolve-then-open would be caught hundreds of times (measured: 2.8 %).
RACES = 3000


class Layout:
    """A host with two mounts, one inside the other on the capsule's side, and an outside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.app, self.docs, self.out = root / "src" / "app", root / "docs", root / "outside"
        for folder in (self.app / "sub" / "deep", self.docs / "de", self.out / "sub"):
            folder.mkdir(parents=True)
        self.capsule = CapsuleConfig(
            name="web",
            kind=CapsuleKind.BWRAP,
            uids=(1000,),
            mounts=(
                Mount("/space", str(self.app)),
                Mount("/space/docs", str(self.docs), read_only=True),
            ),
        )

    def open(self, cwd: str | bytes, **changes: object) -> WorkDir:
        capsule = msgspec.structs.replace(self.capsule, **changes)
        return open_workdir(os.fsencode(cwd), capsule)

    def is_writable(self, cwd: str, **changes: object) -> bool:
        with self.open(cwd, **changes) as workdir:
            return workdir.is_agent_writable

    def refusal(self, cwd: str | bytes, **changes: object) -> Refusal:
        with pytest.raises(Refusal) as caught:
            self.open(cwd, **changes).close()
        assert caught.value.code is DenialCode.WORKDIR_REJECTED
        assert caught.value.hint
        return caught.value


@pytest.fixture
def layout(private_home: Path) -> Iterator[Layout]:
    before = len(os.listdir("/proc/self/fd"))
    yield Layout(Path(os.path.realpath(private_home)))
    assert len(os.listdir("/proc/self/fd")) == before, "a descriptor was leaked"


@pytest.mark.parametrize(
    ("cwd", "expected"),
    [
        ("/space", "src/app"),
        ("/space/", "src/app"),
        ("//space//.//sub/", "src/app/sub"),
        ("/space/sub/deep", "src/app/sub/deep"),
        ("/space/sub/../sub", "src/app/sub"),
        ("/elsewhere/../space/sub", "src/app/sub"),
        ("/../space", "src/app"),
        ("/space/docs", "docs"),
        ("/space/docs/de", "docs/de"),
        ("/space/docs/..", "src/app"),
    ],
)
def test_path_under_a_mount_is_the_directory_behind_it(
    layout: Layout, cwd: str, expected: str
) -> None:
    """DESIGN §9: the longest matching mount; `..`, trailing slashes, the mount itself."""
    with layout.open(cwd) as workdir:
        wanted = layout.root / expected
        assert workdir.host_path == os.fsencode(wanted)
        assert workdir.capsule_path == os.fsencode(cwd)
        assert os.path.samestat(os.fstat(workdir.fd), wanted.stat())
        assert workdir.identity == (wanted.stat().st_dev, wanted.stat().st_ino)
        assert workdir.mount is not None
        below = b"/".join((os.fsencode(workdir.mount.host), *workdir.below))
        assert below == workdir.host_path
        assert not os.get_inheritable(workdir.fd)
        assert not workdir.is_fallback


@pytest.mark.parametrize(
    "cwd",
    ["", "space", "/", "/spaceship", "/space/..", "/space/../../etc", "/etc", "/space/sub/../../x"],
)
def test_path_under_no_mount_is_refused(layout: Layout, cwd: str) -> None:
    """DESIGN §9: unmapped is denied by default; CASES 3f: reject escapes, never fall back."""
    refusal = layout.refusal(cwd)
    assert "is under no mount of capsule 'web'" in str(refusal)
    assert refusal.hint == "run it from a directory under /space, /space/docs"


def test_what_is_not_a_directory_is_refused_with_its_reason(layout: Layout) -> None:
    """The words say which of the usual mistakes it is."""
    (layout.app / "file").touch()
    os.mkfifo(layout.app / "fifo")
    assert "does not exist" in str(layout.refusal("/space/nowhere"))
    assert "is not a directory" in str(layout.refusal("/space/file"))
    assert "is not a directory" in str(layout.refusal("/space/fifo"))
    assert "is not a directory" in str(layout.refusal("/space/file/x"))


def test_links_that_stay_inside_lead_where_the_agent_sees_them_lead(layout: Layout) -> None:
    """An absolute link is a path of the capsule, not of the host."""
    (layout.app / "here").symlink_to("sub/deep")
    (layout.app / "sub" / "up").symlink_to("../sub/../here")
    (layout.app / "absolute").symlink_to("/space/sub")
    (layout.app / "across").symlink_to("/space/docs/de")
    for cwd, wanted in (
        ("/space/here", "src/app/sub/deep"),
        ("/space/sub/up/", "src/app/sub/deep"),
        ("/space/absolute/deep", "src/app/sub/deep"),
        ("/space/across", "docs/de"),
    ):
        with layout.open(cwd) as workdir:
            assert workdir.host_path == os.fsencode(layout.root / wanted), cwd


def test_links_that_lead_out_are_refused(layout: Layout) -> None:
    """DESIGN §9: without following links out, whatever they are called on the host."""
    targets = {
        "relative": "../../outside",
        "climbing": "sub/../../../outside/sub",
        "host": str(layout.out),
        "root": "/",
        "self": "self",
        "proc": "/proc/self/cwd",
    }
    for name, target in targets.items():
        (layout.app / name).symlink_to(target)
        layout.refusal(f"/space/{name}")
        layout.refusal(f"/space/{name}/sub")
    assert "too many links" in str(layout.refusal("/space/self"))
    assert "leads out of its mount" in str(layout.refusal("/space/relative"))


def test_links_that_name_each_other_across_mounts_end(layout: Layout) -> None:
    """Absolute links begin the mapping anew; their number is counted all the same."""
    (layout.app / "ping").symlink_to("/space/docs/pong")
    (layout.docs / "pong").symlink_to("/space/ping")
    assert "too many links" in str(layout.refusal("/space/ping"))


def test_mount_whose_directory_became_a_link_is_refused(layout: Layout) -> None:
    """The agent may write what is above a mount, through another mount."""
    inner = layout.app / "inner"
    inner.mkdir()
    mounts = (*layout.capsule.mounts, Mount("/inner", str(inner)))
    layout.open("/inner", mounts=mounts).close()
    inner.rmdir()
    inner.symlink_to(layout.out)
    assert "cannot be reached" in str(layout.refusal("/inner", mounts=mounts))


def test_directory_stays_the_one_that_was_opened(layout: Layout) -> None:
    """DESIGN §9: held from asking to spawning, whatever takes its name."""
    with layout.open("/space/sub") as workdir:
        (layout.app / "sub").rename(layout.app / "old")
        (layout.app / "sub").symlink_to(layout.out)
        assert os.path.samestat(os.fstat(workdir.fd), (layout.app / "old").stat())


def test_agent_can_write_where_any_of_its_mounts_can(layout: Layout) -> None:
    """A directory that is read-only here and writable there is writable."""
    assert layout.is_writable("/space/sub")
    assert not layout.is_writable("/space/docs/de")
    twice = (*layout.capsule.mounts, Mount("/rw", str(layout.docs / "de")))
    assert layout.is_writable("/space/docs/de", mounts=twice)
    assert layout.is_writable("/space/docs", mounts=twice)


def test_fallback_is_used_only_when_configured_and_says_so(layout: Layout) -> None:
    """DESIGN §9: `unmapped_cwd = "fallback"`, shown in plain sight."""
    changes = {"unmapped_cwd": UnmappedCwd.FALLBACK, "fallback_cwd": str(layout.out)}
    with layout.open("/etc", **changes) as workdir:
        assert workdir.is_fallback
        assert workdir.host_path == os.fsencode(layout.out)
        assert not workdir.is_agent_writable
    with layout.open("", unmapped_cwd=UnmappedCwd.FALLBACK) as workdir:
        assert workdir.host_path == os.fsencode(os.getcwd())
    layout.refusal("/space/nowhere", **changes)
    shutil.rmtree(layout.out)
    assert "fallback directory" in str(layout.refusal("/etc", **changes))


def test_a_fallback_that_the_agent_replaced_by_a_link_is_not_followed(layout: Layout) -> None:
    """It lies in a project; the link would show the command any directory, and let it write."""
    place = layout.app / "sub"
    changes = {"unmapped_cwd": UnmappedCwd.FALLBACK, "fallback_cwd": str(place)}
    layout.open("/etc", **changes).close()
    place.rename(layout.app / "away")
    place.symlink_to(layout.out)
    assert "fallback directory" in str(layout.refusal("/etc", **changes))


def test_a_link_in_the_middle_of_the_fallbacks_path_is_not_followed(layout: Layout) -> None:
    """Every component of it may lie in a project, not the last one alone."""
    place = layout.app / "sub" / "deep"
    assert place.is_dir()
    changes = {"unmapped_cwd": UnmappedCwd.FALLBACK, "fallback_cwd": str(place)}
    layout.open("/etc", **changes).close()
    place.parent.rename(layout.app / "away")
    (layout.out / "deep").mkdir(exist_ok=True)
    place.parent.symlink_to(layout.out)
    assert "fallback directory" in str(layout.refusal("/etc", **changes))


def test_paths_of_kind_none_are_what_they_are(layout: Layout) -> None:
    """DESIGN §9: the cwd is the project's mount, read-only when it is `/`, a HOME, or holds a
    hidden path."""
    capsule = msgspec.structs.replace(layout.capsule, kind=CapsuleKind.NONE, mounts=())
    state = layout.root / "state" / "jackin-exec"
    state.mkdir()
    (layout.root / "link").symlink_to(layout.app)
    for cwd, real, read_only in (
        (layout.app, layout.app, False),
        (layout.root / "link", layout.app, False),
        (layout.root, layout.root, True),
        (layout.root.parent, layout.root.parent, True),
        (Path("/"), Path("/"), True),
        (state.parent, state.parent, True),
    ):
        with open_workdir(os.fsencode(cwd), capsule, hidden=[str(state)]) as workdir:
            assert workdir.host_path == os.fsencode(real)
            assert workdir.mount == Mount(str(real), str(real), read_only), cwd
            assert workdir.is_agent_writable
    for cwd, words in (
        (os.fsencode(state), "belongs to the broker"),
        (os.fsencode(layout.app / "nowhere"), "does not exist"),
        (b"src", "is not an absolute path"),
        (b"", "is not an absolute path"),
    ):
        with pytest.raises(Refusal, match=words):
            open_workdir(cwd, capsule, hidden=[str(state)])


def test_message_is_one_plain_line_whatever_the_path(layout: Layout) -> None:
    """A path is the agent's text; it reaches terminals and logs."""
    text = str(layout.refusal(b"/x\n\x1b[2J\xff" + "\u202e".encode() + b"y" * 5000))
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 300


def test_swapping_a_directory_for_a_link_never_leads_outside(layout: Layout) -> None:
    """STACK: resolve-then-open escaped its mount 2,253 times of 78,924 in such a race."""
    victim, parked, link = (layout.app / name for name in ("v", "parked", "link"))
    (victim / "sub").mkdir(parents=True)
    link.symlink_to(layout.out)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(victim, parked)
            os.rename(link, victim)
            os.rename(victim, link)
            os.rename(parked, victim)

    thread = threading.Thread(target=swap)
    thread.start()
    opened = refused = 0
    try:
        for _ in range(RACES):
            try:
                workdir = layout.open("/space/v/sub")
            except Refusal:
                refused += 1
                continue
            with workdir:
                opened += 1
                real = os.readlink(f"/proc/self/fd/{workdir.fd}")
                assert real.startswith(f"{layout.app}/"), real
    finally:
        stop.set()
        thread.join(10)
    assert opened
    assert refused


def test_a_directory_of_any_depth_takes_few_descriptors(layout: Layout) -> None:
    """An agent makes any number of levels; the broker's descriptors are everybody's."""
    levels = 2 * DEPTH_MAX
    folder = os.open(layout.app, os.O_PATH | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_PATH | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DEPTH_MAX + 64, hard))
    try:
        refusal = layout.refusal("/space" + "/d" * levels)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "too deep" in str(refusal)
    layout.open("/space" + "/d" * DEPTH_MAX).close()
    shutil.rmtree(layout.app / "d")


def test_a_path_that_the_kernel_would_not_take_is_not_walked(layout: Layout) -> None:
    """Neither is it resolved as text: a megabyte of `a/../` is a path too."""
    assert "too long" in str(layout.refusal("/space/" + "sub/../" * (PATH_MAX_BYTES // 7)))
