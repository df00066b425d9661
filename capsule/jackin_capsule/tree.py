"""Everything below one process, and a signal for all of it.

It refuses to know why. As process 1 that is every other process of the namespace; else it is found
in /proc, whatever session it made for itself.
"""

import os


def signal_tree(number: int) -> None:
    """Signal every process below this one."""
    me = os.getpid()
    for pid in [-1] if me == 1 else _below(me):
        try:
            os.kill(pid, number)
        except OSError:
            continue  # it ended, or became another user's


def _below(top: int) -> "list[int]":
    family: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _parent_of(name)
            if parent:
                family.setdefault(parent, []).append(int(name))
    found: list[int] = []
    queue = [top]
    while queue:
        children = family.get(queue.pop(), [])
        found += children
        queue += children
    return found


def _parent_of(name: str) -> int:
    """The parent of a process, 0 when it ended meanwhile."""
    try:
        fd = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        # The name in parentheses may hold anything; state and parent follow the last one.
        return int(os.read(fd, 512).rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    finally:
        os.close(fd)
