"""The bridge under load and abuse: many at once, slow ones, deaf ones, dead ones.

Whatever they do, the others are served, and afterwards the broker holds what it held before.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.bridge import SHELL_SHIM, Bridged, bridged
from support.broker import PROGRAMS
from support.namespaces import descendants_of
from support.real import START_LIMIT_S, is_running, wait_until

CALLS = 200
LIMITS = "[limits]\nconnections_per_capsule = 220\n"
GIB = 1 << 30
# The doorways give a handshake ten seconds; only one without a deadline lasts longer than this.
CUT_LIMIT_S = 60.0
# What Python keeps for itself after a burst: arenas, not a leak that grows with each call.
SLACK_BYTES = 32 << 20


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridged]:
    with bridged("sh", "cat", "sleep", "true", "head", limits=LIMITS) as made:
        assert made.seed("true").returncode == 0  # the first loads what is loaded once
        yield made


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_for_descriptors(bridge: Bridged, before: int) -> None:
    wait_until(lambda: descriptors(bridge.broker.pid) <= before, "descriptors are given back")


def request_bytes(bridge: Bridged, *argv: str) -> bytes:
    body = json.dumps({"argv": argv, "cwd": str(bridge.work)}).encode()
    head = f"POST /exec HTTP/1.1\r\nHost: localhost\r\nX-Construct-Exec-Token: {bridge.token}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def http(bridge: Bridged) -> socket.socket:
    return connected(urlsplit(bridge.url).netloc)


def call(bridge: Bridged, *argv: str) -> list[dict[str, str]]:
    """The frames of one call, by hand."""
    with http(bridge) as sock:
        sock.sendall(request_bytes(bridge, *argv))
        answer = b"".join(iter(lambda: sock.recv(1 << 16), b""))
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), answer
    body = b""
    while rest:  # chunked
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return [json.loads(line) for line in body.splitlines()]


def test_two_hundred_calls_at_once_each_get_their_own_answer(bridge: Bridged) -> None:
    before = descriptors(bridge.broker.pid)
    together = threading.Barrier(CALLS)

    def one(number: int) -> tuple[bytes, int]:
        together.wait(60)
        frames = call(bridge, "sh", "-c", f"sleep 0.5; echo {number}; exit {number % 100}")
        out = b"".join(base64.b64decode(f["data"]) for f in frames if f["type"] == "stdout")
        return out, int(frames[-1]["code"])

    with ThreadPoolExecutor(CALLS) as pool:
        answers = list(pool.map(one, range(CALLS)))
    assert answers == [(b"%d\n" % number, number % 100) for number in range(CALLS)]
    wait_for_descriptors(bridge, before)
    wait_until(lambda: bridge.broker.ask("status")["running"] == 0, "nothing runs")


def test_more_than_the_capsules_budget_is_503_whatever_door_it_comes_through() -> None:
    with bridged("sleep", "true", limits="[limits]\nconnections_per_capsule = 2\n") as bridge:
        env = bridge.environ()
        shims = [
            subprocess.Popen([PROGRAMS / "jackin-exec", "sleep", "600"], env=env, cwd=bridge.work)
            for _ in range(2)
        ]
        try:
            wait_until(lambda: bridge.broker.ask("status")["running"] == 2, "both run")
            assert bridge.post({"argv": ["true"]}).stdout.endswith(b"503")
            done = bridge.frames("true")
            assert (done.returncode, b"too_many_pending" in done.stderr) == (126, True)
            assert bridge.shell("true").returncode == 126
        finally:
            for shim in shims:
                shim.kill()
                shim.wait(START_LIMIT_S)
        wait_until(lambda: bridge.frames("true").returncode == 0, "there is room again")


def test_a_byte_a_second_is_cut_off_and_holds_up_nobody(bridge: Bridged) -> None:
    """Before its head is whole, on both ports; a body has a deadline of its own."""
    head = request_bytes(bridge, "true")
    with http(bridge) as slow, connected(bridge.env["JACKIN_BROKER_ADDR"]) as other:
        ends_at = time.monotonic() + CUT_LIMIT_S
        is_cut: set[socket.socket] = set()
        for sent in itertools.count():
            for sock in {slow, other} - is_cut:
                sock.settimeout(0.5)
                try:
                    sock.send(head[sent % 9 : sent % 9 + 1] if sock is slow else b"\0")
                    if not sock.recv(4096):
                        is_cut.add(sock)
                except TimeoutError:
                    pass
                except OSError:
                    is_cut.add(sock)
            assert bridge.frames("true").returncode == 0
            if len(is_cut) == 2 or time.monotonic() > ends_at:
                break
        assert len(is_cut) == 2


def test_a_client_that_never_reads_costs_no_memory_and_ends_with_its_connection(
    bridge: Bridged,
) -> None:
    bridge.frames("head", "-c", "64M", "/dev/zero")
    before, held = resident_bytes(bridge.broker.pid), descriptors(bridge.broker.pid)
    with http(bridge) as deaf:
        deaf.sendall(request_bytes(bridge, "sh", "-c", "echo $$ > deaf; exec cat /dev/zero"))
        place = bridge.work / "deaf"
        wait_until(lambda: place.exists() and bool(place.read_text()), "it runs")
        for _ in range(5):
            assert bridge.frames("true").returncode == 0
        assert resident_bytes(bridge.broker.pid) - before < SLACK_BYTES
        pid = int(place.read_text())
        assert is_running(pid)
    wait_until(lambda: not is_running(pid), "with its caller it ends")
    wait_for_descriptors(bridge, held)


def test_a_gibibyte_of_output_passes_through_in_bounded_memory(bridge: Bridged) -> None:
    before = resident_bytes(bridge.broker.pid)
    with subprocess.Popen(
        [PROGRAMS / "jackin-exec", "--", "head", "-c", str(GIB), "/dev/zero"],
        env=bridge.environ(),
        cwd=bridge.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as shim:
        out = shim.stdout
        assert out is not None
        size = sum(len(piece) for piece in iter(lambda: os.read(out.fileno(), 1 << 20), b""))
    assert (shim.returncode, size) == (0, GIB)
    assert resident_bytes(bridge.broker.pid) - before < SLACK_BYTES


def test_a_gibibyte_over_http_passes_through_in_bounded_memory(bridge: Bridged) -> None:
    before = resident_bytes(bridge.broker.pid)
    with subprocess.Popen(
        [str(SHELL_SHIM), "--", "head", "-c", str(GIB), "/dev/zero"],
        env=bridge.environ(),
        cwd=bridge.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as shim:
        out = shim.stdout
        assert out is not None
        size, digest = 0, hashlib.sha256()
        for piece in iter(lambda: os.read(out.fileno(), 1 << 20), b""):
            size += len(piece)
            digest.update(piece[:1])
    assert (shim.returncode, size) == (0, GIB)
    assert resident_bytes(bridge.broker.pid) - before < SLACK_BYTES


def test_killed_clients_leave_no_orphan_and_no_descriptor(bridge: Bridged) -> None:
    held = descriptors(bridge.broker.pid)
    clients = [
        subprocess.Popen(
            argv,
            env=bridge.environ(),
            cwd=bridge.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for argv in (
            [str(PROGRAMS / "jackin-exec"), "sleep", "600"],
            [str(SHELL_SHIM), "sleep", "600"],
        )
        * 10
    ]
    wait_until(lambda: bridge.broker.ask("status")["running"] == len(clients), "all run")
    runs = [pid for pid in descendants_of(bridge.broker.pid) if _is_sleep(pid)]
    assert len(runs) == len(clients)
    for client in clients:
        os.killpg(client.pid, signal.SIGKILL)
        client.wait(START_LIMIT_S)
    wait_until(lambda: not any(map(is_running, runs)), "nothing runs on")
    wait_until(lambda: bridge.broker.ask("status")["running"] == 0, "the desk knows")
    wait_for_descriptors(bridge, held)


def _is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"
    except OSError:
        return False


def test_a_broker_that_stops_gives_every_call_its_last_word() -> None:
    with bridged("sleep") as bridge:
        with http(bridge) as sock:
            sock.sendall(request_bytes(bridge, "sleep", "600"))
            with subprocess.Popen(
                [PROGRAMS / "jackin-exec", "sleep", "600"],
                env=bridge.environ(),
                cwd=bridge.work,
                stderr=subprocess.PIPE,
            ) as shim:
                wait_until(lambda: bridge.broker.ask("status")["running"] == 2, "both run")
                assert bridge.broker.stop() == 0
                answer = b"".join(iter(lambda: sock.recv(1 << 16), b""))
                _, err = shim.communicate(timeout=START_LIMIT_S)
        assert b'"type":"exit","code":' in answer
        assert answer.endswith(b"0\r\n\r\n")
        assert shim.returncode != 0
        assert b"the broker stopped" in err
