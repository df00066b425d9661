"""DESIGN §9: a host command's environment is an allow-list; nothing of the capsule loads code."""

from __future__ import annotations

import pytest

from jackin_broker.runner.environment import SEARCH_PATH, child_environment

OPERATOR = {
    "PATH": "/home/me/bin:/usr/bin",
    "HOME": "/home/me",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "Europe/Berlin",
    "SSH_AUTH_SOCK": "/run/user/1000/agent",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "TMUX": "/tmp/tmux-1000/default,1,0",
    "LD_PRELOAD": "/home/me/x.so",
    "PYTHONPATH": "/home/me/py",
    "GH_TOKEN": "unlisted",
    "JACKIN_VAULT_PASSPHRASE_FILE": "/home/me/pass",
    "EDITOR": "vim",
}


def environment(
    *,
    operator: dict[str, str] | None = None,
    caller: dict[str, str] | None = None,
    binary: dict[str, str] | None = None,
    consumed: tuple[str, ...] = (),
) -> dict[str, str]:
    made = child_environment(
        operator=OPERATOR if operator is None else operator,
        caller=caller or {},
        binary=binary or {},
        home="/home/me",
        user="me",
        consumed=consumed,
    )
    return {name.decode(): value.decode() for name, value in made.items()}


def test_only_what_is_listed_passes() -> None:
    """host-spawn 42: the caller's environment leaked to the host, and the host's to the child."""
    assert environment() == {
        "PATH": SEARCH_PATH,
        "HOME": "/home/me",
        "USER": "me",
        "LOGNAME": "me",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "Europe/Berlin",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "LESSSECURE": "1",
    }


def test_the_capsule_sets_three_variables_and_no_other() -> None:
    """`from the capsule only TERM, LANG, NO_COLOR`."""
    caller = {"TERM": "xterm-256color", "LANG": "fr_FR.UTF-8", "NO_COLOR": "1"}
    hostile = {"PATH": "/tmp", "LD_PRELOAD": "/tmp/x.so", "LC_ALL": "x", "TZ": "x", "PAGER": "sh"}
    made = environment(caller={**caller, **hostile})
    assert made == {**environment(), **caller}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TERM", "../../tmp/evil"),
        ("TERM", "/tmp/evil"),
        ("TERM", ""),
        ("TERM", "x" * 65),
        ("TERM", "xterm\n"),
        ("LANG", "/tmp/locale"),
        ("LANG", "../x"),
        ("LANG", "de_DE.UTF-8\n"),
        ("NO_COLOR", "\x1b[2J"),
    ],
)
def test_a_value_that_could_name_a_file_or_paint_is_dropped(name: str, value: str) -> None:
    """terminfo and glibc take a name with a slash for a path, and read what is there."""
    assert environment(caller={name: value}) == environment()


@pytest.mark.parametrize("zone", [":/etc/passwd", "/etc/passwd", "../../etc/passwd", "a/b/c/d"])
def test_a_zone_that_is_a_path_is_dropped(zone: str) -> None:
    """TZ reads any file that it names."""
    assert "TZ" not in environment(operator={"TZ": zone})


def test_variables_that_sources_read_stay_with_the_broker() -> None:
    """DESIGN §8: every variable that a source names is removed from every child's environment."""
    assert "LANG" not in environment(consumed=("LANG", "GH_TOKEN"))
    assert environment(consumed=("PATH",))["PATH"] == SEARCH_PATH


def test_what_the_configuration_sets_for_a_binary_wins() -> None:
    """`env = {…}` is the operator's own word, also about PATH."""
    made = environment(binary={"PATH": "/opt/bin", "GH_HOST": "example.com"}, consumed=("GH_HOST",))
    assert (made["PATH"], made["GH_HOST"]) == ("/opt/bin", "example.com")
