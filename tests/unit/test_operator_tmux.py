"""Which tmux is the operator's, which of its clients can show a popup; what a notifier is given."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest

from jackin_broker import notifier, operator_tmux
from jackin_broker.notifier import Notifier, notice_name
from jackin_broker.operator_tmux import find_tmux, is_own_socket
from support.real import is_running, wait_until


@pytest.fixture
def server(short_tmp: Path) -> Path:
    path = short_tmp / "server"
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
    return path


def test_a_socket_of_ours_in_a_folder_of_ours_is_spoken_to(server: Path) -> None:
    assert is_own_socket(server)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_one_that_others_could_have_put_there_is_not(server: Path, mode: int) -> None:
    server.parent.chmod(mode)
    assert not is_own_socket(server)


def test_a_link_a_file_and_nothing_are_no_sockets(server: Path) -> None:
    link, file = server.with_name("link"), server.with_name("file")
    link.symlink_to(server)
    file.touch()
    assert not any(is_own_socket(path) for path in (link, file, server.with_name("none")))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_one_of_somebody_else_is_not(server: Path) -> None:
    os.chown(server, 65_000, 65_000)
    assert not is_own_socket(server)


@pytest.mark.parametrize(
    ("environ", "configured", "expected"),
    [
        ({"TMUX": "/run/a,b/tmux,12,0"}, "", "/run/a,b/tmux"),
        ({"TMUX": "/run/x,12,0"}, "/home/op/tmux", "/home/op/tmux"),
        ({"TMUX_TMPDIR": "/run/user/1"}, "", f"/run/user/1/tmux-{os.geteuid()}/default"),
        ({"TMUX": "relative,1,0"}, "", f"/tmp/tmux-{os.geteuid()}/default"),
    ],
)
def test_which_server_it_is(
    short_tmp: Path, environ: dict[str, str], configured: str, expected: str
) -> None:
    program(short_tmp / "tmux", "exit 0")
    found = find_tmux({"PATH": str(short_tmp), **environ}, configured)
    assert found is not None
    assert str(found.socket) == expected


def test_without_tmux_there_is_none(short_tmp: Path) -> None:
    assert find_tmux({"PATH": str(short_tmp)}, "") is None


def program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(stat.S_IRWXU)


def chosen(folder: Path, server: Path, *lines: str) -> str:
    """The client that is chosen of what tmux lists."""
    listed = "; ".join(f"echo '{line}'" for line in lines)
    program(folder / "tmux", listed)

    async def look() -> str:
        tmux = find_tmux({"PATH": f"{folder}:/bin"}, str(server))
        assert tmux is not None
        client = await tmux.client()
        return client.name if client is not None else ""

    return asyncio.run(look())


def test_the_client_that_was_used_last_and_can_show_a_popup_is_chosen(server: Path) -> None:
    folder = server.parent
    lines = (
        *("10 0 0 80 24 /dev/pts/1", "20 0 0 100 30 /dev/pts/2", "15 0 0 80 24 /dev/pts/3"),
        *("30 1 0 80 24 control", "30 0 1 80 24 read-only", "30 0 0 61 24 narrow"),
        *("30 0 0 80 21 flat", "broken", "30 0 0 80 24 "),
    )
    assert chosen(folder, server, *lines) == "/dev/pts/2"
    assert chosen(folder, server, *lines[3:]) == ""


def test_a_tmux_that_hangs_is_nobody(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_tmux, "LOOK_LIMIT_S", 0.2)
    pid_file = server.with_name("pid")
    began = time.monotonic()
    program(server.parent / "tmux", f"echo $$ > {pid_file}", "exec sleep 60")
    tmux = find_tmux({"PATH": f"{server.parent}:/bin"}, str(server))
    assert tmux is not None
    assert asyncio.run(tmux.client()) is None
    assert time.monotonic() - began < 5
    wait_until(lambda: not is_running(int(pid_file.read_text())), "it was killed")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("gh", "gh"), ("/usr/bin/gh", "gh"), ("-rf", "_rf"), ("--help", "_-help")),
        *(("a b;c", "a_b_c"), ("#(touch x)", "__touch_x_"), ("", "_"), ("x/", "_")),
    ],
)
def test_a_notifier_gets_a_clean_name(command: str, name: str) -> None:
    assert notice_name(command) == name


def test_a_notifier_that_hangs_is_killed_with_all_it_started(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "NOTIFY_LIMIT_S", 2.0)
    pids = short_tmp / "pids"
    program(short_tmp / "told", f"sleep 60 & echo $! $$ > {pids}.new; mv {pids}.new {pids}", "wait")

    async def go() -> None:
        running = Notifier({"PATH": "/usr/bin:/bin"})
        running.follow((str(short_tmp / "told"),), frozenset())
        running.tell("gh", while_true=lambda: True)
        await asyncio.to_thread(wait_until, pids.exists, "it runs")
        found = [int(pid) for pid in pids.read_text().split()]
        await asyncio.to_thread(
            wait_until, lambda: not any(is_running(pid) for pid in found), "it is killed"
        )
        await running.close()

    asyncio.run(go())


def test_a_request_that_is_over_when_its_turn_comes_is_not_told_of(short_tmp: Path) -> None:
    told = short_tmp / "told.txt"
    program(short_tmp / "told", f'echo "$1" >> {told}')

    async def go() -> None:
        running = Notifier({"PATH": "/usr/bin:/bin"})
        running.follow((str(short_tmp / "told"),), frozenset())
        running.tell("over", while_true=lambda: False)
        running.tell("waits", while_true=lambda: True)
        await asyncio.to_thread(wait_until, told.exists, "it is told")
        await running.close()

    asyncio.run(go())
    assert told.read_text() in ("waits\n", "")


def test_what_a_source_names_does_not_reach_the_notifier(short_tmp: Path) -> None:
    seen = short_tmp / "env"
    program(short_tmp / "told", f"env > {seen}.new; mv {seen}.new {seen}")

    async def go() -> None:
        environ = {"PATH": "/usr/bin:/bin", "DISPLAY": ":0", "USER": "op", "GH_TOKEN": "x"}
        running = Notifier(environ)
        running.follow((str(short_tmp / "told"),), frozenset({"USER"}))
        running.tell("gh", while_true=lambda: True)
        await asyncio.to_thread(wait_until, seen.exists, "it is told")
        await running.close()

    asyncio.run(go())
    names = {line.split("=")[0] for line in seen.read_text().splitlines()}
    assert "DISPLAY" in names
    assert not {"USER", "GH_TOKEN"} & names
