"""The redaction corpus, and time, through the installed programs: shim, broker, `cat`, shim.

One capsule a case, each with the case's own credentials and a rule that delivers them to `cat`.
What only the unit can show (cuts at every byte) is in `tests/vectors/`.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from jackin_broker import operator_protocol as op
from jackin_broker.bindings import Redact
from jackin_broker.operator_client import BlockingClient
from support.agent import Agent, finish
from support.broker import Broker, broker
from support.real import short_directory
from support.redaction_corpus import Case, load_cases

# Idle time belongs to a stream that a person types into; a pipe from `cat` has none.
CASES = [case for case in load_cases() if not case.has_idle]


def _capsule(folder: Path, name: str, bindings: list[tuple[str, bytes, Redact]]) -> str:
    lines = [
        f"[capsules.{name}]",
        'kind = "none"',
        'host_binaries = ["cat", "python3"]',
        f"[capsules.{name}.binaries.cat]",
        "confine = false",
        f"[capsules.{name}.binaries.python3]",
        "confine = false",
        f"[capsules.{name}.env]",
    ]
    for binding, value, redact in bindings:
        path = folder / f"{name}-{binding}"
        path.touch(mode=0o600)
        path.write_bytes(value + b"\n")
        mode = "" if redact is Redact.ON else f', redact = "{redact.value}"'
        lines.append(f'{binding} = {{ file = "{path}", on_demand = true{mode} }}')
    names = json.dumps([binding for binding, _, _ in bindings])
    for argv, stdin in ((["cat"], "closed"), (["python3", "..."], "live")):
        lines += [
            "[[rules]]",
            'action = "allow"',
            f'capsule = "{name}"',
            f"argv = {json.dumps(argv)}",
            f"bindings = {names}",
            f'stdin = "{stdin}"',
            "trust_cwd = true",
        ]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def made() -> Generator[tuple[Broker, Path, str]]:
    with short_directory() as folder:
        value = "tok-" + secrets.token_hex(12)
        text = 'schema = 1\n[broker]\nno_operator = "wait"\n'
        text += _capsule(folder, "timed", [("TOKEN", value.encode(), Redact.ON)])
        for number, case in enumerate(CASES):
            text += _capsule(folder, f"c{number}", case.secrets)
        with broker(text) as running:
            yield running, folder, value


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_a_case_of_the_corpus_comes_out_as_it_must(
    made: tuple[Broker, Path, str], number: int
) -> None:
    running, folder, _ = made
    case: Case = CASES[number]
    done = Agent(running, f"c{number}", folder).run("cat", stdin=case.data)
    if case.refused:
        assert done.returncode == 126
        assert case.refused[0] in done.stderr.decode()
    else:
        assert (done.returncode, done.stdout) == (0, case.expect)


def _script(value: str, *, pause_s: float) -> str:
    """A program that prints a prompt and waits, then the value byte by byte."""
    encoded = base64.b64encode(value[::-1].encode()).decode()
    return (
        "import base64, sys, time\n"
        "sys.stdout.write('$ '); sys.stdout.flush(); sys.stdin.readline()\n"
        f"for byte in base64.b64decode('{encoded}')[::-1].decode():\n"
        f"    sys.stdout.write(byte); sys.stdout.flush(); time.sleep({pause_s})\n"
        "print()\n"
    )


def test_a_byte_every_150_ms_never_shows_the_value_and_a_prompt_comes_at_once(
    made: tuple[Broker, Path, str],
) -> None:
    """CASES 3a: a timer that flushes held bytes leaks what is printed slowly (varlock)."""
    running, folder, value = made
    agent = Agent(running, "timed", folder)
    script = _script(value, pause_s=0.15)
    with agent.running("python3", "-c", script, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        began = time.monotonic()
        assert child.stdout.read(2) == b"$ "
        assert time.monotonic() - began < 20  # the interpreter's start, no timer of ours
        child.stdin.write(b"go\n")
        child.stdin.close()
        child.stdin = None
        done = finish(child)
    assert done.returncode == 0
    shown = done.stdout
    # At most the three bytes that a silence may let go stand before the marker.
    assert shown.endswith(b"[redacted:TOKEN]\n")
    assert len(shown) - len(b"[redacted:TOKEN]\n") <= 3


def test_bytes_without_a_needle_come_out_as_they_went_in(
    made: tuple[Broker, Path, str],
) -> None:
    """CASES 3a: a redactor that decodes damages bytes that are no UTF-8 (ferret-scan#668)."""
    running, folder, value = made
    noise = secrets.token_bytes(512 * 1024)
    agent = Agent(running, "timed", folder)
    assert agent.run("cat", stdin=noise).stdout == noise
    mixed = noise + value.encode() + noise[:1000]
    assert agent.run("cat", stdin=mixed).stdout == noise + b"[redacted:TOKEN]" + noise[:1000]


def test_halves_on_both_streams_are_masked_for_the_operator_who_watches_both(
    made: tuple[Broker, Path, str],
) -> None:
    """REDACTION §9.7."""
    running, folder, _ = made
    code = (
        "import os, sys; token = os.environ['TOKEN']; print('ready', flush=True); input()\n"
        "for stream, part in ((sys.stdout, token[:12]), (sys.stderr, token[12:] + ' end')):\n"
        "    stream.write(part); stream.flush()"
    )
    agent = Agent(running, "timed", folder)
    client = BlockingClient(running.runtime_dir / "operator.sock")
    with agent.running("python3", "-c", code, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        attached = client.call(op.Attach(0, op.OPERATOR_PROTOCOL_VERSION))
        assert isinstance(attached, op.Attached)
        (view,) = attached.requests
        client.call(op.Watch(0, view.id))
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.close()
        child.stdin = None
        assert finish(child).returncode == 0
        shown = b""
        while (push := client.next_push(20)) is not None:
            if isinstance(push, op.Output):
                shown += push.data
            elif isinstance(push, op.RequestChanged) and push.request.state in op.FINAL_STATES:
                break
    client.close()
    assert shown == b"ready\n[redacted:TOKEN] end"


def test_an_argument_that_holds_the_value_is_masked_where_the_run_is_told(
    made: tuple[Broker, Path, str],
) -> None:
    running, folder, value = made
    agent = Agent(running, "timed", folder)
    done = agent.run("python3", "-c", "pass", value)
    assert done.returncode == 0
    lines = [line for line in running.audit() if line.get("argc") == 4]
    later = [line for line in lines if line["event"] in ("started", "ended")]
    assert later
    for line in later:
        assert value not in json.dumps(line)
        assert "[redacted:TOKEN]" in json.dumps(line)
        assert line["argv_holds"] == ["TOKEN"]
