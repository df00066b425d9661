"""What is visible under an ordered list of mounts, and which arguments make it so."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackin_broker.runner.hidden import hidden_from
from jackin_broker.runner.layout import Layout


def test_later_mounts_cover_earlier_ones(tmp_path: Path) -> None:
    """The order of the arguments is the order of the kernel's mounts."""
    home, project = tmp_path / "home", tmp_path / "home" / "src"
    project.mkdir(parents=True)
    layout = Layout()
    layout.show(str(tmp_path), writable=False)
    assert layout.is_visible(str(home))
    layout.empty(str(home))
    layout.show(str(project), writable=True)
    assert not layout.is_visible(str(home / "x"))
    assert layout.is_visible(str(project / "x"))
    assert layout.is_visible(str(tmp_path / "homework"))
    layout.hide(str(project))
    assert not layout.is_visible(str(project))
    options = layout.options()
    assert options.index(str(home)) < options.index(str(project))


def test_what_is_not_seen_anyway_needs_no_mask(tmp_path: Path) -> None:
    """A mask below an empty directory would show its name."""
    layout = Layout()
    before = layout.options()
    layout.hide("/tmp/tmux-1000")
    layout.hide("/run/user/1000/bus")
    assert layout.options() == before


def test_links_are_resolved_before_anything_is_mounted(tmp_path: Path) -> None:
    """bubblewrap would follow them inside, where they may lead elsewhere."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    layout = Layout()
    layout.show(str(link), writable=True)
    assert layout.options()[-3:] == ["--bind", str(real), str(real)]


def test_the_root_is_never_emptied_nor_shown() -> None:
    """Whoever has `/` as HOME must not lose the file system."""
    layout = Layout()
    before = layout.options()
    layout.empty("/")
    layout.show("/", writable=True)
    assert layout.options() == before


@pytest.mark.parametrize(
    ("variable", "value", "path"),
    [
        ("SSH_AUTH_SOCK", "/srv/a.sock", "/srv/a.sock"),
        ("TMUX", "/srv/tmux,12,0", "/srv/tmux"),
        ("DOCKER_HOST", "unix:///srv/docker.sock", "/srv/docker.sock"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/srv/bus,guid=1;tcp:host=x", "/srv/bus"),
        ("XDG_RUNTIME_DIR", "/srv/run", "/srv/run"),
    ],
)
def test_the_sessions_sockets_are_found_by_their_variables(
    variable: str, value: str, path: str
) -> None:
    """They may lie anywhere."""
    hidden = hidden_from([], {"HOME": "/srv/me", variable: value})
    assert path in hidden.paths
    assert hidden.homes[0] == "/srv/me"


def test_what_is_no_path_hides_nothing() -> None:
    """`DOCKER_HOST=tcp://…`, an abstract bus, an empty HOME."""
    environ = {
        "HOME": "",
        "DOCKER_HOST": "tcp://127.0.0.1:1",
        "DBUS_SESSION_BUS_ADDRESS": "unix:abstract=/x",
    }
    assert hidden_from([], environ).paths == hidden_from([], {}).paths
