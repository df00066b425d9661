"""What every kind of capsule keeps: its agent's status, environment and place, and the order.

A new kind gets a subclass that names its launcher and where a mount is seen. They run as our own
uid here; another uid, terminals and the broker are in tests/e2e/test_launch.py.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from jackin_broker.config import Mount
from jackin_broker.errors import ConfigError, DenialCode, Refusal
from jackin_broker.launch.base import Launcher, Plan, become, capsule_cwd, choose_uid
from jackin_broker.launch.bwrap import BubblewrapLauncher
from jackin_broker.launch.none import PlainLauncher
from jackin_broker.launch.run import Watch, run
from jackin_broker.links import build_programs
from support.namespaces import depths_of
from support.real import is_running, require_bwrap


class LauncherContract(ABC):
    """Subclass it, say which launcher, and collect the tests."""

    @pytest.fixture
    @abstractmethod
    def launcher(self) -> Launcher: ...

    @abstractmethod
    def seen(self, project: Path) -> str:
        """Where the agent sees the project."""

    @pytest.fixture
    def project(self, short_tmp: Path) -> Path:
        folder = short_tmp / "project"
        folder.mkdir()
        return folder

    def plan(self, launcher: Launcher, project: Path, script: str) -> Plan:
        root = project.parent
        (root / "run").mkdir()
        build_programs(root / "bin", ["gh"], launcher.interpreter())
        mounts = (Mount(self.seen(project), str(project)),)
        return Plan(
            name="web",
            command=("sh", "-c", f"cd {self.seen(project)} && {script}"),
            env={"PATH": "/jackin/bin:/usr/bin:/bin", "JACKIN_HOST_BINARIES": "gh"},
            run_dir=str(root / "run"),
            bin_dir=str(root / "bin"),
            interpreter=launcher.interpreter(),
            uid=os.geteuid(),
            mounts=mounts,
            cwd=capsule_cwd(mounts, project),
        )

    def launch(self, launcher: Launcher, project: Path, script: str) -> int:
        return run(launcher, self.plan(launcher, project, script), _recorded, Watch())

    def test_it_can_be_started_here(self, launcher: Launcher) -> None:
        launcher.check()

    @pytest.mark.parametrize("status", [0, 1, 77, 255])
    def test_the_exit_status_is_the_agents(
        self, launcher: Launcher, project: Path, status: int
    ) -> None:
        assert self.launch(launcher, project, f"exit {status}") == status

    def test_an_agent_that_a_signal_ended_exits_with_128_and_its_number(
        self, launcher: Launcher, project: Path
    ) -> None:
        assert self.launch(launcher, project, "kill -TERM $$") == 128 + signal.SIGTERM

    def test_the_agent_finds_its_programs_first_and_what_they_need(
        self, launcher: Launcher, project: Path
    ) -> None:
        script = 'command -v gh > which; echo "$JACKIN_HOST_BINARIES" > names'
        assert self.launch(launcher, project, script) == 0
        assert (project / "which").read_text().strip().endswith("/bin/gh")
        assert (project / "names").read_text() == "gh\n"

    def test_the_agent_holds_no_descriptor_of_ours(self, launcher: Launcher, project: Path) -> None:
        with (project / "held").open("w") as held:
            os.set_inheritable(held.fileno(), True)
            assert self.launch(launcher, project, "ls /proc/self/fd > fds") == 0
        assert (project / "fds").read_text().split() == ["0", "1", "2", "3"], "3 is the listing"

    def test_no_descriptor_and_no_handler_is_left_behind(
        self, launcher: Launcher, project: Path
    ) -> None:
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGWINCH)]
        plan = self.plan(launcher, project, "true")
        before = len(os.listdir("/proc/self/fd"))
        run(launcher, plan, _recorded, Watch())
        assert len(os.listdir("/proc/self/fd")) == before
        after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGWINCH)]
        assert after == handlers


def _recorded(_pid: int, _container: str) -> None:
    """An init that is put on record."""


class TestNone(LauncherContract):
    """Without a boundary."""

    @pytest.fixture
    def launcher(self) -> Launcher:
        return PlainLauncher()

    def seen(self, project: Path) -> str:
        return str(project)


class TestBubblewrap(LauncherContract):
    """With bubblewrap."""

    @pytest.fixture
    def launcher(self) -> Launcher:
        require_bwrap()
        return BubblewrapLauncher()

    def seen(self, project: Path) -> str:
        return "/workspaces/app"

    def test_the_agent_starts_only_after_its_init_is_on_record(
        self, launcher: Launcher, project: Path
    ) -> None:
        seen: list[int] = []

        def record(pid: int, _container: str) -> None:
            seen.append(pid)
            assert depths_of(pid)[-1] == 1
            assert not (project / "started").exists()

        plan = self.plan(launcher, project, "touch started")
        assert run(launcher, plan, record, Watch()) == 0
        assert len(seen) == 1
        assert (project / "started").exists()

    def test_an_init_that_is_not_recorded_starts_nothing_and_leaves_nothing(
        self, launcher: Launcher, project: Path
    ) -> None:
        seen: list[int] = []

        def record(pid: int, _container: str) -> None:
            seen.append(pid)
            raise Refusal(DenialCode.PEER_REFUSED, "not this one")

        plan = self.plan(launcher, project, "touch started")
        with pytest.raises(Refusal, match="not this one"):
            run(launcher, plan, record, Watch())
        assert not is_running(seen[0])
        assert not (project / "started").exists()

    def test_the_root_of_the_capsule_is_not_the_hosts(
        self, launcher: Launcher, project: Path
    ) -> None:
        script = f"ls -A / > root; ls -A $HOME > home; test ! -e {project}"
        assert self.launch(launcher, project, script) == 0
        root = set((project / "root").read_text().split())
        assert {"jackin", "usr", "workspaces"} <= root
        assert not root & {"root", "srv", "mnt", "boot", "work"}
        assert (project / "home").read_text() == ""


def test_only_a_configured_uid_is_chosen() -> None:
    own = os.geteuid()
    assert choose_uid(None, (own + 1, own)) == own
    assert choose_uid(None, ()) == own
    with pytest.raises(ConfigError, match="not one of the capsule's uids"):
        choose_uid(own + 2, (own, own + 1))


def test_only_root_becomes_another_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert choose_uid(None, (1501, 1500)) == 1500
    assert "--reuid=1500" in become(1500)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="only root") as told:
        choose_uid(None, (1500,))
    assert "add 1000" in told.value.hint


def test_the_agent_starts_where_the_launcher_stands_or_in_the_first_mount() -> None:
    outer, inner = Mount("/app", "/srv/app"), Mount("/lib", "/srv/app/lib")
    assert capsule_cwd((outer, inner), Path("/srv/app/src")) == "/app/src"
    assert capsule_cwd((outer, inner), Path("/srv/app/lib/x")) == "/lib/x"
    assert capsule_cwd((outer, inner), Path("/srv/application")) == "/app"
    assert capsule_cwd((), Path("/srv")) == ""
