"""What an agent tries against a command that runs beside it; run by the capsule's own Python.

Standard library alone. It prints one JSON object: what it could read, and what it was refused. It
refuses to know what it looks for: the test does.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

_LIBC = ctypes.CDLL(None, use_errno=True)
_PTRACE_SEIZE = 0x4206
_READ_MAX_BYTES = 1 << 20
# Above what a capsule of a test ever has.
_PIDS = range(1, 400)


def read(path: str) -> bytes:
    """A file's beginning, nothing where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(fd, _READ_MAX_BYTES)
    except OSError:  # a directory, or a pipe that holds nothing
        return b""
    finally:
        os.close(fd)


def everything() -> bytes:
    """All that /proc shows of every process but this one."""
    found: list[bytes] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        found += [read(f"/proc/{pid}/{name}") for name in ("environ", "cmdline", "maps")]
        for fd in listed(f"/proc/{pid}/fd"):
            found.append(read(f"/proc/{pid}/fd/{fd}"))
        found += [
            read(f"/proc/{pid}/root/proc/{n}/environ") for n in listed(f"/proc/{pid}/root/proc")
        ]
    return b"\0".join(found)


def listed(path: str) -> list[str]:
    """The names in a directory, none where it cannot be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def seized() -> list[int]:
    """The processes that can be traced, init's own among them if it can."""
    found: list[int] = []
    for pid in _PIDS:
        if pid != os.getpid() and _LIBC.ptrace(_PTRACE_SEIZE, pid, 0, 0) == 0:
            found.append(pid)
    return found


def memory() -> list[int]:
    """The processes whose memory can be opened."""
    return [pid for pid in _PIDS if pid != os.getpid() and read_memory(pid)]


def read_memory(pid: int) -> bool:
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    except OSError:
        return False
    return True


def entered() -> list[str]:
    """The namespaces of the first process that could be joined."""
    found: list[str] = []
    for name in ("mnt", "pid", "ipc", "user"):
        try:
            fd = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
        except OSError:
            continue
        if _LIBC.setns(fd, 0) == 0:
            found.append(name)
    return found


def uncovered(*before: str) -> str:
    """What /proc shows once the one on top is taken away; empty where it cannot be."""
    script = "umount -l /proc && ls /proc"
    done = subprocess.run([*before, "sh", "-c", script], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def claims(*before: str) -> str:
    """What a broker answers to somebody who says that they are init."""
    if before:
        done = subprocess.run(
            [*before, sys.executable, "-c", CLAIM], capture_output=True, text=True
        )
        return done.stdout
    return claim()


def claim() -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect("/jackin/run/broker.sock")
        body = b'{"type":"InitReady","protocol":1,"isolation":"namespaces"}'
        sock.sendall(len(body).to_bytes(4, "big") + body)
        answer = b""
        while piece := sock.recv(4096):
            answer += piece
    return answer[4:].decode(errors="replace")


# The same, for an interpreter in a namespace of its own.
CLAIM = """\
import socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect("/jackin/run/broker.sock")
b = b'{"type":"InitReady","protocol":1,"isolation":"namespaces"}'
s.sendall(len(b).to_bytes(4, "big") + b)
a = b""
while p := s.recv(4096):
    a += p
print(a[4:].decode(errors="replace"))
"""


def gained() -> list[str]:
    """The capabilities that the agent has or could get, as /proc says them."""
    lines = read("/proc/self/status").decode().splitlines()
    return [line for line in lines if line.startswith("Cap") and not line.endswith("0" * 16)]


def mounted() -> bool:
    return _LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0


def main() -> None:
    """Try it all."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    nested = ("unshare", "-Urpf", "--mount-proc")
    print(
        json.dumps(
            {
                "read": everything().decode("latin-1"),
                "read_nested": subprocess.run(
                    ["unshare", "-Ur", "sh", "-c", "cat /proc/[0-9]*/environ"],
                    capture_output=True,
                ).stdout.decode("latin-1"),
                "capabilities": gained(),
                "has_mounted": mounted(),
                "uncovered": uncovered() + uncovered("unshare", "-Urm"),
                "entered": entered(),
                "claims": [claims(), claims(*nested)],
                "traced": seized(),
                "memory": memory(),
                "own": [int(pid) for pid in listed("/proc") if pid.isdigit()],
            }
        )
    )
    sys.stdout.flush()
    os._exit(0)


main()
