"""DESIGN §8, delivery `prompt`: typed when the pinned binary asks, and in no other case.

The conditions one by one, on a real terminal with the real runner; then how a question is
recognised, on a terminal that a test makes up.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tracemalloc
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from jackin_broker.deliveries import Prompt
from jackin_broker.frames import Stream
from jackin_broker.protocol import EndedBy, TerminalSize
from jackin_broker.runner import host, prompting
from jackin_broker.runner.confine import UNCONFINED, Confinement
from jackin_broker.runner.foreground import Program
from jackin_broker.runner.prompting import Prompter
from jackin_broker.runner.running import Running
from jackin_broker.runner.spec import GRACE_S, RunSpec
from jackin_broker.runner.terminal import Modes
from support import real
from support.commands import PATH, Sink, confined, finish, within, workdir_at

ASKS: Final = "import getpass; print('got', len(getpass.getpass('Password: ')))"
PATTERN: Final = rb"[Pp]assword.*: ?$"


@pytest.fixture(params=["unconfined", "confined"])
def how(request: pytest.FixtureRequest) -> Confinement:
    """Both ways to run; the second needs bubblewrap."""
    if request.param == "unconfined":
        return UNCONFINED
    real.require_bwrap()
    with workdir_at(Path("/")) as cwd:
        return confined(cwd)


def pinned(path: str) -> Program:
    found = os.stat(path)
    return Program(found.st_dev, found.st_ino)


async def asked(
    code: str,
    sink: Sink,
    *,
    how: Confinement = UNCONFINED,
    program: Program | None = None,
    run_s: float = 30,
    grace_s: float = GRACE_S,
) -> Running:
    """A Python program on a terminal, which is answered a value when it asks for one."""
    python = real.SYSTEM_PYTHON
    value = b"tok" + secrets.token_hex(12).encode()
    with workdir_at(Path("/")) as cwd:
        spec = RunSpec(
            executable=python,
            argv=(b"python3", b"-I", b"-c", code.encode()),
            cwd=cwd,
            env=PATH,
            confinement=how,
            terminal=TerminalSize(24, 80),
            is_plain=True,
            prompts=(Prompt("PASS", PATTERN, value),),
            program=program or pinned(python),
            run_s=run_s,
            grace_s=grace_s,
        )
        return await host.start(spec, sink)


def outcome(work: Coroutine[Any, Any, Running], sink: Sink) -> tuple[bytes, list[str]]:
    """What was written, and which values were typed."""

    async def go() -> list[str]:
        running = await work
        await finish(running)
        return list(running.typed)

    typed = within(go())
    return sink.out, typed


# --- on a real terminal ---------------------------------------------------------------------

# It takes being asked to end for an occasion to ask for a password, and says when that is over.
ASKS_AT_ITS_END: Final = (
    "import getpass, signal, time\n"
    "def ask(*_):\n"
    "    getpass.getpass('Password: ')\n"
    "    print('got it', flush=True)\n"
    "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "signal.signal(signal.SIGTERM, ask)\n"
    "print('ready', flush=True)\n"
    "while True: time.sleep(60)\n"
)


def test_a_command_that_is_being_ended_is_typed_nothing(how: Confinement) -> None:
    """Its end was ordered: whoever answers it now hands a value to what nobody wants any more."""
    sink = Sink()

    async def end() -> Running:
        running = await asked(ASKS_AT_ITS_END, sink, how=how, grace_s=real.START_LIMIT_S)
        await sink.until_out(b"ready")
        running.end(EndedBy.OPERATOR)
        await sink.until_out(b"Password: ")
        with pytest.raises(TimeoutError):  # an answer would come within milliseconds
            await asyncio.wait_for(sink.until_out(b"got it"), 1)
        running.write_stdin(b"\x03")
        return running

    out, typed = outcome(end(), sink)
    assert (typed, b"got it" in out) == ([], False)


def test_a_question_of_the_pinned_binary_is_answered(how: Confinement) -> None:
    sink = Sink()
    out, typed = outcome(asked(ASKS, sink, how=how), sink)
    assert (out, typed) == (b"Password: \ngot 27\n", ["PASS"])


def test_a_second_question_gets_nothing(how: Confinement) -> None:
    """Once: a program that says "wrong, again" does not get it twice."""
    sink = Sink()
    code = f"{ASKS}; import select; print(select.select([0], [], [], 0.3)[0])"
    twice = code + f"; {ASKS}"
    out, typed = outcome(asked(twice, sink, how=how, run_s=2), sink)
    assert out == b"Password: \ngot 27\n[]\nPassword: "
    assert typed == ["PASS"]


@pytest.mark.parametrize(
    ("code", "which"),
    [
        ("print('Password: ', end='', flush=True); input()", "the echo is on"),
        (
            "import os, pty, tty; tty.setraw(0); os.write(1, b'Password: '); os.read(0, 1)",
            "the terminal is raw, as ssh has it",
        ),
        ("import getpass; getpass.getpass('Your name: ')", "the question is another"),
        (
            "import subprocess\n"
            "ask = 'stty -echo; printf Password:; read x'\n"
            "subprocess.run(['sh', '-c', ask])",
            "a child asks",
        ),
        (
            "import os\n"
            "ask = 'stty -echo; printf Password:; read x'\n"
            "os.execv('/bin/sh', ['sh', '-c', ask])",
            "another program took its place",
        ),
        (
            "import os, signal, termios\n"
            "modes = termios.tcgetattr(0)\n"
            "modes[3] &= ~termios.ECHO\n"
            "termios.tcsetattr(0, termios.TCSANOW, modes)\n"
            "me = os.getpid()\n"
            "if os.fork() == 0:\n"
            "    os.setpgid(0, 0)\n"
            "    while ') T' not in open(f'/proc/{me}/stat').read():\n"
            "        pass\n"
            "    os.write(1, b'Password: ')\n"
            "    os._exit(0)\n"
            "os.kill(me, signal.SIGSTOP)",
            "who would read it was stopped, by whoever wants to",
        ),
        (
            "import subprocess, time\n"
            "subprocess.run(['sh', '-c', 'stty -echo; printf Password:'])\n"
            "time.sleep(30)",
            "nobody reads yet, and whoever does next may be another",
        ),
    ],
)
def test_each_condition_is_needed(how: Confinement, code: str, which: str) -> None:
    sink = Sink()
    out, typed = outcome(asked(code, sink, how=how, run_s=0.7), sink)
    assert b":" in out, which
    assert typed == [], which


def test_another_pinned_file_is_not_answered(how: Confinement) -> None:
    """The command is what was approved only as long as it is that file."""
    sink = Sink()
    work = asked(ASKS, sink, how=how, program=pinned("/bin/sh"), run_s=0.7)
    assert outcome(work, sink) == (b"Password: ", [])


def test_the_agents_input_waits_for_the_answer_and_follows_it() -> None:
    """Nothing of it is in the value: the password is as long as it was."""
    sink = Sink()
    code = f"{ASKS}; print(input())"

    async def go() -> None:
        running = await asked(code, sink)
        running.write_stdin(b"typed ahead\n")
        await finish(running)

    within(go())
    assert b"got 27\n" in sink.out
    assert sink.out.endswith(b"typed ahead\n")
    assert sink.consumed == len(b"typed ahead\n")


def test_a_person_can_stop_it_while_their_input_waits() -> None:
    """Ctrl-C is not held back with what was typed before it."""
    sink = Sink()

    async def go() -> int | None:
        running = await asked("print('ready', flush=True); import time; time.sleep(30)", sink)
        await sink.until_out(b"ready")
        running.write_stdin(b"abc\x03")
        return (await finish(running)).signal

    assert within(go()) == 2
    assert b"KeyboardInterrupt" in sink.out


def test_who_is_never_asked_gives_the_input_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo with a ticket does not ask: what was typed must reach what it runs."""
    monkeypatch.setattr(prompting, "WITHDRAW_S", 0.2)
    sink = Sink()

    async def go() -> list[str]:
        running = await asked(f"print(input()); {ASKS}", sink, run_s=2)
        running.write_stdin(b"for the command\n")
        await finish(running)
        return list(running.typed)

    assert within(go()) == []
    assert b"for the command\nPassword: " in sink.out


# --- how a question is recognised -----------------------------------------------------------


class Asker:
    """A command on a terminal whose echo a test switches."""

    def __init__(self, *, is_hidden: bool = True) -> None:
        self.is_hidden = is_hidden
        self.terminal: Any = self
        self.typed = bytearray()
        self.is_held = False

    def modes(self) -> Modes:
        return Modes(is_canonical=True, echoes=not self.is_hidden)

    def foreground_group(self) -> int:
        return 1

    def hold_stdin(self) -> None:
        self.is_held = True

    def release_stdin(self) -> None:
        self.is_held = False

    def type_in(self, data: bytes) -> None:
        self.typed += data


def after(*pieces: bytes, prompts: tuple[Prompt, ...] = (), is_hidden: bool = True) -> bytes:
    """What is typed after a command wrote these pieces."""

    async def go() -> bytes:
        asker, sink = Asker(is_hidden=is_hidden), Sink()
        prompter = Prompter(prompts or (Prompt("A", PATTERN, b"one"),), sink)
        prompter.attach(asker, lambda group: group == 1)
        for piece in pieces:
            prompter.output(Stream.STDOUT, piece)
        assert sink.out == b"".join(pieces)
        prompter.output_end(Stream.STDOUT)
        assert not asker.is_held
        return bytes(asker.typed)

    return asyncio.run(go())


QUESTION: Final = b"Welcome to the machine.\r\nPassword for operator: "


@pytest.mark.parametrize("cut", range(1, len(QUESTION)))
def test_a_question_is_recognised_however_it_is_cut(cut: int) -> None:
    assert after(QUESTION[:cut], QUESTION[cut:]) == b"one\n"


def test_a_question_byte_by_byte_is_answered_once() -> None:
    assert after(*(QUESTION[i : i + 1] for i in range(len(QUESTION)))) == b"one\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (b"Password: unchanged\r\nNew PIN: ",),
        (b"Passwo", b"rd", b"\r\n"),
        (b"Password: \r\n", b"New PIN: "),
        (b"Pass phrase: ",),
        (b"x" * 1_000_000,),
    ],
)
def test_what_is_no_question_is_not_answered(pieces: tuple[bytes, ...]) -> None:
    without_end = (Prompt("A", rb"Password: ", b"one"),)
    assert after(*pieces, prompts=without_end, is_hidden=False) == b""
    assert after(*pieces) == b""


def test_a_line_after_the_question_means_that_another_one_is_asked() -> None:
    """A pattern without an end matches old text, too; what stands there now counts."""
    prompts = (Prompt("A", rb"Password", b"one"),)
    assert after(b"Password is needed.\r\nNew PIN: ", prompts=prompts) == b""
    assert after(b"Password", b" for you: ", prompts=prompts) == b"one\n"


def test_several_questions_each_get_their_own() -> None:
    prompts = (Prompt("A", rb"Password: $", b"one"), Prompt("B", rb"Code: $", b"two"))
    pieces = (b"Code: ", b"\r\nPassword: ", b"\r\nCode: ")
    assert after(*pieces, prompts=prompts) == b"two\none\n"


def test_output_without_end_is_not_kept() -> None:
    """pexpect's expecter keeps all that came before a match, if one lets it."""

    async def go() -> int:
        prompter = Prompter((Prompt("A", PATTERN, b"one"),), Sink(keep=False))
        prompter.attach(Asker(), lambda _: True)
        data = b"x" * 65536
        tracemalloc.start()
        try:
            for _ in range(200):
                prompter.output(Stream.STDOUT, data)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(go()) < 1_000_000
