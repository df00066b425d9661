"""All values at once, each in time, the first failure for all.

Whose rule: DESIGN §2 step 7 and §8.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import pytest

from jackin_broker.bindings import Binding, CommandSource, EnvSource, FileSource, ValueSource
from jackin_broker.errors import DenialCode, SourceFault
from jackin_broker.sources.resolver import consumed_variables
from support.real import is_running, wait_until
from support.sources import ENOUGH_S, make_resolver, refusal, values


def shell(name: str, script: str) -> Binding:
    return Binding(name, CommandSource(("sh", "-c", script)))


def test_the_order_is_that_of_the_bindings_whoever_was_first(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    slow = shell("SLOW", f"cat {fifo}")
    fast = shell("FAST", f"echo went-through > {fifo}; echo fast")
    # The first can only end while the second runs: one after the other would never end.
    assert values(make_resolver(dict(os.environ)), slow, fast) == [b"went-through", b"fast"]


def test_nothing_to_resolve_is_resolved() -> None:
    assert values(make_resolver({})) == []


def test_the_first_failure_is_the_answer_and_ends_the_others(tmp_path: Path) -> None:
    fifo, pid = tmp_path / "fifo", tmp_path / "pid"
    os.mkfifo(fifo)
    # The failing one waits until the other runs.
    waiting = shell("WAITING", f"echo $$ > {pid}; echo > {fifo}; exec sleep 600")
    failing = shell("FAILING", f"cat {fifo}; exit 7")
    started = time.monotonic()
    failed = refusal(make_resolver(dict(os.environ), timeout_s=600), waiting, failing)
    assert "FAILING" in str(failed)
    assert failed.code is DenialCode.SOURCE_FAILED
    assert time.monotonic() - started < ENOUGH_S
    wait_until(lambda: not is_running(int(pid.read_text())), "the other command is gone")


def test_a_credential_is_shown_by_its_name_alone() -> None:
    value = "tok" + secrets.token_hex(12)
    bindings = [Binding("ONE", ValueSource(value)), Binding("TWO", EnvSource("VARIABLE"))]
    resolver = make_resolver({"VARIABLE": value})
    assert value not in repr(bindings) + repr(vars(resolver))


def test_the_variables_that_sources_read_are_known_and_the_passphrases_too() -> None:
    bindings = [
        Binding("A", EnvSource("FIRST")),
        Binding("B", EnvSource("SECOND")),
        Binding("C", ValueSource("FIRST_NOT")),
    ]
    assert consumed_variables(bindings) == {
        "FIRST",
        "SECOND",
        "JACKIN_VAULT_PASSPHRASE_FILE",
        "JACKIN_VAULT_NEW_PASSPHRASE_FILE",
    }


def test_a_variable_may_hold_bytes_that_are_no_text() -> None:
    raw = b"tok\xff\xfe" + secrets.token_bytes(8).replace(b"\0", b"x")
    environ = {"VARIABLE": os.fsdecode(raw)}
    assert values(make_resolver(environ), Binding("A", EnvSource("VARIABLE"))) == [raw]


@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_a_file_source_reads_regular_files_only_and_never_waits(tmp_path: Path, kind: str) -> None:
    path = {"folder": tmp_path, "fifo": tmp_path / "fifo", "device": Path("/dev/zero")}[kind]
    if kind == "fifo":
        os.mkfifo(path)
    failed = refusal(make_resolver({}), Binding("A", FileSource(str(path))))
    assert failed.fault is SourceFault.FAILED
    assert "is not a regular file" in str(failed)


def test_a_file_source_says_which_file_is_missing(tmp_path: Path) -> None:
    failed = refusal(make_resolver({}), Binding("A", FileSource(str(tmp_path / "gone"))))
    assert failed.fault is SourceFault.MISSING
    assert str(tmp_path / "gone") in str(failed)


def test_a_file_may_be_named_from_home_but_not_from_anywhere_else(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\x00\xff raw\n\n")
    environ = {"HOME": str(tmp_path)}
    assert values(make_resolver(environ), Binding("A", FileSource("~/key"))) == [b"\x00\xff raw\n"]
    failed = refusal(make_resolver(environ), Binding("A", FileSource("key")))
    assert "not an absolute path" in str(failed)
