"""What reaches a command: its arguments to the byte, no variable of the capsule, the true value.

The cases are public reports about tools that do a part of this job (CASES 3a, 3d, 3e and 3f).
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
from collections.abc import Generator
from pathlib import Path

import pytest

from support.agent import Agent, finish
from support.allowed import Allowed, allowed
from support.broker import PROGRAMS

ASK_AGAIN = "[[rules]]\naction = 'ask'\nargv = ['printenv', 'TOKEN']\n"
# Prints the arguments as they came from the kernel.
ARGUMENTS = "import os, sys; print([os.fsencode(word) for word in sys.argv[1:]])"
HASH = 'printf %s "$TOKEN" | sha256sum'
# Each language has its own way from the environment to the descriptor.
PRINTERS = {
    "a shell": ("sh", "-c", 'echo "$TOKEN"'),
    "python": ("python3", "-c", "import os; print(os.environ['TOKEN'])"),
    "perl": ("perl", "-e", 'print "$ENV{TOKEN}\\n"'),
    "no library at all": ("sh", "-c", 'exec ldconfig -r "/$TOKEN" 2>&1'),
}


@pytest.fixture(scope="module")
def made() -> Generator[Allowed]:
    with allowed("sh", "python3", "perl", "env", asked=["printenv"], more=ASK_AGAIN) as running:
        yield running


@pytest.mark.parametrize("way", PRINTERS)
def test_a_value_is_masked_whatever_prints_it(made: Allowed, way: str) -> None:
    """varlock#251: only programs that used the tool's own library were covered."""
    done = made.agent.run(*PRINTERS[way])
    assert b"[redacted:TOKEN]" in done.stdout, done.stderr
    assert made.token.encode() not in done.stdout + done.stderr


def test_the_command_has_the_true_value_and_only_its_output_has_the_marker(made: Allowed) -> None:
    """cirrus-ci-docs#693: a marker was mistaken for the value itself."""
    done = made.agent.run("sh", "-c", f'{HASH}; echo "$TOKEN"')
    true = hashlib.sha256(made.token.encode()).hexdigest()
    assert done.stdout.decode() == f"{true}  -\n[redacted:TOKEN]\n"


def test_a_value_that_is_written_in_pieces_is_masked_wherever_it_is_cut(made: Allowed) -> None:
    """varlock#268, #770: values leaked at the edges of chunks."""
    script = (
        "import os\n"
        "value = os.environb[b'TOKEN']\n"
        "size = len(value)\n"
        "cuts = [(i, j) for i in range(1, size) for j in range(i, size)]\n"
        "for i, j in cuts:\n"
        "    for piece in (value[:i], value[i:j], value[j:] + b'\\n'):\n"
        "        os.write(1, piece)\n"
        "        os.sched_yield()\n"
        "print(len(cuts), flush=True)\n"
    )
    done = made.agent.run("python3", "-c", script)
    *lines, count = done.stdout.splitlines()
    assert lines == [b"[redacted:TOKEN]"] * int(count)


def test_arguments_arrive_to_the_byte_and_no_shell_reads_them(made: Allowed) -> None:
    """goclaw#1205, harper#1924: the first word was checked, and a shell ran the whole string."""
    words = [b"", b"two words", b"'\"", b"$HOME `id` $(id)", b"ls;id", b"a\nb\tc\r", b"*", b"\\"]
    words += [b"--", b"-x", "späť\u202e".encode(), b"\xff\xfe", b"\x01\x1b[2J", b"x" * 100_000]
    done = made.agent.run("python3", "-c", ARGUMENTS, *words)
    assert ast.literal_eval(done.stdout.decode()) == words


ODD_NAMES = (b"two words", b"-x", b"$HOME 'q\"", b"a\nb", b"\xff\xfe", b"*", "späť".encode())


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_working_directories_of_any_name_arrive_to_the_byte(made: Allowed, name: bytes) -> None:
    """Without a terminal or with one, a name is bytes: no shell, no decoding in between."""
    place = Path(os.fsdecode(os.fsencode(made.work) + b"/" + name))
    place.mkdir(exist_ok=True)
    done = Agent(made.broker, "web", place).run("sh", "-c", "/bin/pwd")
    assert (done.returncode, done.stdout) == (0, os.fsencode(place) + b"\n"), done.stderr


def test_no_variable_of_the_capsule_reaches_the_command(made: Allowed) -> None:
    """host-spawn#42, distrobox#632: HOME, PATH, LD_PRELOAD of the container leaked."""
    poison = {
        "HOME": "/capsule/home",
        "LD_PRELOAD": "/capsule/evil.so",
        "PYTHONPATH": "/capsule/lib",
        "GIT_SSH_COMMAND": "/capsule/ssh",
        "JACKIN_APPROVER": "/capsule/yes",
        "LANG": "C.UTF-8",
        "TERM": "../../capsule/terminfo",
        "TOKEN": "capsule",
    }
    agent = made.agent
    original = dict(agent.env)
    agent.env.update(poison, PATH=f"/capsule/bin:{original['PATH']}")
    try:
        done = agent.run("env")
    finally:
        agent.env.clear()
        agent.env.update(original)
    found = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert found["LANG"] == "C.UTF-8"
    assert found["TOKEN"] == "[redacted:TOKEN]"
    assert not any("capsule" in value for value in found.values())
    assert set(found).isdisjoint(set(poison) - {"HOME", "LANG", "TERM", "TOKEN"})


def test_a_nested_call_has_no_credential_of_the_first(made: Allowed) -> None:
    """agi-cli#333: the whole tree below inherited the secrets."""
    socket = shlex.quote(made.agent.env["JACKIN_BROKER_SOCKET"])
    shim = shlex.quote(str(PROGRAMS / "jackin-exec"))
    script = f"JACKIN_BROKER_SOCKET={socket} {shim} printenv TOKEN; echo status $?"
    with made.agent.running("sh", "-c", script) as child:
        made.broker.approve(made.broker.wait_for_request()["id"])
        done = finish(child)
    assert done.stdout == b"status 1\n"


def test_the_value_is_in_the_commands_environment_and_in_no_argument(made: Allowed) -> None:
    """Orva#74, bws#1568: a value in argv is seen by `ps`."""
    value = made.token.encode()
    with made.agent.running("sh", "-c", "echo $$; exec sleep 600") as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        assert value in Path(f"/proc/{pid}/environ").read_bytes()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            assert value not in words, folder
        child.kill()
        finish(child)
