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
        ('[sandbox]\nhost_binaries = []\nspeed = "x"\n', "capsules.construct.speed: unknown key"),
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


EXPLAINED = """schema = 1
[env]
TOKEN = { value = "$TOKEN", on_demand = true }
[capsules.web]
kind = "none"
host_binaries = ["sh"]
[[rules]]
action = "allow"
argv = ["sh", "-c", "*"]
bindings = ["TOKEN"]
[[rules]]
action = "deny"
argv = ["sh", "-c", "forbidden"]
[[rules]]
action = "allow"
argv = ["git", "status"]
"""


def test_explain_says_which_rule_decides_and_why_the_others_do_not(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN §14: `config check --explain`; what follows the options is the command's own."""
    write(path, EXPLAINED)
    assert run(["config", "check", "--explain", "--cwd", "/", "sh", "-c", "--json"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "in capsule web it is asked: no rule names this command",
        "  rule 2 (deny sh -c forbidden) near: argument 2 is '--json', not 'forbidden'",
        "  rule 1 (allow sh -c *) near: argument 2 is '--json', and no wildcard admits an option",
        "  1 more rule is about other programs",
    ]
    assert run(["config", "check", "--explain", "--cwd", "/", "sh", "-c", "forbidden"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "in capsule web it is denied: rule 2 (deny sh -c forbidden) denies it"
    assert lines[1] == "  rule 2 (deny sh -c forbidden) decides"


def test_explain_in_json_names_the_obstacle(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(path, EXPLAINED)
    argv = ["--capsule", "web", "--cwd", "/", "--want", "TOKEN", "sh", "-c", "x"]
    assert run(["config", "check", "--json", "--explain", *argv]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["outcome"], report["bindings"]) == ("ask", [])
    (rule,) = [one for one in report["rules"] if one["number"] == 1]
    assert rule["standing"] == "hindered"
    assert "trust_cwd" in rule["words"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--explain"], "needs a command"),
        (["--explain", "--capsule", "lab", "sh"], "is not configured"),
        (["--explain", "--cwd", "/nowhere", "sh"], "name a directory"),
        (["--capsule", "web"], "go with --explain"),
        (["one", "two"], "go with --explain"),
    ],
)
def test_what_cannot_be_explained_is_said(
    path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    write(path, EXPLAINED)
    assert run(["config", "check", *argv]) != 0
    assert words in capsys.readouterr().err


def test_a_program_that_is_not_listed_is_refused_whatever_the_rules_say(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(path, EXPLAINED)
    assert run(["config", "check", "--explain", "--cwd", "/", "git", "status"]) == 0
    assert "not among host_binaries" in capsys.readouterr().out
