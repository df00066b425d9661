"""An agent of another uid in a real capsule, and what others try against its doorway.

Needs root, to act as a second uid, and bubblewrap. The doorway is the product's own; each attack
is a real process, and each is refused for the reason that its name says.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackin_broker import peer
from jackin_broker.capsules import Capsule, CapsuleRegistry
from jackin_broker.config import CapsuleConfig, CapsuleKind
from jackin_broker.doorways import close_doorway, open_doorway
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.paths import Paths, resolve
from support.namespaces import InNamespace, depths_of, in_namespace
from support.real import END_GRACE_S, SYSTEM_PYTHON, require_program, require_root, wait_until
from support.second_uid import AGENT_UID, OTHER_UID, as_uid, holds_as

_CONNECT = "import os,socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "


@dataclass
class Door:
    """One capsule and its doorway."""

    capsule: Capsule
    registry: CapsuleRegistry
    listener: socket.socket
    path: Path

    def record(self, made: InNamespace) -> None:
        self.registry.record_init(self.capsule.name, made.pid, self.capsule.session_id)

    def accept(self) -> socket.socket:
        accepted, _ = self.listener.accept()
        return accepted

    def connects(self, then: str = "s.recv(1)") -> str:
        """A shell command that connects here and then runs Python code."""
        return f"{SYSTEM_PYTHON} -I -S -c '{_CONNECT}{then}' {self.path}"


@contextmanager
def _door(name: str, places: Paths, uid: int = AGENT_UID) -> Generator[Door]:
    registry = CapsuleRegistry()
    registry.configure({name: CapsuleConfig(name, CapsuleKind.BWRAP, (uid,))}, {})
    capsule = registry.open(name)
    listener = open_doorway(name, capsule.uids, places)
    listener.settimeout(END_GRACE_S)
    try:
        yield Door(capsule, registry, listener, places.capsule_socket(name))
    finally:
        close_doorway(listener, places.capsule_socket(name))


@pytest.fixture
def places(open_tmp: Path) -> Paths:
    """Directories that another uid can pass through."""
    return resolve({"HOME": str(open_tmp), "XDG_RUNTIME_DIR": str(open_tmp)})


@pytest.fixture
def door(places: Paths) -> Iterator[Door]:
    """The doorway of a capsule that lives as the agent's uid."""
    require_root()
    with _door("web", places) as made:
        yield made


@contextmanager
def _capsule(door: Door, runs: str) -> Generator[InNamespace]:
    """A capsule as the agent's uid, its init on record, in which `runs` has started."""
    with in_namespace(runs=runs, prefix=as_uid([])) as made:
        door.record(made)
        made.go()
        yield made


@contextmanager
def _outside(*argv: str) -> Generator[subprocess.Popen[bytes]]:
    """A program of the agent's uid that is not in the capsule."""
    with subprocess.Popen(as_uid(argv)) as process:
        try:
            yield process
        finally:
            process.kill()


def _refused(sock: socket.socket, door: Door, match: str) -> None:
    with sock, pytest.raises(Refusal, match=match) as told:
        peer.identify(sock, door.capsule)
    assert told.value.code is DenialCode.PEER_REFUSED


def _admitted(sock: socket.socket, door: Door) -> peer.Caller:
    with sock:
        return peer.identify(sock, door.capsule)


def test_the_agent_reaches_its_doorway_through_a_read_only_mount(door: Door) -> None:
    with _capsule(door, door.connects()) as made:
        caller = _admitted(door.accept(), door)
        assert caller.uid == AGENT_UID
        assert caller.chain[-1].pid == made.pid
        assert not peer.is_init(caller, door.capsule)
        caller.close()


def test_the_agent_cannot_replace_its_doorway(door: Door) -> None:
    attack = f"rm -f {door.path}; mv {door.path} {door.path}.x; " + door.connects()
    with _capsule(door, attack):
        _admitted(door.accept(), door).close()
    assert door.path.is_socket()


def test_init_itself_is_init(door: Door) -> None:
    with _capsule(door, "exec " + door.connects()) as made:
        caller = _admitted(door.accept(), door)
        assert caller.pid == made.pid
        assert peer.is_init(caller, door.capsule)
        caller.close()


def test_a_process_of_the_agents_uid_outside_the_capsule_is_refused(door: Door) -> None:
    with _capsule(door, "sleep 60"), _outside("sh", "-c", door.connects()):
        _refused(door.accept(), door, "does not live in capsule web")


def test_another_uid_can_connect_and_is_refused(door: Door) -> None:
    other = as_uid(["sh", "-c", door.connects()], OTHER_UID)
    with _capsule(door, "sleep 60"), subprocess.Popen(other):
        _refused(door.accept(), door, f"uid {OTHER_UID} is not one")


def test_connecting_and_then_becoming_a_genuine_program_is_refused(door: Door) -> None:
    become = (
        'os.set_inheritable(s.fileno(), True); os.execv("/usr/bin/sleep", ["jackin-exec", "60"])'
    )
    with _capsule(door, "sleep 60"), _outside("sh", "-c", door.connects(become)) as process:
        sock = door.accept()
        wait_until(lambda: _exe(process.pid) == "sleep", "it has become the genuine program")
        _refused(sock, door, "does not live in capsule web")


def _exe(pid: int) -> str:
    """The program that a process or its only child runs."""
    for child in (Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or [str(pid)])[:1]:
        return Path(f"/proc/{child}/exe").resolve().name
    return ""


def test_connect_fork_and_exit_in_the_capsule_is_refused(door: Door) -> None:
    """The kernel still names the dead parent; its child is in the capsule and holds the socket."""
    fork = 'os.fork() and (open("/proc/self/comm"), os._exit(0)); s.recv(1)'
    with _capsule(door, door.connects(fork) + "; sleep 60"):
        sock = door.accept()
        pid, _ = peer.peer_credentials(sock)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the parent has ended")
        _refused(sock, door, r"ended|cannot be read")


def test_a_nested_namespace_is_the_agent_and_never_init(door: Door) -> None:
    """It shows an innermost pid 1 as init does; init's is at exactly one depth."""
    require_program("unshare", package="util-linux")
    with _capsule(door, "unshare -Urpf " + door.connects()):
        sock = door.accept()
        pid, uid = peer.peer_credentials(sock)
        assert depths_of(pid)[-1] == 1
        assert len(depths_of(pid)) == 3
        assert uid == AGENT_UID
        caller = _admitted(sock, door)
        assert not peer.is_init(caller, door.capsule)
        with pytest.raises(Refusal):
            door.registry.record_init("web", pid, door.capsule.session_id)
        caller.close()


def test_the_init_of_another_capsule_is_refused(door: Door, places: Paths) -> None:
    with (
        _door("other", places) as other,
        _capsule(door, "sleep 60"),
        _capsule(other, "exec " + door.connects()) as theirs,
    ):
        sock = door.accept()
        assert peer.peer_credentials(sock)[0] == theirs.pid
        _refused(sock, door, "does not live in capsule web")


def test_a_capsule_of_our_own_uid_is_told_from_ourselves(places: Paths) -> None:
    """Rootless capsules have the operator's uid: only namespace and chain tell them apart."""
    with (
        _door("own", places, uid=os.geteuid()) as door,
        in_namespace(runs=door.connects()) as made,
        socket.socket(socket.AF_UNIX) as ours,
    ):
        door.record(made)
        made.go()
        _admitted(door.accept(), door).close()
        ours.connect(str(door.path))
        _refused(door.accept(), door, "does not live in capsule own")


def test_a_broker_without_privilege_admits_by_the_chain_alone(door: Door) -> None:
    """Of another uid it cannot read `ns/pid`: what it can read has to suffice, or refuse."""

    def admits(sock: socket.socket) -> bool:
        init = door.capsule.init
        assert init is not None
        init._namespace = None  # pyright: ignore[reportPrivateUsage] - what root has seen already, such a broker would not know
        assert init.namespace() is None
        try:
            peer.identify(sock, door.capsule)
        except Refusal:
            return False
        return True

    with _capsule(door, door.connects()), door.accept() as inside:
        assert holds_as(OTHER_UID, lambda: admits(inside))
        with _outside("sh", "-c", door.connects()), door.accept() as outside:
            assert not holds_as(OTHER_UID, lambda: admits(outside))
