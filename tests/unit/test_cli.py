"""The operator's command line as a whole: errors are a line and a hint, whatever goes wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

import pytest

from jackin_broker import paths
from jackin_broker.audit import Audit
from jackin_broker.cli import EXIT_ERROR, EXIT_USAGE, run
from jackin_broker.cli.hidden_prompt import new_vault_passphrase
from jackin_broker.errors import JackinError


@pytest.fixture
def record(private_home: Path) -> Path:
    """A record of one line, where the command line looks for it."""
    path = paths.resolve(os.environ).audit_file
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    audit = Audit(path)
    asyncio.run(audit.record("broker_started", pid=1))
    audit.close()
    return path


def last_lines(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The error line and the hint line."""
    error, hint = capsys.readouterr().err.splitlines()
    return error.removeprefix("jackin-broker: error: "), hint.removeprefix("jackin-broker: hint: ")


def test_without_a_terminal_no_broker_is_started(
    private_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would only be left behind: nobody could be shown a picker."""
    assert run([]) == EXIT_ERROR
    error, hint = last_lines(capsys)
    assert error == "the picker needs a terminal, and this is none"
    assert "jackin-broker serve" in hint
    assert not paths.resolve(os.environ).operator_socket.parent.exists()


def test_what_the_system_refuses_is_a_line_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/full")

    monkeypatch.setattr(paths, "resolve", full)
    assert run(["config", "path"]) == EXIT_ERROR
    assert last_lines(capsys)[0] == "/var/full: no space left on device"


@pytest.mark.parametrize(
    "argv",
    [
        ["decide", "abcd"],
        ["decide", "abcd", "--approve", "--deny"],
        ["decide", "abcd", "--deny", "--with", "A"],
        ["decide", "abcd", "--approve", "--reason", "because"],
        ["audit", "show", "--last", "-1"],
        ["tryy"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    argv: list[str], private_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == EXIT_USAGE
    assert last_lines(capsys)[1].startswith("see: jackin-broker")


def test_an_export_is_its_owners_alone_and_overwrites_nothing(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "record.jsonl"
    assert run(["audit", "export", "--output", str(target)]) == 0
    assert target.read_bytes() == record.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert run(["audit", "export", "--output", str(target)]) == EXIT_ERROR
    assert last_lines(capsys)[0] == f"{target} exists already"
    assert run(["audit", "export", "--output", str(tmp_path / "none" / "x")]) == EXIT_ERROR
    assert "no such file or directory" in last_lines(capsys)[0]


def test_an_export_without_a_record_makes_no_file(
    private_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "record.jsonl"
    assert run(["audit", "export", "--output", str(target)]) == EXIT_ERROR
    assert "there is no record yet" in last_lines(capsys)[0]
    assert not target.exists()


def test_a_vault_gets_no_passphrase_that_is_soon_guessed(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phrase = short_tmp / "phrase"
    phrase.touch(mode=0o600)
    phrase.write_text("seven77\n")
    with pytest.raises(JackinError, match="fewer than 8"):
        new_vault_passphrase({"JACKIN_VAULT_PASSPHRASE_FILE": str(phrase)})
    phrase.write_text("eight888\n")
    assert new_vault_passphrase({"JACKIN_VAULT_PASSPHRASE_FILE": str(phrase)}) == "eight888"
