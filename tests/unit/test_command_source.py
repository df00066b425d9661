"""A source's command gets nothing it could misuse, and nothing of it stays behind.

Whose rule: DESIGN §8, `sources/command.py`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from pathlib import Path

import pytest

from jackin_broker.bindings import Binding, CommandSource, EnvSource
from jackin_broker.errors import SourceFault
from jackin_broker.sources.resolver import consumed_variables
from support.real import is_running, wait_until
from support.sources import ENOUGH_S, SOON_S, make_resolver, refusal, told, values

NAME = "THE_BINDING"


def shell(script: str) -> Binding:
    return Binding(NAME, CommandSource(("sh", "-c", script)))


def value_of(script: str) -> bytes:
    return values(make_resolver(dict(os.environ)), shell(script))[0]


def test_exactly_one_newline_goes() -> None:
    assert value_of("printf 'value\\n\\n'") == b"value\n"
    assert value_of("printf value") == b"value"
    assert value_of("printf 'value\\r\\n'") == b"value\r"


def test_a_failure_tells_the_status_and_nothing_that_was_printed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    value = "tok" + secrets.token_hex(12)
    environ = {**os.environ, "V": value}
    failed = refusal(make_resolver(environ), shell('echo "$V"; echo "bad $V" >&2; exit 3'))
    assert failed.fault is SourceFault.FAILED
    assert str(failed) == f"credential {NAME}: sh exited with status 3"
    assert value not in told(failed, caplog)


def test_what_it_says_on_stderr_is_no_part_of_the_value() -> None:
    assert value_of("echo warning >&2; echo value; echo done >&2") == b"value"


def test_a_death_by_signal_is_a_failure_too() -> None:
    failed = refusal(make_resolver(dict(os.environ)), shell("echo value; kill -KILL $$"))
    assert str(failed) == f"credential {NAME}: sh was ended by signal 9"


def test_it_has_no_terminal_no_input_and_a_neutral_directory() -> None:
    said = value_of("pwd; cat; ps -o tty= -p $$; echo $$; ps -o sid= -p $$").split()
    assert said[:2] == [b"/", b"?"]
    assert said[2] == said[3], "it leads a session of its own"


def test_at_the_deadline_its_whole_group_ends(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! $$ > {pids}; wait"
    failed = refusal(make_resolver(dict(os.environ), timeout_s=SOON_S), shell(script))
    assert failed.fault is SourceFault.TIMED_OUT
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not is_running(int(pid)), f"process {pid} is gone")


def test_a_child_that_keeps_the_output_open_delays_nothing_and_ends(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    started = time.monotonic()
    assert value_of(f"sleep 600 & echo $! > {pid}; echo value") == b"value"
    assert time.monotonic() - started < 10
    wait_until(lambda: not is_running(int(pid.read_text())), "the child is gone")


def test_one_that_never_stops_printing_is_stopped() -> None:
    started = time.monotonic()
    failed = refusal(make_resolver(dict(os.environ)), shell("exec yes"))
    assert "over 1024 KiB" in str(failed)
    assert time.monotonic() - started < ENOUGH_S


def test_it_inherits_no_variable_that_a_source_reads() -> None:
    environ = {**os.environ, "OTHER": "kept", "JACKIN_VAULT_PASSPHRASE_FILE": "/some/file"}
    environ["ADMIN_KEY"] = "tok" + secrets.token_hex(12)
    consumed = consumed_variables([Binding("X", EnvSource("ADMIN_KEY"))])
    resolver = make_resolver(environ, consumed=consumed)
    seen = values(resolver, shell("env"))[0].decode()
    assert "OTHER=kept" in seen
    assert "ADMIN_KEY" not in seen
    assert "JACKIN_VAULT" not in seen


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "the command is empty"),
        (("/nonexistent/program",), "was not found"),
        (("/",), "cannot be started: Permission denied"),
    ],
)
def test_what_cannot_start_says_why(argv: tuple[str, ...], words: str) -> None:
    binding = Binding(NAME, CommandSource(argv))
    assert words in str(refusal(make_resolver(dict(os.environ)), binding))


def test_cancelling_ends_it(tmp_path: Path) -> None:
    """The caller of a request can go away while its sources resolve."""
    pid = tmp_path / "pid"

    async def cancel_when_it_runs() -> None:
        resolving = asyncio.ensure_future(
            make_resolver(dict(os.environ)).resolve([shell(f"echo $$ > {pid}; sleep 600")])
        )
        while not (pid.exists() and pid.read_text().endswith("\n")):
            await asyncio.wait((resolving,), timeout=0.01)
        resolving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resolving

    asyncio.run(asyncio.wait_for(cancel_when_it_runs(), ENOUGH_S))
    wait_until(lambda: not is_running(int(pid.read_text())), "the command is gone")
