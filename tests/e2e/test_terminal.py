"""A command on a terminal through the installed programs: its size, keys, stops, redaction, end.

CASES 3a and 3b. Each case runs unconfined and confined, called as a person in a capsule of kind
none would call it: from a terminal.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import AbstractContextManager

import pytest

from jackin_broker.protocol import FORWARDED_SIGNALS
from support.allowed import Allowed, allowed
from support.broker import PROGRAMS
from support.real import require_bwrap, wait_until
from support.terminal import Terminal, terminal

# DESIGN §9 and CASES 3b: so long after its caller's or its broker's death nothing is left.
GONE_WITHIN_S = 2.0
MARKER = "[redacted:TOKEN]"
SHIM = str(PROGRAMS / "jackin-exec")
PROGRAMS_ALLOWED = ("sh", "bash", "cat", "sleep", "python3")


@pytest.fixture(scope="module", params=["unconfined", "confined"])
def made(request: pytest.FixtureRequest) -> Generator[Allowed]:
    is_confined = request.param == "confined"
    if is_confined:
        require_bwrap()
    with allowed(*PROGRAMS_ALLOWED, asked=["tty"], is_confined=is_confined) as running:
        yield running


def calling(
    made: Allowed, *argv: str, rows: int = 24, cols: int = 80
) -> AbstractContextManager[Terminal]:
    """`jackin-exec ARGV` on a terminal."""
    return terminal([SHIM, *argv], env=made.agent.env, cwd=str(made.work), rows=rows, cols=cols)


def caller_shell(made: Allowed) -> AbstractContextManager[Terminal]:
    """An interactive shell on a terminal, from which `jackin-exec` is called."""
    return terminal(["/bin/bash", "--norc", "-i"], env=made.agent.env, cwd=str(made.work))


def is_given_back(caller: Terminal) -> bool:
    return not caller.is_raw


PROMPT = r"bash-[^\n]*[$#] *$"


def test_the_command_sees_a_terminal_and_its_output_is_still_redacted(made: Allowed) -> None:
    """shell-plugins#413: masking took the terminal away, so people turned masking off."""
    code = "import os, sys; print(sys.stdout.isatty(), os.environ['TOKEN'])"
    with calling(made, "python3", "-c", code) as caller:
        assert caller.wait_ended() == 0
        assert caller.text.rstrip() == f"True {MARKER}"


def test_it_has_a_name_and_the_callers_size_and_follows_it(made: Allowed) -> None:
    """distrobox#321, pexpect#134, #413."""
    script = "tty; stty size; trap 'stty size; exit 4' WINCH; while :; do sleep 0.05; done"
    with calling(made, "sh", "-c", script, rows=50, cols=132) as caller:
        caller.wait_for("^/dev/pts/[0-9]+$")
        caller.wait_for("^50 132$")
        caller.resize(20, 90)
        caller.wait_for("^20 90$")
        assert caller.wait_ended() == 4


@pytest.mark.parametrize(
    ("key", "status"), [("ctrl-c", 128 + signal.SIGINT), ("ctrl-backslash", 128 + signal.SIGQUIT)]
)
def test_a_key_ends_the_command_and_its_status_is_the_callers(
    made: Allowed, key: str, status: int
) -> None:
    with calling(made, "sh", "-c", "echo ready; exec sleep 600") as caller:
        before = caller.modes
        caller.wait_for("^ready$")
        caller.press(key)
        assert caller.wait_ended() == status
        assert caller.modes == before
        assert "jackin-exec" not in caller.text


def test_a_shell_of_the_commands_has_job_control(made: Allowed) -> None:
    with calling(made, "bash", "--norc", "-i") as caller:
        caller.wait_for(PROMPT)
        assert "job control" not in caller.text
        caller.type("sleep 600\r")
        caller.wait_for(r"sleep 600\s*$")
        caller.wait_until(lambda: b"\x1b[?2004l" in caller.written, "the shell left its line")
        caller.press("ctrl-z")
        caller.wait_for(r"\[1\]\+ +Stopped +sleep 600")
        caller.type("kill %1; exit 9\r")
        caller.type("exit 9\r")  # a shell with jobs wants it twice
        assert caller.wait_ended() == 9


def test_ctrl_z_stops_the_call_too_and_fg_goes_on_with_both(made: Allowed) -> None:
    script = 'echo pid $$; while read x; do echo "got $x"; done; exit 6'
    with caller_shell(made) as caller:
        caller.wait_for(PROMPT)
        caller.type(f"jackin-exec sh -c '{script}'\r")
        caller.wait_for("^pid [0-9]+$")
        for word in ("one", "two"):
            caller.type(f"{word}\r")
            caller.wait_for(f"^got {word}$")
            caller.press("ctrl-z")
            caller.wait_for(r"\^Z\s+\[1\]\+ +Stopped[^\n]*\n(.*\n)*" + PROMPT)
            caller.type("clear; fg\r")
            caller.wait_until(lambda: caller.is_raw, "the call is in the foreground")
        caller.press("ctrl-d")
        caller.wait_until(lambda: not caller.is_raw, "the shell has its terminal")
        caller.wait_for(PROMPT)
        caller.type("echo st=$?\r")
        caller.wait_for("^st=6$")


def test_what_is_typed_appears_at_once_but_a_value_never_does(made: Allowed) -> None:
    """Each byte is its own write and its own echo; nothing of the value is left to read."""
    with calling(made, "cat") as caller:
        caller.wait_until(lambda: caller.is_raw, "the command runs")
        caller.type("hello\r")
        caller.wait_for("^hello\nhello$")
        for letter in made.token:
            caller.type(letter)
        caller.wait_for(r"^\[redacted:TOKEN\]$")
        caller.type("\r")
        caller.wait_for(r"^\[redacted:TOKEN\]\n\[redacted:TOKEN\]$")
        caller.press("ctrl-d")
        assert caller.wait_ended() == 0
        assert made.token.encode() not in caller.written
        assert made.token[-8:].encode() not in caller.written


# Without a terminal the shim stops itself at SIGTSTP: test_shim_signals.py.
SIGNALS = [
    (option, number)
    for option in ("-t", "-T")
    for number in sorted(FORWARDED_SIGNALS)
    if (option, number) != ("-T", signal.SIGTSTP)
]


@pytest.mark.parametrize(
    ("option", "number"), SIGNALS, ids=lambda part: getattr(part, "name", part)
)
def test_a_signal_to_the_call_reaches_the_command_once(
    made: Allowed, option: str, number: signal.Signals
) -> None:
    """aws-vault#453; the caller's own end of a call is a process like any other."""
    code = (
        "import os, signal, sys\n"
        f"signal.signal({int(number)}, lambda n, f: os.write(1, b'[caught]'))\n"
        "os.write(1, b'ready')\n"
        "sys.stdin.readline(); sys.exit(3)\n"
    )
    with calling(made, option, "python3", "-c", code) as caller:
        caller.wait_for("ready")
        os.kill(caller.pid, number)
        caller.wait_for(r"\[caught\]")
        caller.type("\r")
        assert caller.wait_ended() == 3
        assert caller.written.count(b"[caught]") == 1


def test_a_command_that_dies_of_a_signal_tells_it(made: Allowed) -> None:
    """varlock#812."""
    with calling(made, "sh", "-c", "kill -TERM $$") as caller:
        assert caller.wait_ended() == 143


# A shell that ignores TERM, a child in a session of its own that ignores everything else.
ALONE = 'trap "" TERM HUP; echo alone $$; while :; do sleep 1; done'
STUBBORN = f"trap '' HUP INT; setsid sh -c '{ALONE}' & echo family $$; wait"


def left_of(marker: str) -> list[str]:
    """The processes that have this word in their environment: the command's family."""
    found: list[str] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if marker.encode() in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


def test_with_the_call_goes_all_that_it_started(made: Allowed) -> None:
    """sops#880: killed outright, it can say nothing any more."""
    with calling(made, "sh", "-c", STUBBORN) as caller:
        caller.wait_for("^alone [0-9]+$")
        caller.wait_for("^family [0-9]+$")
        assert len(left_of(made.token)) >= 2
        began = time.monotonic()
        os.kill(caller.pid, signal.SIGKILL)
        wait_until(lambda: not left_of(made.token), "the family is gone")
        assert time.monotonic() - began < GONE_WITHIN_S
    wait_until(lambda: made.line("ended")["ended_by"] == "caller_gone", "the end is told")


def test_a_refused_request_leaves_the_terminal_as_it_was(made: Allowed) -> None:
    with calling(made, "tty") as caller:
        before = caller.modes
        request = made.broker.wait_for_request()
        assert request["tty"]
        assert not caller.is_raw
        made.broker.deny(request["id"])
        assert caller.wait_ended() == 126
        assert caller.modes == before


def test_a_waiting_request_is_withdrawn_with_ctrl_c(made: Allowed) -> None:
    with calling(made, "tty") as caller:
        made.broker.wait_for_request()
        caller.press("ctrl-c")
        assert caller.wait_ended() == 130
        wait_until(lambda: made.broker.requests() == [], "the request is off the desk")


def test_asked_for_without_any_terminal_it_fails(made: Allowed) -> None:
    """openclaw#73646: "needs a TTY", and exit status 0."""
    done = made.agent.run("true", options=["-t"])
    assert done.returncode == 126
    assert b"-t asks for a terminal" in done.stderr
    assert done.stdout == b""


def test_without_a_terminal_the_streams_stay_apart(made: Allowed) -> None:
    """oh-my-bash#413."""
    done = made.agent.run("sh", "-c", "test -t 0 || echo o; echo e >&2")
    assert (done.stdout, done.stderr) == (b"o\n", b"e\n")


def test_a_pipe_is_typed_into_the_terminal_and_then_ended(made: Allowed) -> None:
    """As `ssh -tt`: what reads the terminal gets the pipe's bytes, and an end."""
    script = f"printf 'one\\ntwo' | {SHIM} -t sh -c 'test -t 0 && cat && echo over'"
    with terminal(["/bin/sh", "-c", script], env=made.agent.env, cwd=str(made.work)) as caller:
        assert caller.wait_ended() == 0
        assert caller.text.rstrip().endswith("over")
        assert caller.text.count("one") == 2  # its echo, and what cat made of it


def test_what_is_written_before_an_exit_arrives_a_hundred_times(made: Allowed) -> None:
    """pexpect#120, #577: `interact` dropped the last output when the child exited."""
    letters = "".join(chr(ord("a") + number) * 1000 + "\n" for number in range(26))
    (made.work / "letters").write_text(letters)
    expected = letters.replace("\n", "\r\n").encode()
    loop = f"for i in $(seq 50); do {SHIM} -t cat letters </dev/tty >out.$i; echo $? >>codes; done"
    with terminal(["/bin/sh", "-c", loop], env=made.agent.env, cwd=str(made.work)) as caller:
        assert caller.wait_ended(limit_s=60) == 0
    outputs = [(made.work / f"out.{number}").read_bytes() for number in range(1, 51)]
    assert all(output == expected for output in outputs)
    assert set((made.work / "codes").read_text().split()) == {"0"}
    for path in [*made.work.glob("out.*"), made.work / "codes"]:
        path.unlink()


def test_what_the_command_pushes_into_its_terminal_stays_there(made: Allowed) -> None:
    """TIOCSTI: its terminal is its own; the caller's shell is never typed into."""
    code = (
        "import fcntl, os, termios\n"
        "for path in ('/dev/tty', os.ttyname(0)):\n"
        "    try:\n"
        "        fd = os.open(path, os.O_RDWR | os.O_NOCTTY)\n"
        "        for byte in b'echo pushed\\n': fcntl.ioctl(fd, termios.TIOCSTI, bytes((byte,)))\n"
        "    except OSError: pass\n"
        "print('done')\n"
    )
    (made.work / "push.py").write_text(code)
    with caller_shell(made) as caller:
        caller.wait_for(PROMPT)
        caller.type("clear; jackin-exec python3 push.py\r")
        caller.wait_for(r"^done\n(.*\n)*" + PROMPT)
        caller.type("echo en$((1))d\r")
        caller.wait_for("^en1d$")
        assert "\npushed" not in caller.text


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("is_confined", [False, True], ids=["unconfined", "confined"])
def test_when_the_broker_goes_the_terminal_is_given_back_and_the_tree_ends(
    how: str, is_confined: bool
) -> None:
    if is_confined:
        require_bwrap()
    with (
        allowed("sh", is_confined=is_confined) as made,
        calling(made, "sh", "-c", STUBBORN) as caller,
    ):
        caller.wait_for("^alone [0-9]+$")
        assert caller.is_raw
        began = time.monotonic()
        if how == "killed":
            made.broker.kill()
            wait_until(lambda: not left_of(made.token), "the family is gone")
            assert time.monotonic() - began < GONE_WITHIN_S
        else:
            os.kill(made.broker.pid, signal.SIGTERM)
        status = caller.wait_ended()
        assert is_given_back(caller)
        assert status == 124
        assert "jackin-exec: hint:" in caller.text
        wait_until(lambda: not left_of(made.token), "the family is gone")
