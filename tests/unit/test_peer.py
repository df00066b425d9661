"""Who is at the other end of a socket (DESIGN §4): credentials, namespaces, chains.

Real processes throughout; what needs a second uid is in tests/e2e/test_peer_attacks.py.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jackin_broker import peer, processes
from jackin_broker.capsules import Capsule, CapsuleRegistry
from jackin_broker.config import CapsuleConfig, CapsuleKind
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.processes import ProcessGone, lineage, opened
from support.namespaces import InNamespace, in_namespace
from support.real import END_GRACE_S, SYSTEM_PYTHON, require_root, wait_until

OWN = os.geteuid()


def _capsule(kind: CapsuleKind, *uids: int) -> tuple[CapsuleRegistry, Capsule]:
    registry = CapsuleRegistry()
    registry.configure({"web": CapsuleConfig("web", kind, uids or (OWN,))}, {})
    return registry, registry.open("web")


@pytest.fixture
def door(short_tmp: Path) -> Iterator[socket.socket]:
    """A listening socket, as broker.sock."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_tmp / "broker.sock"))
        listener.listen()
        listener.settimeout(END_GRACE_S)
        yield listener


@contextmanager
def _calls(door: socket.socket, *before: str) -> Generator[tuple[int, socket.socket]]:
    """A program that connects and waits, behind the argv `before`; its accepted socket."""
    program = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
    )
    argv = [*before, SYSTEM_PYTHON, "-I", "-S", "-c", program, door.getsockname()]
    with subprocess.Popen(argv) as process:
        accepted, _ = door.accept()
        with accepted:
            yield process.pid, accepted
        process.wait(END_GRACE_S)


@contextmanager
def _sleeping() -> Generator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any capsule, ended on the way out."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process
        finally:
            process.kill()


def _hide_namespaces(_process: processes.Process) -> None:
    """What a broker without privilege sees of another uid's namespace."""


def _say_dead(_pidfd: int) -> bool:
    return False


@pytest.mark.parametrize("pid", [0, -1])
def test_pid_0_is_refused_even_for_a_configured_uid(pid: int) -> None:
    with pytest.raises(Refusal, match="cannot see") as told:
        peer.check_credentials(pid, OWN, (OWN,))
    assert told.value.code is DenialCode.PEER_REFUSED


def test_the_overflow_uid_is_refused_even_where_it_is_configured() -> None:
    with pytest.raises(Refusal, match="overflow"):
        peer.check_credentials(1234, 65534, (65534, OWN))


@pytest.mark.parametrize("uid", [0, 999, 1001, 165535, 165537, 2**32 - 1])
def test_a_uid_is_compared_exactly(uid: int) -> None:
    peer.check_credentials(1234, 1000, (1000, 165536))
    peer.check_credentials(1234, 165536, (1000, 165536))
    with pytest.raises(Refusal, match=f"uid {uid} is not one"):
        peer.check_credentials(1234, uid, (1000, 165536))


def test_a_socketpair_names_its_maker() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert peer.peer_credentials(left) == (os.getpid(), OWN)


def test_without_a_boundary_the_uid_alone_decides(door: socket.socket) -> None:
    _, capsule = _capsule(CapsuleKind.NONE)
    with _calls(door) as (pid, sock):
        caller = peer.identify(sock, capsule)
        assert (caller.pid, caller.uid) == (pid, OWN)
        assert caller.chain[0].pid == pid
        assert caller.chain[1].pid == os.getpid()
        assert not peer.is_init(caller, capsule)
        caller.close()
    capsule.uids = frozenset({OWN + 1})
    with _calls(door) as (_, sock), pytest.raises(Refusal, match="not one that may speak"):
        peer.identify(sock, capsule)


def test_with_a_boundary_nobody_is_admitted_before_an_init_is_on_record(
    door: socket.socket,
) -> None:
    _, capsule = _capsule(CapsuleKind.BWRAP)
    with _calls(door) as (_, sock), pytest.raises(Refusal, match="no running init") as told:
        peer.identify(sock, capsule)
    assert "launch --name web" in told.value.hint


def test_a_process_of_our_uid_outside_the_capsule_is_refused(door: socket.socket) -> None:
    registry, capsule = _capsule(CapsuleKind.BWRAP)
    with in_namespace() as made:
        registry.record_init("web", made.pid, capsule.session_id)
        with _calls(door) as (_, sock), pytest.raises(Refusal, match="does not live in capsule"):
            peer.identify(sock, capsule)


def _enter(made: InNamespace) -> list[str]:
    """The argv that runs a program in the namespace of `made` and outside its line of descent."""
    require_root()
    return ["nsenter", f"--target={made.pid}", "--user", "--preserve-credentials", "--pid", "--"]


def test_init_is_that_process_and_another_of_its_namespace_is_an_agent(
    door: socket.socket,
) -> None:
    registry, capsule = _capsule(CapsuleKind.BWRAP)
    with in_namespace() as made:
        registry.record_init("web", made.pid, capsule.session_id)
        with _calls(door, *_enter(made)) as (_, sock):
            caller = peer.identify(sock, capsule)
            assert not peer.is_init(caller, capsule)
            caller.close()


def test_the_chain_admits_where_the_namespace_cannot_be_seen(
    door: socket.socket, monkeypatch: pytest.MonkeyPatch, short_tmp: Path
) -> None:
    registry, capsule = _capsule(CapsuleKind.BWRAP)
    monkeypatch.setattr(processes.Process, "pid_namespace", _hide_namespaces)
    with in_namespace(runs=_caller_script(door)) as made:
        registry.record_init("web", made.pid, capsule.session_id)
        made.go()
        accepted, _ = door.accept()
        with accepted:
            caller = peer.identify(accepted, capsule)
            assert [view.pid for view in caller.chain][-1] == made.pid
            caller.close()
            # Its namespace would admit this one; its chain does not.
            with _calls(door, *_enter(made)) as (_, sock), pytest.raises(Refusal, match="not live"):
                peer.identify(sock, capsule)


def _caller_script(door: socket.socket) -> str:
    program = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
    )
    return f"{SYSTEM_PYTHON} -I -S -c '{program}' {door.getsockname()}"


def test_the_end_of_init_ends_the_admission(door: socket.socket) -> None:
    registry, capsule = _capsule(CapsuleKind.BWRAP)
    with in_namespace() as made:
        record = registry.record_init("web", made.pid, capsule.session_id)
        made.end()
        wait_until(lambda: not record.is_alive(), "init has ended")
        with _calls(door) as (_, sock), pytest.raises(Refusal, match="no running init"):
            peer.identify(sock, capsule)


def test_a_caller_that_ended_is_refused(door: socket.socket) -> None:
    _, capsule = _capsule(CapsuleKind.NONE)
    program = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
    subprocess.run([SYSTEM_PYTHON, "-c", program, door.getsockname()], check=True)
    accepted, _ = door.accept()
    with accepted, pytest.raises(Refusal, match=r"ended|cannot be read"):
        peer.identify(accepted, capsule)


def test_connect_fork_and_exit_does_not_speak_for_the_child(door: socket.socket) -> None:
    _, capsule = _capsule(CapsuleKind.NONE)
    program = (
        "import os,socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "if os.fork(): os._exit(0)\n"
        "s.recv(1)"
    )
    subprocess.run([SYSTEM_PYTHON, "-c", program, door.getsockname()], check=True)
    accepted, _ = door.accept()
    with accepted, pytest.raises(Refusal, match=r"ended|cannot be read"):
        peer.identify(accepted, capsule)


def test_a_caller_that_ends_while_it_is_read_is_refused(
    door: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last slice of the sandwich: everything was read, then the pidfd is dead."""
    _, capsule = _capsule(CapsuleKind.NONE)
    with _calls(door) as (_, sock):
        monkeypatch.setattr(peer, "is_alive", _say_dead)
        with pytest.raises(Refusal, match="ended before it was identified"):
            peer.identify(sock, capsule)


def test_no_descriptor_is_left_behind_by_refusals_and_callers(door: socket.socket) -> None:
    _, none = _capsule(CapsuleKind.NONE)
    _, bwrap = _capsule(CapsuleKind.BWRAP)
    with _calls(door) as (_, sock):
        before = len(os.listdir("/proc/self/fd"))
        peer.identify(sock, none).close()
        with pytest.raises(Refusal):
            peer.identify(sock, bwrap)
        with pytest.raises(Refusal):
            peer.check_operator(sock, os.getpid())
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_operators_program_is_known_by_uid_namespace_and_descent(
    door: socket.socket,
) -> None:
    ours = os.getpid()
    with _calls(door) as (pid, sock):
        with _sleeping() as broker:
            assert peer.check_operator(sock, broker.pid) == pid
        with pytest.raises(Refusal, match="under the broker"):
            peer.check_operator(sock, ours)


def test_a_parent_that_ends_while_the_operators_program_is_read_is_no_refusal(
    door: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that starts one in the background and ends: the chain is read again."""
    broken = iter([True, False])

    def once_broken(pid: int) -> Iterator[processes.Status]:
        yield from itertools.islice(lineage(pid), 1)
        if next(broken):
            raise ProcessGone("its parent has ended")
        yield from itertools.islice(lineage(pid), 1, None)

    monkeypatch.setattr(peer, "lineage", once_broken)
    with _calls(door) as (pid, sock), _sleeping() as broker:
        assert peer.check_operator(sock, broker.pid) == pid


def test_the_operators_namespace_is_not_a_confined_commands(door: socket.socket) -> None:
    with (
        in_namespace() as made,
        _calls(door, *_enter(made)) as (_, sock),
        _sleeping() as broker,
        pytest.raises(Refusal, match="process namespace"),
    ):
        peer.check_operator(sock, broker.pid)


def test_a_lineage_goes_up_to_the_first_process() -> None:
    chain = list(lineage(os.getpid()))
    assert [chain[0].pid, chain[1].pid] == [os.getpid(), os.getppid()]
    assert chain[-1].parent == 0
    for child, parent in itertools.pairwise(chain):
        assert child.parent == parent.pid


@pytest.mark.parametrize("end", ["\\n", "\\x0b", "\\x1c"])
def test_a_name_cannot_forge_lines_of_the_status(end: str) -> None:
    """The kernel escapes a newline alone; other line ends stay a part of the name."""
    name = f"x{end}PPid: 1"
    program = (
        f"import ctypes,sys; ctypes.CDLL(None).prctl(15, b'{name}')\n"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with opened(process.pid) as read:
            assert read.status().parent == os.getpid()
            assert read.status().name.endswith("PPid: 1")
            assert read.start_time() > 0
        process.communicate()


def test_a_process_that_ended_is_never_read_as_its_successor() -> None:
    with _sleeping() as process, opened(process.pid) as read:
        assert read.status().parent == os.getpid()
        process.kill()
        process.wait()
        with pytest.raises(ProcessGone):
            read.status()
        assert read.pid_namespace() is None


def test_a_parent_that_ends_meanwhile_is_followed_to_the_next() -> None:
    """A chain that changes under the reader is read as it is then."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; read -r _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as shell:
        assert shell.stdout is not None
        orphan = int(shell.stdout.readline())
        steps = lineage(orphan)
        assert next(steps).parent == shell.pid
        assert shell.stdin is not None
        shell.stdin.close()
        shell.wait(END_GRACE_S)
        rest = list(steps)
        assert shell.pid not in [status.pid for status in rest]
        assert rest[-1].parent == 0
        os.kill(orphan, signal.SIGKILL)


def test_a_parent_that_ends_as_it_is_opened_is_not_taken_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between reading a parent's number and opening it the number may have changed hands."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; read -r _"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        orphan = int(shell.stdout.readline())

        class EndsWhenOpened(processes.Process):
            def __init__(self, pid: int) -> None:
                super().__init__(pid)
                if pid == shell.pid:
                    shell.kill()
                    shell.wait(END_GRACE_S)

        monkeypatch.setattr(processes, "Process", EndsWhenOpened)
        chain = list(lineage(orphan))
        assert shell.pid not in [status.pid for status in chain]
        os.kill(orphan, signal.SIGKILL)
