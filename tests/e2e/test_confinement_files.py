"""DESIGN §9: which files a confined command sees, and which it can write."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

import pytest

from jackin_broker.config.model import BinaryConfig, HomeKind
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.runner import confine
from jackin_broker.runner.confine import Confinement
from jackin_broker.runner.hidden import Hidden
from support import real
from support.commands import Sink, confined, run, shell, within, workdir_at
from support.machine import SEARCH, Machine, furnish

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def bubblewrap() -> str:
    return real.require_bwrap()


@pytest.fixture
def machine(private_home: Path) -> Machine:
    return furnish(private_home)


def test_nothing_of_home_configuration_state_and_runtime_is_seen(machine: Machine) -> None:
    """The secret lies in five places; a search of all that can be read finds none."""
    assert machine.python(SEARCH, None, machine.secret, str(machine.home), "/tmp", "/run") == "[]\n"


def test_a_project_around_a_hidden_directory_does_not_show_it(machine: Machine) -> None:
    """The mount is the home itself: its files are seen, configuration and state are not."""
    machine.project = machine.home
    seen = machine.python(SEARCH, None, machine.secret, str(machine.home))
    assert ".netrc" in seen
    for name in ("config", "state", "run"):
        assert str(machine.home / name) not in seen


def test_a_command_in_or_above_home_says_so_and_cannot_write(machine: Machine) -> None:
    """What the prompt says is what applies."""
    with workdir_at(machine.home) as cwd:
        assert "sees your own files and logins" in confined(cwd).describe()
    machine.project = machine.home
    assert machine.run(["/usr/bin/touch", "new"]).exit_code != 0
    assert not (machine.home / "new").exists()


def test_only_the_project_can_be_written(machine: Machine) -> None:
    """The file system is read-only; what is written to emptied places is gone afterwards."""
    outside = real.find_program("touch") or ""
    marker = "written-" + secrets.token_hex(6)
    for place in ("/etc", "/usr/bin", "/var/lib", str(machine.home / "src" / "other")):
        machine.run([outside, f"{place}/{marker}"])
        assert not Path(place, marker).exists()
    for place in ("/tmp", "/var/tmp", "/run", str(machine.home)):
        assert machine.run([outside, f"{place}/{marker}"]).exit_code == 0
        assert not Path(place, marker).exists()
    assert machine.run([outside, marker]).exit_code == 0
    assert (machine.project / marker).exists()


def test_a_read_only_mount_stays_read_only(machine: Machine) -> None:
    """The capsule's mount says what the host command may do there too."""
    assert machine.run(["/usr/bin/touch", "new"], read_only=True).exit_code != 0
    assert not (machine.project / "new").exists()


def test_a_private_home_is_empty_and_writable(machine: Machine) -> None:
    """Programs that keep a cache work; nothing of it stays. Both homes: HOME's, passwd's."""
    out = machine.python(
        """
        import os, pwd
        for home in (os.path.expanduser("~"), pwd.getpwuid(os.getuid()).pw_dir):
            print(sorted(os.listdir(home)))
        """
    )
    assert out.splitlines()[-1] == "[]"


def test_the_operators_home_applies_where_configured_and_is_read_only(machine: Machine) -> None:
    """`home = "operator"`: its logins apply, and the prompt says so; our own places stay hidden."""
    config = BinaryConfig(home=HomeKind.OPERATOR)
    seen = machine.python(SEARCH, config, machine.secret, str(machine.home))
    assert ".netrc" in seen
    for name in ("config", "state", "run"):
        assert str(machine.home / name) not in seen
    assert machine.run(["/usr/bin/touch", f"{machine.home}/new"], config).exit_code != 0
    with workdir_at(machine.project) as cwd:
        assert confined(cwd, config).describe() == "confined, has your own logins"


def test_home_paths_are_shown_writable_and_nothing_beside_them(machine: Machine) -> None:
    """`home_paths = ["~/.config/gh"]`: a login for one program."""
    login = machine.home / ".config" / "gh"
    login.mkdir(parents=True)
    (login / "hosts.yml").write_text("known")
    config = BinaryConfig(home_paths=("~/.config/gh",))
    sink = machine.run(
        shell(f"cat {login}/hosts.yml; echo new > {login}/added; ls -A {machine.home}"), config
    )
    assert sink.out == b"known.config\nsrc\n"
    assert (login / "added").read_text() == "new\n"


def test_a_program_below_a_hidden_path_is_refused_with_the_line_to_add(machine: Machine) -> None:
    """No riddle: the refusal is what the operator pastes."""
    tool = machine.home / "bin" / "tool"
    tool.parent.mkdir()
    shutil.copy("/bin/true", tool)
    with pytest.raises(Refusal) as caught:
        machine.run([str(tool)])
    assert caught.value.code is DenialCode.SPAWN_FAILED
    assert f'home_paths = ["{tool.parent}"]' in caught.value.hint
    assert "[capsules.web.binaries.tool]" in caught.value.hint
    config = BinaryConfig(home_paths=(str(tool.parent),))
    assert machine.run([str(tool)], config).exit_code == 0


def test_home_paths_with_the_program_itself_are_read_only(machine: Machine) -> None:
    """The agent's code must not replace the binary that the operator pinned."""
    tool = machine.home / "bin" / "tool"
    tool.parent.mkdir()
    shutil.copy("/bin/sh", tool)
    before = tool.read_bytes()
    config = BinaryConfig(home_paths=(str(tool.parent),))
    machine.run([str(tool), "-c", f"echo x > {tool}; touch {tool.parent}/new"], config)
    assert tool.read_bytes() == before
    assert not (tool.parent / "new").exists()


def test_an_interpreter_below_a_hidden_home_still_leads(machine: Machine) -> None:
    """A virtual environment's Python often lives in HOME; the leader's own files come back."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    with workdir_at(machine.project) as cwd:
        how = Confinement(hidden=Hidden(homes=(library,)))
        sink = Sink()
        within(run(["/bin/echo", "led"], sink, workdir=cwd, how=how))
    assert sink.out == b"led\n"


def test_a_mount_that_the_agent_replaces_while_it_is_set_up_shows_nothing_else(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount inside of another one can be renamed by the agent: its name leads to HOME for as
    long as it is looked at, and is the held directory again when the command enters it."""
    away = machine.project.with_name("away")

    def link() -> None:
        machine.project.rename(away)
        machine.project.symlink_to(machine.home)

    def restore(*_: object) -> None:
        machine.project.unlink()
        away.rename(machine.project)

    with workdir_at(machine.project) as cwd:
        how = confined(cwd, None, machine.trust_roots)
        monkeypatch.setattr(confine, "check_visible", restore)
        link()
        sink = Sink()
        within(run(shell(f"cat {machine.home}/.netrc"), sink, workdir=cwd, how=how))
    assert machine.secret.encode() not in sink.out


def test_a_mount_that_became_a_link_is_not_entered_even_where_its_path_leads_to_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path below it is made again below HOME, with the very directory that is held at its end:
    bubblewrap follows the link, so who enters compares where it begins, too."""
    below = machine.project / "src" / "here"
    below.mkdir(parents=True)

    def replace(*_: object) -> None:
        below.rename(machine.home / "src" / "here")
        machine.project.rename(machine.project.with_name("away"))
        machine.project.symlink_to(machine.home)

    with workdir_at(below, root=machine.project) as cwd:
        how = confined(cwd, None, machine.trust_roots)
        monkeypatch.setattr(confine, "check_visible", replace)
        sink = Sink()
        with pytest.raises(Refusal):
            within(run(shell("cat ../../.netrc"), sink, workdir=cwd, how=how))
    assert machine.secret.encode() not in sink.out
