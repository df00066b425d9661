"""Process 1 of a capsule: statuses, signals, orphans, what the agent does not get (DESIGN §13).

As an ordinary process where that shows the same, and as process 1 of a bubblewrap capsule on a
real terminal for job control.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from jackin_broker.frames import FrameDecoder, MessageFrame
from jackin_broker.init_protocol import InitReady, Isolation, decode_from_init
from support.real import end_process, first_line, require_bwrap, wait_until
from support.scripted_broker import (
    CAPSULE_ROOM,
    WAIT_S,
    ScriptedBroker,
    ShimPrograms,
    finish,
    interpreters,
    scripted,
)
from support.terminal import Terminal, terminal

Scene = tuple[ScriptedBroker, ShimPrograms]
NAME = "jackin-capsule"


@pytest.fixture(params=interpreters(), ids=os.path.basename)
def shims(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[ShimPrograms]:
    with scripted(short_tmp, request.param) as (_, programs):
        yield programs


def run(shims: ShimPrograms, *args: str) -> tuple[int, str, str]:
    return shims.run("init", *args, name=NAME)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -PIPE $$", 141),  # Python ignores it, its agent must not
    ],
)
def test_it_exits_with_the_agents_status(shims: ShimPrograms, script: str, status: int) -> None:
    assert run(shims, "--", "sh", "-c", script) == (status, "", "")


def test_a_command_that_is_not_there_is_127(shims: ShimPrograms) -> None:
    status, out, err = run(shims, "--", "no-such-agent")
    assert (status, out) == (127, "")
    assert err.splitlines()[0].startswith("jackin-capsule: error: cannot start no-such-agent")
    assert err.splitlines()[1].startswith("jackin-capsule: hint: ")
    assert run(shims, "--", "/etc/passwd")[0] == 126


def test_wrong_calls_are_said(shims: ShimPrograms) -> None:
    for args in ([], ["--"], ["--bogus", "x"], ["--uid", "x", "y"], ["--run-as"], ["--uid=-1"]):
        status, _, err = run(shims, *args)
        assert status == 126
        assert len(err.splitlines()) == 2
    status, _, err = run(shims, "--uid", "7", "--run-as=7", "--", "true")
    assert status == 126
    assert "--run-as is the agent's own uid" in err


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT]
)
def test_signals_reach_the_agent_and_what_it_runs(shims: ShimPrograms, number: int) -> None:
    """Its whole process group, as from a terminal."""
    name = signal.Signals(number).name.removeprefix("SIG")
    inner = f'trap "echo inner; exit 1" {name}; echo ready; while :; do sleep 0.05; done'
    script = f"trap 'echo agent; exit 9' {name}; sh -c '{inner}'"
    process = shims.start("init", "--", "sh", "-c", script, name=NAME)
    assert first_line(process) == "ready"
    process.send_signal(number)
    status, out, _ = finish(process)  # a shell may note the end of its `sleep` on stderr
    assert (status, out) == (9, b"inner\nagent\n")


def test_orphans_are_collected(shims: ShimPrograms) -> None:
    """No zombie stays while the agent lives, though their parents have left."""
    script = 'for i in 1 2 3 4 5; do (sh -c "exit 3" &); done; echo ready; read go; exit 4'
    process = shims.start("init", "--", "sh", "-c", script, name=NAME, stdin=subprocess.PIPE)
    assert first_line(process) == "ready"

    def children() -> list[str]:
        path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        return path.read_text().split()

    wait_until(lambda: len(children()) == 1, "the agent is init's only child")
    assert finish_with(process, b"go\n") == 4


def finish_with(process: subprocess.Popen[bytes], words: bytes) -> int:
    process.communicate(words, timeout=WAIT_S)
    return process.returncode


def test_it_cannot_be_read_by_its_own_uid(shims: ShimPrograms) -> None:
    """PR_GET_DUMPABLE is 0 in init, and 1 again in what it has started."""
    script = (
        "import ctypes, sys\n"
        f"sys.path.insert(0, {str(CAPSULE_ROOM)!r})\n"
        "from jackin_capsule.init import harden\n"
        "harden()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
    )
    command = [interpreters()[0], "-I", "-S", "-c", script]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"0\n"
    asks = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    assert run(shims, "--", interpreters()[0], "-c", asks) == (0, "1\n", "")


@contextmanager
def listening(shims: ShimPrograms, folder: Path) -> Generator[socket.socket]:
    """The socket that init finds."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(WAIT_S)
        listener.bind(str(folder / "init.sock"))
        listener.listen()
        shims.env["JACKIN_BROKER_SOCKET"] = str(folder / "init.sock")
        yield listener


def ready_of(listener: socket.socket) -> tuple[socket.socket, InitReady]:
    """The next connection, and what init says on it."""
    peer, _ = listener.accept()
    peer.settimeout(WAIT_S)
    decoder = FrameDecoder(max_message_bytes=4096)
    while True:
        for frame in decoder.feed(peer.recv(4096)):
            assert isinstance(frame, MessageFrame)
            return peer, decode_from_init(frame.body)


def test_the_channel_stays_with_init(shims: ShimPrograms, short_tmp: Path) -> None:
    """The agent inherits 0, 1 and 2, nothing else; the channel lives as long as init."""
    bystander = os.open("/dev/null", os.O_RDONLY)  # what a launcher left open
    script = "ls /proc/$$/fd; echo all; read go; exit 0"
    with (
        listening(shims, short_tmp) as listener,
        subprocess.Popen(
            [shims.program(NAME), "init", "--", "sh", "-c", script],
            pass_fds=[bystander],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=shims.env,
        ) as process,
    ):
        os.close(bystander)
        peer, ready = ready_of(listener)
        assert ready.isolation is Isolation.NONE, "as an ordinary process it keeps nobody apart"
        assert process.stdout is not None
        shown = [process.stdout.readline().decode().strip() for _ in range(4)]
        assert shown == ["0", "1", "2", "all"]
        process.communicate(b"go\n", timeout=WAIT_S)
        assert peer.recv(1) == b""
        assert process.returncode == 0
        peer.close()


def test_a_channel_that_was_lost_is_made_again(shims: ShimPrograms, short_tmp: Path) -> None:
    with listening(shims, short_tmp) as listener:
        process = shims.start("init", "--", "cat", name=NAME, stdin=subprocess.PIPE)
        for _ in range(2):
            ready_of(listener)[0].close()
        ready_of(listener)[0].close()
        assert finish_with(process, b"") == 0


# --- process 1 on a real terminal ----------------------------------------------------------


def capsule(shims: ShimPrograms, *agent: str, more: Sequence[str] = ()) -> list[str]:
    """init as process 1 of a bubblewrap capsule, with this agent."""
    isolate = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--as-pid-1", *more]
    files = ["--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--die-with-parent"]
    program = shims.program(NAME)
    return [require_bwrap(), *isolate, *files, program, "init", "--", *agent]


def in_capsule(shims: ShimPrograms, *agent: str) -> Iterator[Terminal]:
    with terminal(capsule(shims, *agent), env=shims.env) as screen:
        yield screen


@pytest.fixture
def shell(short_tmp: Path) -> Iterator[Terminal]:
    """An interactive bash as the agent."""
    with scripted(short_tmp, interpreters()[0]) as (_, programs):
        programs.env["PS1"] = "at> "
        yield from in_capsule(programs, "bash", "--norc", "--noprofile", "-i")


def test_an_interactive_shell_has_job_control(shell: Terminal) -> None:
    """Ctrl-Z, fg, Ctrl-C, a background job, and the status at the end."""
    shell.wait_for(r"^at>$")
    assert "no job control" not in shell.text
    shell.type("echo pid=$PPID; sleep 600\r")
    shell.wait_for(r"^pid=1$")
    shell.wait_until(lambda: has_program(shell.pid, "sleep"), "sleep is in the foreground")
    shell.press("ctrl-z")
    shell.wait_for(r"Stopped +sleep 600")
    shell.type("fg\r")
    shell.wait_for(r"^sleep 600$")
    shell.wait_until(lambda: state_of(shell.pid, "sleep") == "S", "sleep goes on")
    shell.press("ctrl-c")
    shell.type("echo status=$?\r")
    shell.wait_for(r"^status=130$")
    shell.type("sleep 0.01 & wait; jobs -l; echo left\r")
    shell.wait_for(r"^left$")
    shell.type("exit 5\r")
    assert shell.wait_ended() == 5


def test_the_shell_sees_the_terminals_size(shell: Terminal) -> None:
    """And each resize once, from the kernel."""
    shell.wait_for(r"^at>$")
    shell.type("stty size\r")
    shell.wait_for(r"^24 80$")
    shell.type("trap 'echo resized' WINCH\r")
    shell.resize(30, 100)
    shell.type("stty size\r")
    shell.wait_for(r"^30 100$")


def test_a_terminal_that_is_nobodys_becomes_the_capsules(short_tmp: Path) -> None:
    """In a session of its own (bwrap --new-session), with stdin a terminal: init takes it."""
    script = 'trap "echo caught; exit 6" INT; echo ready >/dev/tty; while :; do sleep 0.05; done'
    leader, follower = pty.openpty()
    with scripted(short_tmp, interpreters()[0]) as (_, programs):
        process = subprocess.Popen(
            capsule(programs, "sh", "-c", script, more=["--new-session"]),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            env=programs.env,
        )
        os.close(follower)
        try:
            read_until(leader, "ready")
            os.write(leader, b"\x03")
            read_until(leader, "caught")
            assert process.wait(WAIT_S) == 6
        finally:
            end_process(process)
            os.close(leader)


def read_until(leader: int, words: str) -> None:
    """Read what a terminal shows, until it shows these words."""
    shown = ""
    while words not in shown:
        ready, _, _ = select.select([leader], [], [], WAIT_S)
        assert ready, f"not shown: {words!r}; shown: {shown!r}"
        shown += os.read(leader, 4096).decode()


def below(pid: int) -> Iterator[Path]:
    """The /proc directories of a process and all below it."""
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        yield Path(f"/proc/{current}")
        children = Path(f"/proc/{current}/task/{current}/children").read_text()
        waiting += [int(child) for child in children.split()]


def has_program(pid: int, name: str) -> bool:
    return state_of(pid, name) != ""


def state_of(pid: int, name: str) -> str:
    """proc(5)'s letter for the program of this name below `pid`; empty where there is none."""
    for path in below(pid):
        if (path / "comm").read_text().strip() == name:
            return (path / "stat").read_text().rpartition(")")[2].split()[0]
    return ""


def test_ctrl_c_ends_an_agent_that_is_no_shell_and_only_it(short_tmp: Path) -> None:
    """bubblewrap would die of it and lose the status; the agent's group alone is in front."""
    script = 'trap "echo caught; exit 21" INT; echo ready; while :; do sleep 0.05; done'
    with scripted(short_tmp, interpreters()[0]) as (_, programs):
        for screen in in_capsule(programs, "sh", "-c", script):
            screen.wait_for("^ready")
            screen.press("ctrl-c")
            screen.wait_for("caught")
            assert screen.wait_ended() == 21


def test_ctrl_z_in_an_agent_that_is_no_shell_does_not_freeze_the_capsule(short_tmp: Path) -> None:
    """There is no shell to come back to: it goes on, with the terminal."""
    script = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'resumed'))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    with scripted(short_tmp, interpreters()[0]) as (_, programs):
        for screen in in_capsule(programs, interpreters()[0], "-c", script):
            screen.wait_for("^ready")
            screen.press("ctrl-z")
            screen.wait_for("resumed")
            screen.press("ctrl-c")
            assert screen.wait_ended() == 130


def test_without_a_terminal_it_works_as_process_1(short_tmp: Path) -> None:
    """A capsule in a service; TERM from outside reaches the agent."""
    script = 'trap "exit 33" TERM; echo "pid=$PPID"; while :; do sleep 0.05; done'
    with scripted(short_tmp, interpreters()[0]) as (_, programs):
        command = ["setsid", "-w", *capsule(programs, "sh", "-c", script)]  # without a terminal
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=programs.env
        ) as process:
            assert first_line(process) == "pid=1"
            os.kill(init_under(process.pid), signal.SIGTERM)
            assert process.wait(WAIT_S) == 33


def init_under(pid: int) -> int:
    """The host's number of the process that is 1 in its own namespace, below `pid`."""
    for path in below(pid):
        status = (path / "status").read_text()
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
        if numbers[-1] == "1" and len(numbers) > 2:
            return int(path.name)
    raise AssertionError("no process 1 of a namespace")
