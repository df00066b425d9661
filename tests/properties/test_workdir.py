"""Any capsule path: the directory behind the longest mount, or a refusal."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackin_broker.config import CapsuleConfig, CapsuleKind, Mount
from jackin_broker.errors import Refusal
from jackin_broker.workdir import open_workdir
from support.real import short_directory

NAMES = st.sampled_from(["a", "b", "m", "..", ".", "", "l", "nowhere"])
PATHS = st.lists(NAMES, max_size=7).map(lambda names: "/" + "/".join(names))
# Mount points in the capsule → directories of the host; the later ones lie within the first.
MOUNTS = {"/m": "one", "/m/a": "two", "/m/a/b": "three", "/b": "one/b"}


@pytest.fixture(scope="module")
def host() -> Iterator[Path]:
    with short_directory() as folder:
        root = Path(os.path.realpath(folder))
        for place in ("one/a/b", "one/b/a", "two/a", "two/b/b", "three/m", "one/m/m", "out/a"):
            (root / place).mkdir(parents=True)
        for place, target in {
            "one/l": "../out",
            "two/l": "/m/b",
            "three/l": "m",
            "one/a/l": "/",
            "one/b/l": "../../out/a",
        }.items():
            (root / place).symlink_to(target)
        yield root


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATHS, st.sets(st.sampled_from(sorted(MOUNTS)), min_size=1))
def test_result_is_within_a_mount_and_where_plain_paths_say(
    host: Path, path: str, chosen: set[str]
) -> None:
    """DESIGN §9: the longest matching mount, never outside; links only ever inside."""
    mounts = tuple(Mount(point, str(host / MOUNTS[point])) for point in sorted(chosen))
    capsule = CapsuleConfig("c", CapsuleKind.BWRAP, (1,), mounts=mounts)
    normal = posixpath.normpath(path).replace("//", "/")
    try:
        workdir = open_workdir(path.encode(), capsule)
    except Refusal:
        expected = _plain(normal, mounts)
        assert expected is None or "l" in normal.split("/") or not expected.is_dir()
        return
    with workdir:
        real = Path(os.readlink(f"/proc/self/fd/{workdir.fd}"))
        assert os.fsencode(real) == workdir.host_path
        assert any(real.is_relative_to(mount.host) for mount in mounts)
        if "l" not in normal.split("/"):
            assert real == _plain(normal, mounts)


def _plain(normal: str, mounts: tuple[Mount, ...]) -> Path | None:
    """The host path by text alone, by the longest mount point."""
    for mount in sorted(mounts, key=lambda mount: -len(mount.capsule)):
        if normal == mount.capsule or normal.startswith(mount.capsule + "/"):
            return Path(mount.host) / normal[len(mount.capsule) :].lstrip("/")
    return None
