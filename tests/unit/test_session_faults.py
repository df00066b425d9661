"""Whatever fails in an unforeseen way before the command starts is a denial (DESIGN §2).

A whole broker in this process, one step of the way broken at a time; the request comes over the
capsule's real socket and a rule allows it, so that every step is passed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import NoReturn

import pytest

from jackin_broker import execution, session
from jackin_broker.approvals import Approvals
from jackin_broker.daemon import Daemon
from jackin_broker.desk import Entry
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.frames import FrameDecoder, MessageFrame, message_frame
from jackin_broker.guessing import Suspicion
from jackin_broker.operator_protocol import RequestState
from jackin_broker.protocol import (
    MESSAGE_TO_CAPSULE_MAX_BYTES,
    PROTOCOL_VERSION,
    ExecCommand,
    ExecDenied,
    ExecResult,
    ToCapsule,
    decode_to_capsule,
    encode,
)
from jackin_broker.trail import Trail
from support.real import START_LIMIT_S, is_running, wait_until

CONFIG = """\
schema = 1
[broker]
keyring = "vault"
[env]
TOKEN = {{ value = "{value}", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["touch", "bash"]
[capsules.web.binaries.touch]
confine = false
[capsules.web.binaries.bash]
confine = false
[[rules]]
action = "allow"
argv = ["touch", "*"]
bindings = ["TOKEN"]
trust_cwd = true
[[rules]]
action = "allow"
argv = ["bash", "..."]
bindings = ["TOKEN"]
trust_cwd = true
"""
# Each is one step of the way, by the name under which session or execution call it.
STEPS = (
    "examine",
    "policy.decide",
    "view_of",
    "recheck",
    "check_deliverable",
    "Trail.decided",
    "check_redactable",
    "needles_of",
    "prepare",
    "start",
)


# Its number goes into the file; it does not end by TERM, and goes on writing.
STUBBORN = "trap '' TERM; echo $$ > {proof}; while :; do echo x; sleep 0.01; done"


async def ask(daemon: Daemon, argv: tuple[str, ...], cwd: Path) -> ToCapsule:
    """The last word on a request to run this."""
    reader, writer = await asyncio.open_unix_connection(str(daemon.paths.capsule_socket("web")))
    request = ExecCommand(PROTOCOL_VERSION, argv[0], argv[1:], str(cwd))
    writer.write(message_frame(encode(request), max_bytes=MESSAGE_TO_CAPSULE_MAX_BYTES))
    decoder = FrameDecoder(max_message_bytes=MESSAGE_TO_CAPSULE_MAX_BYTES)
    frames = decoder.feed(await reader.read())
    writer.close()
    await writer.wait_closed()
    bodies = [frame.body for frame in frames if isinstance(frame, MessageFrame)]
    return decode_to_capsule(bodies[-1])


def pid_in(proof: Path) -> int:
    """The number of the process that wrote it, 0 as long as none did."""
    text = proof.read_text() if proof.exists() else ""
    return int(text) if text.endswith("\n") else 0


async def served(
    proof: Path, value: str, broken: Callable[[], None], argv: tuple[str, ...] = ()
) -> tuple[ToCapsule, str]:
    """The answer of a broker in which `broken` broke something, and its log."""
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "jackin-exec" / "config.toml"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.touch(mode=0o600)
    config.write_text(CONFIG.format(value=value))
    daemon = Daemon(dict(os.environ))
    try:
        await daemon.start()
        broken()
        async with asyncio.timeout(START_LIMIT_S):
            answer = await ask(daemon, argv or ("touch", str(proof)), proof.parent)
            assert not argv or not is_running(pid_in(proof)), "it goes on after the denial"
    finally:
        await daemon.close()
    return answer, daemon.paths.log_file.read_text()


def fail(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("nobody foresaw this")


def test_with_nothing_broken_the_command_runs(short_tmp: Path) -> None:
    proof = short_tmp / "proof"
    answer, _ = asyncio.run(served(proof, "tok" + secrets.token_hex(12), lambda: None))
    assert isinstance(answer, ExecResult), answer
    assert answer.exit_code == 0
    assert proof.exists()


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_unforeseen_denies_and_its_cause_is_in_the_log(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    proof = short_tmp / "proof"
    value = "tok" + secrets.token_hex(12)
    owner, _, name = step.rpartition(".")
    caller = session if hasattr(session, owner or name) else execution
    place = getattr(caller, owner) if owner else caller
    answer, log = asyncio.run(served(proof, value, lambda: monkeypatch.setattr(place, name, fail)))
    assert isinstance(answer, ExecDenied), answer
    assert (answer.code, answer.exit_code) == ("internal_error", 126)
    assert not proof.exists()
    assert "ZeroDivisionError: nobody foresaw this" in log
    assert value not in log + answer.reason + answer.hint


def test_guesses_that_come_while_a_request_is_looked_at_keep_rules_from_delivering(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a row of requests that wait for their turn would be a budget of its own."""
    proof = short_tmp / "proof"
    suspended = chain([frozenset[str]()], repeat(frozenset({"TOKEN"})))

    def suspend() -> None:
        monkeypatch.setattr(Suspicion, "suspended", property(lambda _: next(suspended)))

    answer, _ = asyncio.run(served(proof, "tok" + secrets.token_hex(12), suspend))
    assert isinstance(answer, ExecDenied), answer
    assert answer.code == "no_operator"  # it would have been asked
    assert not proof.exists()


def test_a_command_that_cannot_be_put_on_the_list_does_not_go_on(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails once it runs: nobody would have ended it, not even its caller's end."""
    proof = short_tmp / "proof"
    advance = Approvals.advance

    def unlisted(approvals: Approvals, entry: Entry, state: RequestState) -> None:
        if state is RequestState.RUNNING:
            wait_until(lambda: pid_in(proof) > 0, "the command runs")
            fail()
        advance(approvals, entry, state)

    broken = partial(monkeypatch.setattr, Approvals, "advance", unlisted)
    argv = ("bash", "-c", STUBBORN.format(proof=proof))
    answer, log = asyncio.run(served(proof, "tok" + secrets.token_hex(12), broken, argv))
    assert isinstance(answer, ExecDenied), answer
    assert answer.code == "internal_error"
    assert "what had begun was ended" in answer.reason
    assert "ZeroDivisionError: nobody foresaw this" in log


def test_a_command_whose_start_cannot_be_recorded_is_gone_when_its_caller_hears_so(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had TERM and three seconds more, with the credential and off every list."""
    proof = short_tmp / "proof"

    async def full(*_: object, **__: object) -> NoReturn:
        await asyncio.to_thread(wait_until, lambda: pid_in(proof) > 0, "the command runs")
        raise Refusal(DenialCode.AUDIT_FAILED, "the audit record cannot be written: full")

    value = "tok" + secrets.token_hex(12)
    broken = partial(monkeypatch.setattr, Trail, "started", full)
    argv = ("bash", "-c", STUBBORN.format(proof=proof))
    answer, log = asyncio.run(served(proof, value, broken, argv))
    assert isinstance(answer, ExecDenied), answer
    assert answer.code == "audit_failed"
    assert pid_in(proof)
    assert "ERROR" not in log, "its output went on to a connection that was closed"
