"""Whether the pinned binary, and nobody else, reads what is typed on a command's terminal now.

It refuses to know what is asked and typed. Blocks on /proc for a millisecond. Invariants: what
cannot be read or told is a no; a process of another PID namespace depth, or of another tree, never
passes for the command; a program that the agent could have written never passes for the pinned one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from ..processes import ProcessGone, lineage, opened, own_depth

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# read(2), which every program uses that asks in canonical mode. Source: asm/unistd_64.h and
# asm-generic/unistd.h; elsewhere nobody is asked what they do.
_READ_CALL = {"x86_64": b"0", "aarch64": b"63", "riscv64": b"63"}.get(os.uname().machine)
# /dev/tty, and the majors of /dev/pts (Documentation/admin-guide/devices.txt).
_TTY = os.makedev(5, 0)
_PTS_MAJORS = range(136, 144)


@dataclass(frozen=True)
class Program:
    """The file that was pinned, and the host directories in which the agent can write.

    Where those are everything (kind `none`), they say nothing and are not asked. `set_uid` is the
    uid that the file gives to whoever executes it; a script is run by another file, and may be a
    wrapper that executes the real program.
    """

    device: int = 0
    inode: int = 0
    is_script: bool = False
    set_uid: int | None = None
    writable_roots: tuple[bytes, ...] = ()


# No process runs it, for no file has inode 0.
NO_PROGRAM = Program()


def reads_alone(group: int, program: Program, *, pid: int, inner_pid: int) -> bool:
    """Whether the foreground group is the command's own and holds nothing but the pinned binary.

    `group` is numbered as we see it. `pid` is the command's, or, where that is not `inner_pid`,
    bubblewrap's, and `inner_pid` the command's inside.
    """
    try:
        if not _is_command(group, pid, inner_pid):
            return False
        members = list(_readers(group))
        is_alone = group in members and all(
            _is_pinned(member, program) or (member == group and _went_on(member, program))
            for member in members
        )
        # What is typed while nobody reads stays for whoever reads next.
        return is_alone and any(map(_reads_terminal, members))
    except (ProcessGone, OSError):
        return False


def _is_command(group: int, pid: int, inner_pid: int) -> bool:
    """Whether the process of this number is the command itself."""
    if group <= 0:
        return False
    if pid == inner_pid:
        return group == pid
    steps = lineage(group)
    try:
        command, leader, bwrap = next(steps), next(steps), next(steps)
    except StopIteration:
        return False
    finally:
        steps.close()
    depth = own_depth() + 1
    is_inside = len(command.depths) == depth and command.depths[-1] == inner_pid
    return is_inside and leader.depths[-1] == 1 and len(leader.depths) == depth and bwrap.pid == pid


def _readers(group: int) -> Iterator[int]:
    """The processes of a group that live.

    Raises: ProcessGone where one is stopped: it reads nothing, and whoever stopped it may take
    the foreground to read what was typed for it.
    """
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name in parentheses may hold anything: state, parent and group follow it.
                words = file.read(512).rpartition(b")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(words[2]) != group or words[0] in (b"Z", b"X"):
            continue
        if words[0] in (b"T", b"t"):
            raise ProcessGone(f"process {name} is stopped")
        yield int(name)


def _reads_terminal(pid: int) -> bool:
    """Whether one of its threads waits for a terminal's input now.

    Where the kernel lets nobody look (a set-uid program, Yama's scope 2), the rest must do.
    """
    if _READ_CALL is None:
        return True
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/syscall", "rb") as file:
                number, descriptor, *_ = [*file.read().split(), b""]
            if number != _READ_CALL:
                continue
            found = os.stat(f"/proc/{pid}/fd/{int(descriptor, 16)}")
        except PermissionError:
            return True
        except (FileNotFoundError, ProcessLookupError):
            continue
        if found.st_rdev == _TTY or os.major(found.st_rdev) in _PTS_MAJORS:
            return True
    return False


def _is_pinned(pid: int, program: Program) -> bool:
    """Whether it runs the pinned file."""
    try:
        found = os.stat(f"/proc/{pid}/exe")
    except PermissionError:
        return False
    return (found.st_dev, found.st_ino) == (program.device, program.inode)


def _went_on(pid: int, program: Program) -> bool:
    """Whether the command, a script, is now a program that nobody but root could have written.

    Source: psql on Debian is a wrapper that executes the server's own version of it.
    """
    link = f"/proc/{pid}/exe"
    try:
        found, path = os.stat(link), os.readlink(os.fsencode(link))
    except PermissionError:
        return _became_owner(pid, program)
    if not program.is_script or found.st_uid != 0 or found.st_mode & _OTHERS_WRITE:
        return False
    here = os.stat(path)  # a file of the command's own mounts is not there, or another one
    if (here.st_dev, here.st_ino) != (found.st_dev, found.st_ino):
        return False
    roots = [root for root in program.writable_roots if root != b"/"]
    return not any(path.startswith(root.rstrip(b"/") + b"/") for root in roots)


def _became_owner(pid: int, program: Program) -> bool:
    """Whether a process that hides its program acts as the uid that the pinned file gives.

    The kernel hides what a set-uid program runs; nothing that an agent writes becomes one.
    """
    with opened(pid) as process:
        return program.set_uid is not None and process.status().effective_uid == program.set_uid
