"""Where things live, and whether the way to them can be trusted (DESIGN §4, §14)."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from jackin_broker import paths, trust
from jackin_broker.doorways import close_doorway, listen_at, open_doorway
from jackin_broker.errors import ConfigError
from jackin_broker.paths import SOCKET_PATH_MAX_BYTES, Paths, resolve
from support.real import require_root
from support.second_uid import AGENT_UID, holds_as


def _environ(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), **more}


def test_the_xdg_directories_are_followed(short_tmp: Path) -> None:
    found = resolve(
        _environ(
            short_tmp,
            XDG_CONFIG_HOME=f"{short_tmp}/c",
            XDG_STATE_HOME=f"{short_tmp}/s",
            XDG_RUNTIME_DIR=str(short_tmp),
        )
    )
    assert found.config_file == short_tmp / "c/jackin-exec/config.toml"
    assert found.audit_file == short_tmp / "s/jackin-exec/audit.jsonl"
    assert found.vault_file.parent == found.log_file.parent == found.state_dir
    assert found.operator_socket == short_tmp / "jackin-exec/operator.sock"
    assert found.capsule_socket("web") == short_tmp / "jackin-exec/capsules/web/broker.sock"
    assert found.shim_dir("web") == short_tmp / "jackin-exec/shims/web"


def test_without_xdg_directories_the_defaults_under_home_are_used(short_tmp: Path) -> None:
    found = resolve(_environ(short_tmp, XDG_CONFIG_HOME="relative/is/ignored"))
    assert found.config_dir == short_tmp / ".config/jackin-exec"
    assert found.state_dir == short_tmp / ".local/state/jackin-exec"


def test_without_a_usable_runtime_directory_the_state_directory_serves(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_not_ours(_path: str, _uid: int) -> bool:
        return False

    monkeypatch.setattr(paths, "is_owned_directory", is_not_ours)
    found = resolve(_environ(short_tmp, XDG_RUNTIME_DIR=str(short_tmp)))
    assert found.private_dir == short_tmp / ".local/state/jackin-exec/run"


def test_a_runtime_directory_that_others_can_write_is_passed_over(short_tmp: Path) -> None:
    shared = short_tmp / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    found = resolve(_environ(short_tmp, XDG_RUNTIME_DIR=str(shared)))
    assert not found.private_dir.is_relative_to(shared)


def test_a_runtime_directory_of_somebody_else_is_passed_over(short_tmp: Path) -> None:
    require_root()
    theirs = short_tmp / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, AGENT_UID, AGENT_UID)
    found = resolve(_environ(short_tmp, XDG_RUNTIME_DIR=str(theirs)))
    assert not found.private_dir.is_relative_to(theirs)


def test_an_override_moves_the_capsules_and_not_the_operators_socket(short_tmp: Path) -> None:
    environ = _environ(short_tmp, XDG_RUNTIME_DIR=str(short_tmp))
    moved = resolve(environ, "~/open")
    assert moved.capsule_dir("web") == short_tmp / "open/capsules/web"
    assert moved.operator_socket == resolve(environ).operator_socket
    with pytest.raises(ConfigError, match=r"broker\.runtime_dir.*absolute"):
        resolve(environ, "open")


@pytest.mark.parametrize("base", [20, 60, 75, 80, 300])
@pytest.mark.parametrize("length", [1, 12, 13, 40, 200])
def test_no_socket_path_is_too_long_to_bind(short_tmp: Path, base: int, length: int) -> None:
    environ = _environ(short_tmp, XDG_RUNTIME_DIR=str(short_tmp))
    found = resolve(environ, "/" + "r" * base)
    socket_path = os.fsencode(found.capsule_socket("n" * length))
    assert len(socket_path) <= SOCKET_PATH_MAX_BYTES
    assert found.shim_dir("n" * length).name == found.capsule_dir("n" * length).name


def test_two_long_names_stay_two_capsules(short_tmp: Path) -> None:
    found = resolve(_environ(short_tmp, XDG_RUNTIME_DIR=str(short_tmp)))
    first, second = "n" * 200 + "a", "n" * 200 + "b"
    assert found.capsule_dir(first) != found.capsule_dir(second)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\0b", "~a", ".hidden"])
def test_a_name_that_is_no_plain_word_is_refused(short_tmp: Path, name: str) -> None:
    found = resolve(_environ(short_tmp, XDG_RUNTIME_DIR=str(short_tmp)))
    with pytest.raises(ConfigError):
        found.capsule_dir(name)


def test_a_directory_of_ours_below_roots_sticky_one_is_trusted(short_tmp: Path) -> None:
    assert os.stat("/tmp").st_mode & stat.S_ISVTX, "short_tmp is below a sticky directory"
    trust.check_trusted(short_tmp)


def test_a_directory_that_others_can_write_is_refused_anywhere_on_the_way(short_tmp: Path) -> None:
    leaf = short_tmp / "open" / "leaf"
    leaf.mkdir(parents=True)
    leaf.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=r"/open: can be written by others \(mode 0777\)") as told:
        trust.check_trusted(leaf)
    assert told.value.hint == f"chmod go-w {leaf.parent}"
    leaf.parent.chmod(0o770)
    with pytest.raises(ConfigError, match="0770"):
        trust.check_trusted(leaf)


def test_a_sticky_directory_is_trusted_on_the_way_and_only_if_it_is_roots(open_tmp: Path) -> None:
    leaf = open_tmp / "sticky" / "leaf"
    leaf.mkdir(parents=True)
    leaf.parent.chmod(0o1777)
    with pytest.raises(ConfigError, match="can be written by others"):
        trust.check_trusted(leaf.parent)
    require_root()
    trust.check_trusted(leaf)
    for path in (leaf.parent, leaf):
        os.chown(path, AGENT_UID, AGENT_UID)

    def is_refused() -> bool:
        with pytest.raises(ConfigError, match="can be written by others"):
            trust.check_trusted(leaf)
        return True

    assert holds_as(AGENT_UID, is_refused)


def test_a_component_or_a_link_of_another_uid_is_refused(short_tmp: Path) -> None:
    require_root()
    theirs = short_tmp / "theirs"
    (theirs / "leaf").mkdir(parents=True)
    os.chown(theirs, AGENT_UID, AGENT_UID)
    with pytest.raises(ConfigError, match=f"belongs to uid {AGENT_UID}"):
        trust.check_trusted(theirs / "leaf")
    mine = short_tmp / "mine"
    mine.mkdir()
    link = short_tmp / "link"
    link.symlink_to(mine)
    os.chown(link, AGENT_UID, AGENT_UID, follow_symlinks=False)
    with pytest.raises(ConfigError, match=f"link: belongs to uid {AGENT_UID}"):
        trust.check_trusted(link)


def test_a_link_is_followed_with_everything_on_its_way(short_tmp: Path) -> None:
    target = short_tmp / "deep" / "target"
    target.mkdir(parents=True)
    (short_tmp / "link").symlink_to("deep/../deep/target")
    trust.check_trusted(short_tmp / "link")
    target.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="deep: can be written"):
        trust.check_trusted(short_tmp / "link")


def test_links_in_a_circle_and_missing_paths_are_refused_in_words(short_tmp: Path) -> None:
    (short_tmp / "a").symlink_to("b")
    (short_tmp / "b").symlink_to("a")
    with pytest.raises(ConfigError, match="too many symbolic links"):
        trust.check_trusted(short_tmp / "a")
    with pytest.raises(ConfigError, match="no such file"):
        trust.check_trusted(short_tmp / "missing")


def test_directories_are_made_with_their_mode_whatever_the_umask(short_tmp: Path) -> None:
    former = os.umask(0)
    try:
        trust.ensure_private_dir(short_tmp / "a" / "b")
        trust.ensure_traversable_dir(short_tmp / "c" / "d")
    finally:
        os.umask(former)
    modes = {path: stat.S_IMODE((short_tmp / path).stat().st_mode) for path in ("a", "a/b", "c/d")}
    assert modes == {"a": 0o700, "a/b": 0o700, "c/d": 0o711}


def test_a_readable_directory_is_narrowed_and_a_passable_one_is_kept(short_tmp: Path) -> None:
    for mode, expected in ((0o755, 0o700), (0o711, 0o711), (0o700, 0o700)):
        short_tmp.chmod(mode)
        trust.ensure_private_dir(short_tmp)
        assert stat.S_IMODE(short_tmp.stat().st_mode) == expected


def test_a_file_in_the_place_of_a_directory_is_refused(short_tmp: Path) -> None:
    (short_tmp / "file").touch()
    with pytest.raises(ConfigError, match="not a directory"):
        trust.ensure_private_dir(short_tmp / "file")


def _places(root: Path) -> Paths:
    return resolve(_environ(root, XDG_RUNTIME_DIR=str(root)))


def _modes(found: Paths) -> tuple[int, int, int]:
    chain = (found.runtime_dir, found.capsule_dir("web"), found.capsule_socket("web"))
    directory, leaf, sock = (stat.S_IMODE(path.stat().st_mode) for path in chain)
    return directory, leaf, sock


def test_a_doorway_for_our_own_uid_is_private(short_tmp: Path) -> None:
    found = _places(short_tmp)
    open_doorway("web", (os.geteuid(),), found).close()
    assert _modes(found) == (0o700, 0o700, 0o600)


def test_a_doorway_for_another_uid_can_be_passed_but_not_listed(open_tmp: Path) -> None:
    found = _places(open_tmp)
    open_doorway("web", (os.geteuid(), os.geteuid() + 1), found).close()
    assert _modes(found) == (0o711, 0o711, 0o666)


def test_a_doorway_that_its_uid_cannot_pass_to_says_what_to_set(short_tmp: Path) -> None:
    with pytest.raises(ConfigError, match=f"{short_tmp}: uid .* cannot pass") as told:
        open_doorway("web", (os.geteuid() + 1,), _places(short_tmp))
    assert "runtime_dir" in told.value.hint


def test_a_dead_brokers_socket_is_replaced_in_the_same_directory(short_tmp: Path) -> None:
    found = _places(short_tmp)
    dead = open_doorway("web", (os.geteuid(),), found)
    directory = found.capsule_dir("web").stat().st_ino
    dead.close()
    alive = open_doorway("web", (os.geteuid(),), found)
    with alive, socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(found.capsule_socket("web")))
        alive.accept()[0].close()
    assert found.capsule_dir("web").stat().st_ino == directory, "it may be mounted somewhere"
    assert os.listdir(found.capsule_dir("web")) == ["broker.sock"]
    close_doorway(alive, found.capsule_socket("web"))
    assert os.listdir(found.capsule_dir("web")) == []


def test_a_socket_is_never_made_where_others_could_replace_it(short_tmp: Path) -> None:
    short_tmp.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        listen_at(short_tmp / "operator.sock")
    short_tmp.chmod(0o700)
