"""Fixtures for every test, and the two rules that hold for all of them.

1. No test sees the developer's own settings: HOME, the XDG directories and what points at a
   running session (D-Bus, ssh-agent, tmux, a broker) are private or gone.
2. Under JACKIN_REQUIRE_REAL=1 a skip is a failure, whoever called it and for what reason.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from support import real

# What would lead a test to the developer's own session.
_SESSION_VARIABLES = (
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GNOME_KEYRING_CONTROL",
    "PGPASSFILE",
    "PGPASSWORD",
    "SSH_AUTH_SOCK",
    "TMUX",
    "TMUX_PANE",
    "WAYLAND_DISPLAY",
)
_HOME_FOLDERS = {
    "XDG_CONFIG_HOME": "config",
    "XDG_STATE_HOME": "state",
    "XDG_DATA_HOME": "data",
    "XDG_CACHE_HOME": "cache",
    "XDG_RUNTIME_DIR": "run",
}
_KEPT_VARIABLES = frozenset({"JACKIN_REQUIRE_REAL"})

# How long an example takes says something of the machine and its load, nothing of a property.
_MAY_BE_SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile(
    "local", deadline=None, suppress_health_check=_MAY_BE_SLOW, max_examples=60
)
# CI looks longer and, so that a red run can be repeated, always at the same examples.
hypothesis.settings.register_profile(
    "ci",
    deadline=None,
    suppress_health_check=_MAY_BE_SLOW,
    max_examples=200,
    derandomize=True,
)
hypothesis.settings.load_profile("ci" if real.REQUIRE_REAL else "local")


@pytest.fixture(scope="session", autouse=True)
def no_session() -> Iterator[None]:
    """Nothing of the developer's running session, also for what outlives one test."""
    with pytest.MonkeyPatch.context() as patch, real.short_directory() as home:
        for name in (
            *_SESSION_VARIABLES,
            *(key for key in os.environ if key.startswith("JACKIN_")),
        ):
            if name not in _KEPT_VARIABLES:
                patch.delenv(name, raising=False)
        _move_home(patch, home)
        yield


@pytest.fixture(autouse=True)
def private_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A HOME and XDG directories of this test's own, empty."""
    with real.short_directory() as home:
        _move_home(monkeypatch, home)
        yield home


def _move_home(patch: pytest.MonkeyPatch, home: Path) -> None:
    patch.setenv("HOME", str(home))
    for name, folder in _HOME_FOLDERS.items():
        (home / folder).mkdir(mode=0o700)
        patch.setenv(name, str(home / folder))


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A private directory whose path is short enough for Unix sockets."""
    with real.short_directory() as path:
        yield path


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """Like `short_tmp`, but a second uid can pass through it (0711)."""
    with real.short_directory(0o711) as path:
        yield path


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure; an expected failure stays what it is."""
    if not real.REQUIRE_REAL or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"JACKIN_REQUIRE_REAL=1 and this was skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hold rule 2 for tests."""
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Hold rule 2 for whole files."""
    report = yield
    _forbid_skip(report)
    return report
