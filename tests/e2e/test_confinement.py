"""DESIGN §9: a host command in a project that the agent writes cannot become the operator.

Each attack ran for real when the design was tried; each must find nothing here.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jackin_broker.config.model import BinaryConfig
from jackin_broker.runner.landlock import can_scope
from support import real
from support.commands import shell
from support.machine import CONNECT, Machine, Neighbour, furnish

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def bubblewrap() -> str:
    return real.require_bwrap()


@pytest.fixture
def machine(private_home: Path) -> Machine:
    return furnish(private_home)


@pytest.fixture
def listener(machine: Machine) -> Iterator[socket.socket]:
    """A socket like operator.sock, in the runtime directory."""
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(machine.home / "run" / "operator.sock"))
        made.listen()
        yield made


def test_no_environment_memory_or_descriptor_of_another_process_is_seen(machine: Machine) -> None:
    """Each hook that was tried read other commands' /proc/…/environ."""
    code = """
        import os
        seen = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
        print(seen[0], len(seen), os.getpid(), os.getppid())
        for name in ("environ", "mem", "maps", "fd"):
            try:
                path = f"/proc/1/{name}"
                data = os.listdir(path) if name == "fd" else open(path, "rb").read(4096)
                print(name, [os.readlink(f"{path}/{fd}") for fd in data] if name == "fd" else data)
            except OSError as error:
                print(name, error.errno)
    """
    with Neighbour(machine.secret):
        out = machine.python(code)
    first, count, pid, parent = (int(word) for word in out.splitlines()[0].split())
    assert (first, parent, count) == (1, 1, 2)
    assert pid < 10
    assert "environ b'PWD=/\\x00'" in out  # bubblewrap's own doing, and all there is
    assert machine.secret not in out


def test_operator_sock_is_not_reached(machine: Machine, listener: socket.socket) -> None:
    """The doorway of the one who approves: a hook once typed the approval itself."""
    place = str(machine.home / "run" / "operator.sock")
    assert machine.python(CONNECT, None, "path", place).startswith("refused")
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.parametrize(
    ("variable", "template"),
    [
        ("SSH_AUTH_SOCK", "{}"),
        ("TMUX", "{},1234,0"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path={},guid=0123"),
        ("DOCKER_HOST", "unix://{}"),
    ],
)
def test_the_sessions_sockets_are_not_reached_wherever_they_are(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, variable: str, template: str
) -> None:
    """Even inside a directory that is shown: agent, multiplexer, bus and engine act as you."""
    place = machine.project / "s.sock"
    monkeypatch.setenv(variable, template.format(place))
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(place))
        made.listen()
        assert machine.python(CONNECT, None, "path", str(place)).startswith("refused")
        monkeypatch.delenv(variable)
        assert machine.python(CONNECT, None, "path", str(place)) == "reached\n"


def test_abstract_sockets_are_not_reached(machine: Machine) -> None:
    """They have no file to hide: Landlock's scope does it."""
    if not can_scope():
        real.missing("Landlock ABI 6 (Linux 6.12) is absent")
    name = "jackin-" + secrets.token_hex(8)
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind("\0" + name)
        made.listen()
        assert machine.python(CONNECT, None, "abstract", name).startswith("refused")


def test_network_false_reaches_no_network(machine: Machine) -> None:
    """`network = false` is another network namespace; by default the network is there."""
    with closing(socket.create_server(("127.0.0.1", 0))) as made:
        port = str(made.getsockname()[1])
        assert machine.python(CONNECT, None, "tcp", port) == "reached\n"
        offline = BinaryConfig(network=False)
        assert machine.python(CONNECT, offline, "tcp", port).startswith("refused")


def test_the_mounts_cannot_be_taken_apart(machine: Machine) -> None:
    """As root without a user namespace of its own, a command unmounted the empty home."""
    for words in (
        ["umount", str(machine.home)],
        ["umount", "-l", "/tmp"],
        ["unshare", "-Urm", "umount", str(machine.home)],
        ["unshare", "-Urm", "umount", "-l", "/tmp"],
        ["mount", "-o", "remount,rw,bind", "/"],
        ["unshare", "-Urm", "mount", "-o", "remount,rw,bind", "/usr"],
    ):
        program = real.require_program(words[0], package="util-linux")
        sink = machine.run([program, *words[1:]])
        assert sink.exit_code != 0, (words, sink.out, sink.err)


def test_the_command_has_no_capability_and_gets_none(machine: Machine) -> None:
    """Also when the broker runs as root; and no set-uid program gives any."""
    out = machine.python(
        """
        fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
        print([fields[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs")])
        """
    )
    assert out == "['0000000000000000', '0000000000000000', '0000000000000000', '1']\n"


def test_the_leader_cannot_be_killed_from_inside(machine: Machine) -> None:
    """`kill -9 -1` ends the command's own processes, and the status is still told."""
    sink = machine.run(shell("kill -INT 1; kill -TERM 1; kill -KILL 1; kill -STOP 1; exit 7"))
    assert sink.exit_code == 7
    assert machine.run(shell("sleep 60 & kill -KILL -1; exit 6")).exit_code == 6


def test_no_foreign_descriptor_comes_along(machine: Machine) -> None:
    """Inherited descriptors leak into bubblewrap: standard streams, and nothing else."""
    sink = machine.run(["/bin/ls", "-l", "/proc/self/fd"])
    entries = [line.split() for line in sink.out.decode().splitlines()[1:]]
    assert [entry[8] for entry in entries] == ["0", "1", "2", "3"]
    assert entries[3][10].startswith("/proc/")
