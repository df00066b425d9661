"""The sixteen probes through the installed programs, cut in two at every place and byte by byte.

Whose rule: REDACTION §3, issue "Redaction that nobody gets past": two of the anchors lose a whole
value depending only on where a write is split. The command writes a part, waits until the broker
has read it, and goes on: so each part is a read of its own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackin_broker.redact.budget import BUDGET
from jackin_broker.redact.needles import MAX_IDLE_BYTES, build
from jackin_broker.redact.projection import project, unfinished_escape
from support.agent import Agent
from support.broker import Broker, broker
from support.real import short_directory
from support.redaction_corpus import Case, heads_before_markers, load_cases

PROBES = [case for case in load_cases() if case.name.startswith("probe-")]
# What these show depends on the end of the stream, so each cut is a command of its own …
OF_THE_END = {"probe-06-prefix-of-longer", "probe-14-cut-before-its-end"}
# … and a head that the end cuts off is a guess: so many of them one binding bears.
CUTS_A_BINDING = BUDGET - 2
# Between two rounds of a probe. No value begins or ends so.
BETWEEN = b"\x01|\x01\n"
# Writes each part of each round, given as base64 in JSON, once nothing of the one before is left
# in the pipe.
WRITER = """
import base64, fcntl, json, os, sys, termios, time
left = bytearray(4)
for part in json.load(sys.stdin):
    os.write(1, base64.b64decode(part))
    while fcntl.ioctl(1, termios.FIONREAD, left) == 0 and any(left):
        time.sleep(0.0002)
"""


@dataclass(frozen=True)
class Rounds:
    """Some of the ways to cut one probe, and the capsule whose credentials it has."""

    capsule: str
    case: Case
    ways: Sequence[list[bytes]]

    @property
    def id(self) -> str:
        return f"{self.case.name}-{self.capsule}"

    def named(self, binding: str) -> str:
        """Guesses are counted by name, so no two share one."""
        return f"{binding}_{self.capsule}"


def ways_to_cut(data: bytes) -> list[list[bytes]]:
    every_byte = [data[at : at + 1] for at in range(len(data))]
    return [every_byte, *([data[:cut], data[cut:]] for cut in range(1, len(data)))]


def all_rounds() -> list[Rounds]:
    made: list[Rounds] = []
    for case in PROBES:
        ways = ways_to_cut(case.data)
        size = CUTS_A_BINDING if case.name in OF_THE_END else len(ways)
        for low in range(0, len(ways), size):
            made.append(Rounds(f"p{len(made)}", case, ways[low : low + size]))
    return made


ROUNDS = all_rounds()


def _configuration(folder: Path, rounds: Rounds) -> str:
    name = rounds.capsule
    lines = [f'[capsules.{name}]\nkind = "none"\nhost_binaries = ["python3"]']
    lines += [f"[capsules.{name}.binaries.python3]\nconfine = false\n[capsules.{name}.env]"]
    bindings = [rounds.named(binding) for binding, _, _ in rounds.case.secrets]
    for binding, (_, value, redact) in zip(bindings, rounds.case.secrets, strict=True):
        path = folder / binding
        path.touch(mode=0o600)
        path.write_bytes(value + b"\n")
        mode = f'redact = "{redact.value}"'
        lines += [f'{binding} = {{ file = "{path}", on_demand = true, {mode} }}']
    lines += [
        f'[[rules]]\naction = "allow"\ncapsule = "{name}"\nargv = ["python3", "..."]',
        f'bindings = {json.dumps(bindings)}\nstdin = "live"\ntrust_cwd = true',
    ]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def made() -> Generator[tuple[Broker, Path]]:
    with short_directory() as folder:
        text = 'schema = 1\n[broker]\nno_operator = "wait"\n'
        text += "".join(_configuration(folder, rounds) for rounds in ROUNDS)
        (folder / "writer.py").write_text(WRITER)
        with broker(text) as running:
            yield running, folder


@pytest.mark.parametrize("rounds", ROUNDS, ids=lambda rounds: rounds.id)
def test_a_probe_is_masked_wherever_it_is_cut(made: tuple[Broker, Path], rounds: Rounds) -> None:
    running, folder = made
    agent = Agent(running, rounds.capsule, folder)
    expected = _renamed(rounds)
    if rounds.case.name in OF_THE_END:
        for way in rounds.ways:
            _assert_shown(_written(agent, way), expected, rounds)
    else:
        parts = [part for way in rounds.ways for part in (*way, BETWEEN)]
        _assert_shown(_written(agent, parts), (expected + BETWEEN) * len(rounds.ways), rounds)


def _written(agent: Agent, parts: Sequence[bytes]) -> bytes:
    told = json.dumps([base64.b64encode(part).decode() for part in parts]).encode()
    done = agent.run("python3", "writer.py", stdin=told)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def _renamed(rounds: Rounds) -> bytes:
    """What the file expects, with the names that the bindings have here."""
    expected = rounds.case.expect
    for binding, _, _ in rounds.case.secrets:
        for style in (b"redacted:", b"hidden:"):
            named = style + rounds.named(binding).encode()
            expected = expected.replace(style + binding.encode(), named)
    return expected


def _assert_shown(shown: bytes, expected: bytes, rounds: Rounds) -> None:
    """Equal, but for what a silence between two parts let go: the machine may be busy."""
    secrets = [(rounds.named(name), value, redact) for name, value, redact in rounds.case.secrets]
    for head in heads_before_markers(shown, expected, build(secrets).markers):
        assert len(project(head[: unfinished_escape(head)])) <= MAX_IDLE_BYTES
