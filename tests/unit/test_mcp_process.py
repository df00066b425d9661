"""What an MCP server's process can see and do: nothing of anybody's (DESIGN §12)."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jackin_broker import protocol
from jackin_broker.connection import CapsuleConnection
from jackin_broker.errors import Refusal
from jackin_broker.intake import Intake
from jackin_broker.mcp_hosting.confined import confined, server_command
from jackin_broker.mcp_hosting.messages import Facts
from jackin_broker.mcp_hosting.process import ServerProcess
from jackin_broker.peer import Caller
from jackin_broker.runner import probe
from jackin_broker.runner.descriptors import write_all
from support.real import START_LIMIT_S, require_bwrap, short_directory, wait_until

LOOK = """
    import json, os, socket, sys
    found = {"environ": dict(os.environ), "pid": os.getpid(), "files": [], "fds": []}
    needle = sys.argv[1].encode()
    for place in sys.argv[2:]:
        for folder, _, names in os.walk(place):
            for name in names:
                try:
                    with open(os.path.join(folder, name), "rb") as file:
                        if needle in file.read(1 << 20):
                            found["files"].append(name)
                except OSError:
                    pass
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 1), 1)
    except OSError as error:
        found["network"] = error.errno
    try:
        open("/usr/new", "w")
    except OSError as error:
        found["write"] = error.errno
    found["root"] = sorted(os.listdir("/"))
    print(json.dumps(found))
"""


def look(*words: str) -> dict[str, Any]:
    """What a program in the server's place finds."""
    python = os.path.realpath(sys.executable)
    argv = [*confined((python, "-I", "-S", "-c"), ()), textwrap.dedent(LOOK), *words]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=START_LIMIT_S)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_sees_no_file_no_network_and_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    require_bwrap()
    secret = "tok" + secrets.token_hex(12)
    monkeypatch.setenv("SECRET", secret)
    with short_directory() as home:
        (home / "note").write_text(secret)
        found = look(secret, str(home))
    assert found["files"] == []
    assert secret not in found["environ"].values()
    assert set(found["environ"]) <= {"PWD", "LC_CTYPE"}
    assert found["network"], "there is no network"
    assert found["write"], "nothing can be written"
    assert not {"home", "root", "run", "proc", "srv", "var"} & set(found["root"])


WRITE = """
    import os
    for folder, _, _ in os.walk("/"):
        try:
            os.close(os.open(os.path.join(folder, "new"), os.O_CREAT | os.O_WRONLY))
            print(folder)
        except OSError:
            pass
    print("looked")
"""


def test_there_is_no_place_where_it_could_fill_the_machines_memory() -> None:
    """A tmpfs takes half of it, and what lies there counts for no limit of the process."""
    require_bwrap()
    python = os.path.realpath(sys.executable)
    argv = [*confined((python, "-I", "-S", "-c"), ()), textwrap.dedent(WRITE)]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=START_LIMIT_S)
    assert (done.stdout, done.returncode) == ("looked\n", 0)


def test_it_is_refused_where_it_cannot_be_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = probe.Abilities("", "bubblewrap is not installed", hides_abstract_sockets=False)
    monkeypatch.setattr("jackin_broker.mcp_hosting.confined.abilities", lambda: nothing)
    with pytest.raises(Refusal) as refused:
        server_command(3)
    assert "must run confined, and bubblewrap is not installed" in str(refused.value)


def serve(
    lines: bytes, *, answers: int = 1, program: list[str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A server process, given facts and these lines; ended once it has answered so often."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.send(protocol.encode(Facts("web", "/work", (), ("true",), pending_s=1)))
        argv = program or server_command(theirs.fileno())
        process = subprocess.Popen(
            [word.replace("{fd}", str(theirs.fileno())) for word in argv],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
            bufsize=0,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # it ended in the middle of a line
                write_all(process.stdin.fileno(), lines)
            said = b"".join(process.stdout.readline() for _ in range(answers))
            out, err = process.communicate(timeout=START_LIMIT_S)
    return subprocess.CompletedProcess(argv, process.returncode, said + out, err)


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


def test_it_answers_and_ends_with_its_input() -> None:
    require_bwrap()
    done = serve(PING)
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (done.returncode, done.stderr) == (0, b"")


def test_stray_prints_never_reach_the_wire() -> None:
    """Whatever prints, in Python or below it: the agent's client reads messages alone."""
    noisy = """
        import os, subprocess, sys
        from jackin_mcp import main, tools
        real = tools.tools_for
        def chatty(facts):
            print("a stray print")
            os.write(1, b"straight to the descriptor\\n")
            subprocess.run(["/bin/echo", "a child of ours"])
            return real(facts)
        from jackin_mcp import server
        server.tools_for = chatty
        main.main(int(sys.argv[1]))
    """
    argv = [sys.executable, "-c", textwrap.dedent(noisy), "{fd}"]
    hello: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    asked: list[tuple[str, dict[str, Any]]] = [("initialize", hello), ("tools/list", {})]
    lines = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params}).encode() + b"\n"
        for n, (method, params) in enumerate(asked)
    )
    done = serve(lines, answers=2, program=argv)
    assert {json.loads(line)["id"] for line in done.stdout.splitlines()} == {0, 1}
    for words in (b"a stray print", b"straight to the descriptor", b"a child of ours"):
        assert words in done.stderr


def test_a_message_without_an_end_ends_its_own_server_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever speaks the frames by hand meets the memory limit, not the machine's end."""
    require_bwrap()
    monkeypatch.setattr("jackin_broker.mcp_hosting.confined.MEMORY_MAX_BYTES", 150 * 1024 * 1024)
    assert serve(PING).returncode == 0, "an ordinary session fits"
    done = serve(PING + b'{"x": "' + b"x" * (200 * 1024 * 1024))
    assert json.loads(done.stdout.splitlines()[0])["id"] == 1
    assert done.returncode == 1
    assert b"MemoryError" in done.stderr


def test_it_ends_when_the_broker_does() -> None:
    require_bwrap()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        ours.send(protocol.encode(Facts("web", "/work", (), ("true",), pending_s=1)))
        process = subprocess.Popen(
            server_command(theirs.fileno()),
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
        )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(PING)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        ours.close()
        assert process.wait(START_LIMIT_S) == 0


# One in twenty left a child behind when bubblewrap alone was killed (measured).
ENDED_AT_ONCE = 150
LATEST_END_S = 0.004


def test_a_server_that_is_ended_as_it_starts_leaves_nothing() -> None:
    """bubblewrap's child waits for a word of its parent's, and for ever where that was killed."""
    require_bwrap()
    groups: set[int] = set()

    async def start_and_end() -> None:
        for number in range(ENDED_AT_ONCE):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                connection = CapsuleConnection()
                caller = Caller(os.getpid(), os.getuid(), None, 1, ())
                intake = Intake(connection, caller)
                running: Any = await ServerProcess.start(theirs, connection, intake)
                groups.add(running._transport.get_pid())
                await asyncio.sleep(LATEST_END_S * number / ENDED_AT_ONCE)  # at any moment
                await running.end()
                intake.close()

    asyncio.run(start_and_end())
    wait_until(lambda: not groups & groups_that_run(), "whatever was started is gone")


def groups_that_run() -> set[int]:
    """The process group of every process that has not ended."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if state != "Z":
                found.add(int(group))
    return found


def test_no_package_is_found_by_the_folder_that_the_broker_was_started_in(tmp_path: Path) -> None:
    """`python -m` puts the present directory on the path; an agent may have put a package there."""
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").write_text("raise SystemExit('the agent ran')")
    source = (
        "from jackin_broker.mcp_hosting.confined import server_command; print(server_command(3))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
    )
    assert "jackin_mcp" in done.stdout, done.stderr
    assert str(tmp_path) not in done.stdout
