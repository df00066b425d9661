"""Values that are printed slowly, beside prompts that must not wait, and a hundred of them at once.

Whose rule: REDACTION §4 row 32 and §7 (idle), issue "Redaction that nobody gets past".
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from support.agent import Agent, finish
from support.allowed import Allowed, allowed
from support.broker import PROGRAMS, broker
from support.real import short_directory
from support.terminal import terminal

MARKER = b"[redacted:TOKEN]"
# Secrethub's masker let the first half go after 50 ms; the report's halves are 10 s apart.
APART_S = 10
# Of a value of twelve bytes or more a silence may show so many.
IDLE_BYTES = 3
MANY = 100


@pytest.fixture(scope="module")
def made() -> Generator[Allowed]:
    with allowed("python3") as running:
        yield running


def test_halves_ten_seconds_apart_are_one_value(made: Allowed) -> None:
    code = (
        "import os, time; token = os.environ['TOKEN'].encode()\n"
        "for stream in (1, 2): os.write(stream, b'<' + token[:14])\n"
        f"time.sleep({APART_S})\n"
        "for stream in (1, 2): os.write(stream, token[14:] + b'>')\n"
    )
    done = made.agent.run("python3", "-c", code)
    assert done.returncode == 0
    assert done.stdout == done.stderr == b"<" + MARKER + b">"


@pytest.mark.parametrize("size", range(1, IDLE_BYTES + 1))
def test_a_prompt_that_ends_like_a_value_begins_is_shown_while_it_waits(
    made: Allowed, size: int
) -> None:
    """And what then completes the value is masked all the same."""
    code = (
        f"import os; token = os.environ['TOKEN'].encode(); os.write(1, b'> ' + token[:{size}])\n"
        f"input(); os.write(1, token[{size}:] + b'!')\n"
    )
    with made.agent.running("python3", "-c", code, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        prompt = b"> " + made.token[:size].encode()
        assert child.stdout.read(len(prompt)) == prompt
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
        child.stdin = None
        assert finish(child).stdout == MARKER + b"!"


def test_on_a_terminal_too_a_byte_every_150_ms_never_shows_the_value(made: Allowed) -> None:
    code = (
        "import os, time\n"
        "for byte in os.environ['TOKEN'].encode(): os.write(1, bytes([byte])); time.sleep(0.15)\n"
        "print('.')\n"
    )
    argv = [str(PROGRAMS / "jackin-exec"), "-t", "python3", "-c", code]
    with terminal(argv, env=made.agent.env, cwd=str(made.work)) as caller:
        assert caller.wait_ended() == 0
        before, marker, after = caller.written.partition(MARKER)
    assert marker
    assert after.strip() == b"."
    assert made.token.encode().startswith(before[-IDLE_BYTES:])
    assert made.token[: IDLE_BYTES + 1].encode() not in before


def test_a_command_with_a_hundred_credentials_shows_none_of_them(short_tmp: Path) -> None:
    values = {f"TOKEN_{number}": "tok-" + secrets.token_hex(12) for number in range(MANY)}
    with short_directory() as folder:
        lines = ['schema = 1\n[capsules.web]\nkind = "none"\nhost_binaries = ["printenv"]']
        lines += ["[capsules.web.binaries.printenv]\nconfine = false\n[env]"]
        for name, value in values.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(value)
            lines += [f'{name} = {{ file = "{folder / name}", on_demand = true }}']
        lines += [f'[[rules]]\naction = "allow"\nargv = ["printenv"]\ntrust_cwd = true\n'
                  f"bindings = {json.dumps(list(values))}\n"]  # fmt: skip
        with broker("\n".join(lines)) as running:
            done = Agent(running, "web", short_tmp).run("printenv")
    assert done.returncode == 0
    assert not any(value.encode() in done.stdout for value in values.values())
    shown = dict(line.split("=", 1) for line in done.stdout.decode().splitlines() if "=" in line)
    assert {name: shown.get(name) for name in values} == {n: f"[redacted:{n}]" for n in values}
    assert os.sep in shown["PATH"]
