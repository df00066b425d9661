"""What a mount must not hold."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from jackin_broker.config import Mount, check_binaries, check_mounts
from jackin_broker.config.exposure import session_places
from jackin_broker.errors import ConfigError
from jackin_broker.identity import find_binary


def test_mount_that_is_holds_or_is_within_a_trust_root_is_refused(private_home: Path) -> None:
    """DESIGN §9: mounts that overlap config, state, runtime are refused."""
    state = private_home / "state" / "jackin-exec"
    for host in (state, private_home / "state", private_home, state / "deep", Path("/")):
        with pytest.raises(ConfigError, match="overlap"):
            check_mounts([Mount("/a", str(host), read_only=True)], [state])
    check_mounts([Mount("/a", str(private_home / "state" / "jackin-executor"))], [state])


def test_links_on_either_side_hide_nothing(private_home: Path) -> None:
    """The comparison is of where paths lead."""
    state = private_home / "real"
    state.mkdir()
    (private_home / "alias").symlink_to(state)
    for mount, root in ((private_home / "alias", state), (state, private_home / "alias")):
        with pytest.raises(ConfigError, match="overlap"):
            check_mounts([Mount("/a", str(mount))], [root])


def test_doorways_to_the_operator_are_refused(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN §9: tmux, D-Bus, Docker; an ssh-agent is as good as its keys."""
    agent = private_home / "agent" / "sock"
    agent.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(agent))
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
        with pytest.raises(ConfigError, match="overlap"):
            check_mounts([Mount("/a", str(agent.parent))], [])
    places = session_places(
        {
            "TMUX": "/tmp/x/tmux,1,0",
            "TMUX_TMPDIR": "/var/t",
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus,guid=1;unix:abstract=/x",
            "DOCKER_HOST": "unix:///srv/docker.sock",
            "XDG_RUNTIME_DIR": "/run/r",
        }
    )
    expected = {
        "/tmp/x/tmux",
        f"/var/t/tmux-{os.geteuid()}",
        "/run/bus",
        "/srv/docker.sock",
        "/run/docker.sock",
        "/run/r/bus",
    }
    assert expected <= set(places)
    assert "/x" not in places


def test_agent_must_not_be_able_to_replace_a_listed_binary(private_home: Path) -> None:
    """DESIGN §9: nor its interpreter; a read-only mount cannot."""
    tool = private_home / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    pinned = find_binary("tool", str(tool.parent))
    for host in (tool.parent, private_home, Path("/usr/bin").resolve()):
        with pytest.raises(ConfigError, match="could replace 'tool'"):
            check_binaries([Mount("/a", str(host))], [pinned])
        check_binaries([Mount("/a", str(host), read_only=True)], [pinned])
    check_binaries([Mount("/a", str(private_home / "src"))], [pinned])
