"""A value that is registered and lent while every debug switch is on: it is echoed nowhere.

Whose rule: REDACTION §4 row 12 (actions/runner 475, PR 158: the request that registered a mask was
logged in clear), issue "Redaction that nobody gets past".
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

from support.agent import Agent
from support.broker import Broker, broker
from support.real import short_directory
from support.vaults import locked_vault, vault_passphrase

# Of the interpreter, its event loop, and the libraries that talk to a keyring.
SWITCHES = {
    "PYTHONDEVMODE": "1",
    "PYTHONASYNCIODEBUG": "1",
    "DBUS_VERBOSE": "1",
    "G_MESSAGES_DEBUG": "all",
}
CONFIG = """schema = 1
[broker]
keyring = "vault"
no_operator = "wait"
[env]
TOKEN = { keyring = "site", username = "me", on_demand = true }
[capsules.web]
kind = "none"
host_binaries = ["printenv"]
[capsules.web.binaries.printenv]
confine = false
[[rules]]
action = "allow"
argv = ["printenv", "..."]
bindings = ["TOKEN"]
trust_cwd = true
"""


@pytest.fixture(scope="module")
def operator() -> Generator[Broker]:
    """The command line alone: no broker runs."""
    with short_directory() as folder:
        yield Broker(folder, CONFIG, SWITCHES)


def private_file(path: Path, text: str) -> str:
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


def written_below(folder: Path) -> Iterable[bytes]:
    """The log, the record, the configuration, what `serve` printed, the vault."""
    return (path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_registered_and_lent_value_is_echoed_nowhere(tmp_path: Path) -> None:
    with broker(CONFIG, env=SWITCHES) as made:
        _register_and_lend(made, tmp_path, "tok-" + secrets.token_hex(12))


def _register_and_lend(made: Broker, tmp_path: Path, value: str) -> None:
    locked_vault(made.state_dir)
    made.env["JACKIN_VAULT_PASSPHRASE_FILE"] = private_file(tmp_path / "p", vault_passphrase())
    commands = [made.run("vault", "unlock")]
    commands += [made.run("credential", "add", "TOKEN", "--from-stdin", stdin=value)]
    commands += [
        made.run("credential", "add", "TOKEN", "--from-file", private_file(tmp_path / "v", value))
    ]
    commands += [made.run("credential", *words) for words in (["check"], ["list", "--json"])]
    assert [done.returncode for done in commands] == [0] * 5
    agent = Agent(made, "web", tmp_path)
    lent = agent.run("printenv", "TOKEN", options=["-v"])
    assert (lent.returncode, lent.stdout) == (0, b"[redacted:TOKEN]\n")
    commands += [made.run("status"), made.run("audit", "show", "--json")]
    said = [lent.stderr, *((done.stdout + done.stderr).encode() for done in commands)]
    assert made.stop() == 0
    for text in (*said, *written_below(made.folder)):
        assert value.encode() not in text
        assert vault_passphrase().encode() not in text


@pytest.mark.parametrize(
    "argv",
    [
        ("credential", "add", "TOKEN", "{value}"),
        ("credential", "add", "TOKEN", "--from-stdin", "{value}"),
        ("credential", "add", "TOKEN", "--value={value}"),
        ("credential", "add", "TOKEN={value}"),
        ("credential", "add", "TOKEN", "--from-stdin={value}"),
        ("vault", "unlock", "{value}"),
        ("vault", "create", "{value}"),
    ],
)
def test_a_value_given_as_an_argument_by_mistake_is_refused_without_repeating_it(
    operator: Broker, argv: tuple[str, ...]
) -> None:
    """The message would stand in a terminal's or a CI job's log for ever."""
    value = "tok-" + secrets.token_hex(12)
    done = operator.run(*(word.format(value=value) for word in argv))
    assert done.returncode == 2
    assert done.stderr.startswith("jackin-broker: error: ")
    assert "jackin-broker: hint: see: " in done.stderr
    assert value not in done.stdout + done.stderr
