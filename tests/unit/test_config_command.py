"""`jackin-broker config`: the installed command line, on files of the test's own."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from jackin_broker import config
from jackin_broker.cli import run


@pytest.fixture
def path(private_home: Path) -> Path:
    return private_home / "config" / "jackin-exec" / "config.toml"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


def test_path_is_printed_whether_it_exists_or_not(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN §14: `config path`."""
    assert run(["config", "path"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert run(["config", "path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(path), "exists": False}


def test_init_writes_a_private_valid_file_once(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN §14: `config init`; what is there is never overwritten."""
    assert run(["config", "init"]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not config.load(path).capsules
    path.write_text("schema = 1 # mine\n")
    assert run(["config", "init"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert path.read_text() == "schema = 1 # mine\n"


def test_check_names_every_error_and_warning(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`config check` prints ok, or each error with its path; exit 1 when there is one."""
    assert run(["config", "check"]) == 0
    assert capsys.readouterr().out == f"ok: {path} does not exist, the defaults are used\n"
    write(path, 'schema = 1\n[env]\nA = { keyrng = "x" }\n[limits]\nrun = 3\n')
    assert run(["config", "check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "error: env.A: names no source, write one of keyring, op, value, command, file",
        "error: env.A.keyrng: unknown key, did you mean 'keyring'?",
        "error: limits.run: unknown key, did you mean 'run_s'?",
    ]
    write(path, 'schema = 1\n[capsules.a]\nkind = "none"\n')
    assert run(["config", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": str(path),
        "exists": True,
        "ok": True,
        "errors": [],
        "warnings": ["capsules.a: kind 'none' has no boundary, the agent can approve itself"],
    }


def test_check_of_a_named_file_that_is_not_there_is_no_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt name is not the defaults."""
    assert run(["config", "check", str(tmp_path / "cnofig.toml")]) == 1
    assert "does not exist" in capsys.readouterr().out


def test_check_finds_what_only_this_machine_can_tell(
    path: Path, private_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN §6, §9: missing binaries, and mounts over what decides for the operator."""
    write(
        path,
        """schema = 1
        [capsules.a]
        kind = "bwrap"
        host_binaries = ["no-such-program-here"]
        mounts = [{ capsule = "/home", host = "~" }]
        """,
    )
    assert run(["config", "check", "--json"]) == 1
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert [error["path"] for error in errors] == ["capsules.a.mounts", "capsules.a"]
    assert "overlap" in errors[0]["message"]
    assert "no-such-program-here" in errors[1]["message"]


def test_migrate_writes_whole_keeps_a_backup_and_is_then_up_to_date(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN §14: migrated forward; the old text is kept beside it."""
    old = '# mine\n[env]\nA = "op://V/I/f" # a\n'
    write(path, old)
    assert run(["config", "check"]) == 1
    assert "hint: run `jackin-broker config migrate`" in capsys.readouterr().out
    assert run(["config", "migrate"]) == 0
    assert path.read_text() == (
        'schema = 1\n\n# mine\n[env]\nA = { op = "op://V/I/f", path = "V/I/f" } # a\n'
    )
    backup = path.with_name("config.toml.schema-0.bak")
    assert backup.read_text() == old
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    capsys.readouterr()
    assert run(["config", "migrate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(path), "changes": [], "backup": ""}
    write(path, old)
    assert run(["config", "migrate"]) == 0
    assert path.with_name("config.toml.schema-0.bak.1").read_text() == old


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[sandbox]\nhost_binaries = []\nimage = "x"\n', "capsules.construct.image: unknown key"),
        (
            "[sandbox]\nhost_binaries = []\n[capsules.a]\nkind = 'bwrap'\n",
            "capsules: stands beside",
        ),
        ("[env\n", "not TOML: "),
        ("schema = 9\n", "schema: is 9"),
    ],
)
def test_what_cannot_be_migrated_is_named_and_left_alone(
    path: Path, capsys: pytest.CaptureFixture[str], text: str, named: str
) -> None:
    """Nothing is guessed and nothing half written."""
    write(path, text)
    assert run(["config", "migrate"]) == 1
    assert named in capsys.readouterr().err
    assert path.read_text() == text
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
