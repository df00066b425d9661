"""`credential` and `vault` as an operator uses them: the installed programs, a real keyring.

Whose rules: issue "The main job" item 6, DESIGN §14; no value is ever an argument or printed.
"""

from __future__ import annotations

import json
import secrets
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.broker import COMMAND_LIMIT_S, broker, program
from support.real import SEARCH_PATH
from support.secret_service import SecretService, secret_service
from support.terminal import terminal
from support.vaults import locked_vault, vault_passphrase

# A vault that is made costs its passphrase twice, on a machine that is busy with other tests.
VAULT_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[SecretService]:
    with secret_service() as service:
        yield service


class Operator:
    """An operator's account: its directories, its keyring, and what commands say there."""

    def __init__(self, home: Path, session: dict[str, str]) -> None:
        self.config_file = home / "config" / "jackin-exec" / "config.toml"
        self.state_dir = home / "state" / "jackin-exec"
        self.env = {
            "PATH": SEARCH_PATH,
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            **{name: text for name, text in session.items() if name.startswith("DBUS")},
        }

    def run(self, *argv: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [program("jackin-broker"), *argv],
            env=self.env,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=COMMAND_LIMIT_S,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def ask(self, *argv: str) -> Any:
        done = self.run(*argv, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def add(self, name: str, *argv: str, value: str) -> subprocess.CompletedProcess[str]:
        return self.run("credential", "add", name, "--from-stdin", *argv, stdin=f"{value}\n")

    def write_config(self, text: str) -> None:
        self.config_file.parent.mkdir(mode=0o700, exist_ok=True)
        self.config_file.touch(mode=0o600)
        self.config_file.write_text(text)


@pytest.fixture
def operator(private_home: Path, running: SecretService) -> Operator:
    """With a Secret Service."""
    return Operator(private_home, running.env)


@pytest.fixture
def headless(private_home: Path) -> Operator:
    """Without one: the keyring is the vault."""
    return Operator(private_home, {})


def a_value() -> str:
    return "tok" + secrets.token_hex(12)


def test_an_added_credential_is_listed_checked_and_in_no_output_or_file(
    operator: Operator,
) -> None:
    value = a_value()
    added = operator.add("GH_TOKEN", "--label", "GitHub, read only", value=value)
    assert added.returncode == 0, added.stderr
    assert "secret-service" in added.stdout
    listed = operator.run("credential", "list")
    assert "GH_TOKEN" in listed.stdout
    assert "GitHub, read only" in listed.stdout
    checked = operator.run("credential", "check")
    assert checked.returncode == 0, checked.stdout
    assert "ok    GH_TOKEN" in checked.stdout
    said = [done.stdout + done.stderr for done in (added, listed, checked)]
    files = [path.read_bytes() for path in Path(operator.env["HOME"]).rglob("*") if path.is_file()]
    assert all(value not in text for text in said)
    assert all(value.encode() not in content for content in files)


def test_the_binding_is_written_privately_and_as_documented(operator: Operator) -> None:
    operator.add("GH_TOKEN", "--service", "github", "--username", "me", value=a_value())
    operator.add("SSH_KEY", "--deliver", "file", value=a_value())
    assert operator.config_file.read_text() == (
        "schema = 1\n\n[env]\n"
        'GH_TOKEN = { keyring = "github", username = "me", on_demand = true }\n'
        'SSH_KEY = { keyring = "jackin-exec", on_demand = true, deliver = "file" }\n'
    )
    assert stat.S_IMODE(operator.config_file.stat().st_mode) == 0o600
    (first, second) = operator.ask("credential", "list")
    assert (first["source"], first["deliver"]) == ("keyring github/me", "env")
    assert (second["source"], second["deliver"]) == ("keyring jackin-exec/SSH_KEY", "file")


def test_adding_again_replaces_the_value_and_only_the_given_words(operator: Operator) -> None:
    operator.write_config(
        'schema = 1\n[env]\nA = { keyring = "github", on_demand = true, label = "old" }  # mine\n'
    )
    assert operator.add("A", "--label", "new", value=a_value()).returncode == 0
    assert 'keyring = "github"' in operator.config_file.read_text()
    assert 'label = "new"' in operator.config_file.read_text()
    assert "# mine" in operator.config_file.read_text()
    assert operator.run("credential", "check", "A").returncode == 0


def test_a_name_that_has_another_source_keeps_it(operator: Operator) -> None:
    text = 'schema = 1\n[env]\nA = { file = "/etc/hostname", on_demand = true }\n'
    operator.write_config(text)
    refused = operator.add("A", value=a_value())
    assert refused.returncode == 1
    assert "error: env.A: comes from file /etc/hostname already" in refused.stderr
    assert "hint: first: jackin-broker credential remove A" in refused.stderr
    assert operator.config_file.read_text() == text


@pytest.mark.parametrize("value", ["short", "aaaaaaaaaaaaaaaa", "password"])
def test_what_cannot_be_redacted_is_refused_unless_that_is_said(
    operator: Operator, value: str
) -> None:
    refused = operator.add("PIN", value=value)
    assert refused.returncode == 1
    assert "PIN" in refused.stderr
    assert "--redact off" in refused.stderr
    assert not operator.config_file.exists()
    assert operator.add("PIN", "--redact", "off", value=value).returncode == 0
    assert operator.ask("credential", "list")[0]["redact"] == "off"


def test_exactly_one_newline_goes_and_multi_line_keys_stay_whole(
    operator: Operator, tmp_path: Path, running: SecretService
) -> None:
    key = "-----BEGIN KEY-----\n" + secrets.token_hex(30) + "\n-----END KEY-----\n"
    file = tmp_path / "key"
    file.write_text(key)
    added = operator.run("credential", "add", "A", "--from-file", str(file))
    assert added.returncode == 0, added.stderr
    assert running.read("jackin-exec", "A") == key.removesuffix("\n")


@pytest.mark.parametrize("value", [b"", b"\n", b"\xff\xfe" * 20])
def test_what_is_no_text_is_refused_and_nothing_is_written(
    operator: Operator, value: bytes
) -> None:
    refused = operator.run("credential", "add", "A", "--from-stdin", stdin=value)
    assert refused.returncode == 1
    assert refused.stderr.startswith("jackin-broker: error: A: the value is")
    assert not operator.config_file.exists()


def test_wrong_usage_is_said_before_anything_is_asked(operator: Operator) -> None:
    for argv, words in (
        (["1X", "--from-stdin"], "invalid value for NAME"),
        (["PATH", "--from-stdin"], "choose another name"),
        (["A", "--from-stdin", "--from-file", "/etc/hostname"], "two sources"),
        (["A", "--deliver", "nowhere"], "nowhere"),
        (["A", "the-value"], "unexpected extra argument"),
    ):
        done = operator.run("credential", "add", *argv)
        assert done.returncode == 2
        assert words in done.stderr
    assert not operator.config_file.exists()


def test_without_a_terminal_the_hint_names_the_other_ways(operator: Operator) -> None:
    done = operator.run("credential", "add", "A")
    assert done.returncode == 1
    assert "hint: give --from-stdin or --from-file" in done.stderr


def test_a_typed_value_is_asked_for_twice_and_never_shown(operator: Operator) -> None:
    value = a_value()
    argv = [program("jackin-broker"), "credential", "add", "A"]
    with terminal(argv, env=operator.env) as screen:
        screen.wait_for("value of A:$")
        screen.type(f"{value}\r")
        screen.wait_for("^value of A again:$")
        screen.type(f"{value}\r")
        assert screen.wait_ended() == 0, screen.text
        assert value.encode() not in screen.written
    assert operator.run("credential", "check", "A").returncode == 0


def test_two_answers_that_differ_are_asked_for_again(operator: Operator) -> None:
    value = a_value()
    argv = [program("jackin-broker"), "credential", "add", "A"]
    with terminal(argv, env=operator.env) as screen:
        screen.wait_for("value of A:$")
        screen.type(f"{value}\r")
        screen.wait_for("^value of A again:$")
        screen.type(f"{value}x\r")
        # What is typed before the question is there would be shown, and thrown away.
        screen.wait_for("^the two differ: type it again, twice\nvalue of A:$")
        screen.type(f"{value}\r")
        screen.wait_until(lambda: screen.text.count("again:") == 2, "it is asked for again")
        screen.type(f"{value}\r")
        assert screen.wait_ended() == 0, screen.text


def test_an_interrupted_question_writes_nothing(operator: Operator) -> None:
    argv = [program("jackin-broker"), "credential", "add", "A"]
    with terminal(argv, env=operator.env) as screen:
        screen.wait_for("value of A:$")
        screen.press("ctrl-c")
        assert screen.wait_ended() == 130
    assert not operator.config_file.exists()


def test_removing_takes_value_and_binding_and_asks_first(
    operator: Operator, running: SecretService
) -> None:
    operator.add("A", value=a_value())
    operator.add("B", value=a_value())
    refused = operator.run("credential", "remove", "A")
    assert refused.returncode == 1
    assert "hint: add --yes" in refused.stderr
    with terminal(
        [program("jackin-broker"), "credential", "remove", "A"], env=operator.env
    ) as screen:
        screen.wait_for("remove A and its value")
        screen.type("n\r")
        assert screen.wait_ended() == 130
    assert running.read("jackin-exec", "A") is not None
    assert operator.run("credential", "remove", "A", "--yes").returncode == 0
    assert running.read("jackin-exec", "A") is None
    assert [row["name"] for row in operator.ask("credential", "list")] == ["B"]
    gone = operator.run("credential", "remove", "A", "--yes")
    assert gone.returncode == 1
    assert "there is no such binding" in gone.stderr


def test_a_value_that_two_bindings_share_stays_for_the_other(
    operator: Operator, running: SecretService
) -> None:
    operator.add("A", "--service", "github", "--username", "me", value=a_value())
    operator.add("B", "--service", "github", "--username", "me", value=a_value())
    removed = operator.run("credential", "remove", "A", "--yes")
    assert "also that of B" in removed.stdout
    assert running.read("github", "me") is not None


def test_check_says_of_each_what_is_wrong_and_what_to_do(operator: Operator) -> None:
    operator.write_config(
        "schema = 1\n[env]\n"
        'GOOD = { file = "/etc/passwd", on_demand = true }\n'
        'ABSENT = { keyring = "nothing", on_demand = true }\n'
        "UNSET = '$NOT_SET_ANYWHERE'\n"
        'PLAIN = { value = "short", on_demand = true }\n'
        '[capsules.web]\nkind = "none"\n'
        '[capsules.web.env]\nOWN = { command = ["false"], on_demand = true }\n'
    )
    done = operator.run("credential", "check", "--json")
    assert done.returncode == 1
    seen = {row["name"]: row for row in json.loads(done.stdout)["credentials"]}
    assert seen["GOOD"]["ok"]
    assert "no item nothing/ABSENT" in seen["ABSENT"]["problem"]
    assert seen["ABSENT"]["hint"] == "jackin-broker credential add ABSENT"
    assert "$NOT_SET_ANYWHERE is not set" in seen["UNSET"]["problem"]
    assert "cannot be redacted" in seen["PLAIN"]["problem"]
    assert "false exited with status 1" in seen["OWN"]["problem"]
    assert seen["OWN"]["capsule"] == "web"
    assert operator.run("credential", "check", "GOOD").returncode == 0
    assert operator.run("credential", "check", "NOPE").returncode == 1


def test_every_key_of_a_keyrings_binding_has_its_option(operator: Operator) -> None:
    """docs/configuration.md, `[env]`: what can be written can be given."""
    assert operator.add("SSH_PASS", value=a_value()).returncode == 0
    key = ("--deliver", "ssh-agent", "--passphrase", "SSH_PASS")
    hosts = ("--destination", "git@example.com", "--destination", "example.org")
    added = operator.add("SSH_KEY", *key, *hosts, value=a_value())
    assert added.returncode == 0, added.stderr
    added = operator.add("GH", "--deliver-as", "GH_TOKEN", "--redact", "fragments", value=a_value())
    assert added.returncode == 0, added.stderr
    lines = operator.config_file.read_text().splitlines()
    assert lines[-2:] == [
        'SSH_KEY = { keyring = "jackin-exec", on_demand = true, deliver = "ssh-agent", '
        'passphrase = "SSH_PASS", destinations = ["git@example.com", "example.org"] }',
        'GH = { keyring = "jackin-exec", on_demand = true, deliver_as = "GH_TOKEN", '
        'redact = "fragments" }',
    ]
    wrong = operator.add("KEY", *key[:3], "NOT_THERE", value=a_value())
    assert wrong.returncode == 1
    assert "env.KEY.passphrase" in wrong.stderr


def test_a_short_passphrase_is_refused_before_it_is_asked_for_again(headless: Operator) -> None:
    argv = [program("jackin-broker"), "vault", "create"]
    with terminal(argv, env=headless.env, cols=160) as screen:
        screen.wait_for("^new vault passphrase:$", limit_s=VAULT_LIMIT_S)
        screen.type("short\r")
        assert screen.wait_ended(limit_s=VAULT_LIMIT_S) == 1, screen.text
        assert "fewer than 8 characters" in screen.text
        assert "again" not in screen.text
    assert not (headless.state_dir / "vault.age").exists()


def test_the_first_credential_on_a_headless_machine_makes_the_vault(headless: Operator) -> None:
    value, passphrase = a_value(), "pass" + secrets.token_hex(8)
    argv = [program("jackin-broker"), "credential", "add", "A"]
    with terminal(argv, env=headless.env, cols=160) as screen:
        for question, answer in (
            ("^new vault passphrase:$", passphrase),
            ("^new vault passphrase again:$", passphrase),
            ("^value of A:$", value),
            ("^value of A again:$", value),
        ):
            screen.wait_for(question, limit_s=VAULT_LIMIT_S)
            screen.type(f"{answer}\r")
        assert screen.wait_ended(limit_s=VAULT_LIMIT_S) == 0, screen.text
        assert "one moment: a passphrase takes a second" in screen.text
        assert value.encode() not in screen.written
        assert passphrase.encode() not in screen.written
    assert (headless.state_dir / "vault.age").exists()


def passphrase_file(folder: Path, passphrase: str, name: str = "passphrase") -> str:
    file = folder / name
    file.touch(mode=0o600)
    file.write_text(f"{passphrase}\n")
    return str(file)


def test_a_vault_is_made_once_and_its_passphrase_changes(
    headless: Operator, tmp_path: Path
) -> None:
    old, new = "old" + secrets.token_hex(8), "new" + secrets.token_hex(8)
    headless.env["JACKIN_VAULT_PASSPHRASE_FILE"] = passphrase_file(tmp_path, old)
    headless.env["JACKIN_VAULT_NEW_PASSPHRASE_FILE"] = passphrase_file(tmp_path, new, "new")
    made = headless.run("vault", "create")
    assert made.returncode == 0, made.stderr
    assert old not in made.stdout + made.stderr
    again = headless.run("vault", "create")
    assert again.returncode == 1
    assert "there is a vault already" in again.stderr
    assert headless.run("vault", "change").returncode == 0
    refused = headless.run("vault", "change")
    assert refused.returncode == 1
    assert "the passphrase does not open the vault" in refused.stderr


def test_unlocking_without_a_broker_says_that_there_is_none(headless: Operator) -> None:
    done = headless.run("vault", "unlock")
    assert done.returncode == 1
    assert "error: no broker runs" in done.stderr
    assert "hint: start it with: jackin-broker serve" in done.stderr


CONFIG = """\
schema = 1
[broker]
keyring = "vault"
[env]
GH_TOKEN = { keyring = "github", username = "me", on_demand = true }
"""


def test_a_running_broker_is_unlocked_and_does_the_checking(tmp_path: Path) -> None:
    with broker(CONFIG) as running:
        vault = locked_vault(running.state_dir)
        assert running.ask("status")["vault"] == "locked"
        locked = running.run("credential", "check")
        assert locked.returncode == 1
        assert "the vault is locked" in locked.stdout
        assert "hint: jackin-broker vault unlock" in locked.stdout
        running.env["JACKIN_VAULT_PASSPHRASE_FILE"] = passphrase_file(tmp_path, "wrong")
        assert "does not open" in running.run("vault", "unlock").stderr
        running.env["JACKIN_VAULT_PASSPHRASE_FILE"] = passphrase_file(tmp_path, vault_passphrase())
        unlocked = running.run("vault", "unlock")
        assert unlocked.returncode == 0, unlocked.stderr
        assert running.ask("status")["vault"] == "unlocked"
        assert "already" in running.run("vault", "unlock").stdout
        value = a_value()
        added = running.run("credential", "add", "GH_TOKEN", "--from-stdin", stdin=value)
        assert added.returncode == 0, added.stderr
        checked = running.run("credential", "check")
        assert checked.returncode == 0, checked.stdout
        assert "the running broker" in checked.stderr
        running.run("credential", "add", "NEWER", "--from-stdin", stdin=value)
        assert "hint: jackin-broker reload" in running.run("credential", "check", "NEWER").stdout
        held = [path.read_bytes() for path in running.folder.rglob("*") if path.is_file()]
        assert all(value.encode() not in content for content in held)
        assert all(vault_passphrase().encode() not in content for content in held)
        assert vault.exists


def test_a_broker_with_a_passphrase_file_starts_unlocked(tmp_path: Path) -> None:
    env = {"JACKIN_VAULT_PASSPHRASE_FILE": passphrase_file(tmp_path, vault_passphrase())}
    with broker(CONFIG) as running:
        assert running.stop() == 0
        locked_vault(running.state_dir)
        running.env.update(env)
        running.start()
        assert running.ask("status")["vault"] == "unlocked"


def test_options_that_do_not_go_together_store_nothing_and_blame_no_file(
    operator: Operator,
) -> None:
    refused = operator.add("GH", "--deliver", "stdin", "--deliver-as", "OTHER", value=a_value())
    assert refused.returncode == 1
    assert "env.GH.deliver_as: means nothing with deliver = 'stdin'" in refused.stderr
    assert "hint: nothing was stored; what goes together: " in refused.stderr
    assert not operator.config_file.exists()
