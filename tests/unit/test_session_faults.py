"""Whatever fails in an unforeseen way before the command starts is a denial (DESIGN §2).

A whole broker in this process, one step of the way broken at a time; the request comes over the
capsule's real socket and a rule allows it, so that every step is passed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import NoReturn

import pytest

from jackin_broker import execution, session
from jackin_broker.daemon import Daemon
from jackin_broker.frames import FrameDecoder, MessageFrame, message_frame
from jackin_broker.guessing import Suspicion
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
from support.real import START_LIMIT_S

CONFIG = """\
schema = 1
[broker]
keyring = "vault"
[env]
TOKEN = {{ value = "{value}", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["touch"]
[capsules.web.binaries.touch]
confine = false
[[rules]]
action = "allow"
argv = ["touch", "*"]
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


async def ask(daemon: Daemon, proof: Path) -> ToCapsule:
    """The last word on a request to touch `proof`."""
    reader, writer = await asyncio.open_unix_connection(str(daemon.paths.capsule_socket("web")))
    request = ExecCommand(PROTOCOL_VERSION, "touch", (str(proof),), str(proof.parent))
    writer.write(message_frame(encode(request), max_bytes=MESSAGE_TO_CAPSULE_MAX_BYTES))
    decoder = FrameDecoder(max_message_bytes=MESSAGE_TO_CAPSULE_MAX_BYTES)
    frames = decoder.feed(await reader.read())
    writer.close()
    await writer.wait_closed()
    bodies = [frame.body for frame in frames if isinstance(frame, MessageFrame)]
    return decode_to_capsule(bodies[-1])


async def served(proof: Path, value: str, broken: Callable[[], None]) -> tuple[ToCapsule, str]:
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
            answer = await ask(daemon, proof)
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
