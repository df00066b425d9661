"""Sibling namespaces: a process 1 of its own PID, mount and IPC namespaces, one for each side.

The agent gets one, every command another, so that neither sees the other's processes, memory or
environment: `/proc` there shows its own alone. It refuses to know what is run in one.
Invariants: whoever runs in one holds no capability by the time that `body` begins, and none can
be had again; a namespace that cannot be made whole runs nothing. Still shared: /dev/pts,
/dev/shm, the project and what is below /tmp.
"""

import errno
import posix

from . import end_process, kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

_NAMESPACES = kernel.NEW_MOUNTS | kernel.NEW_PIDS | kernel.NEW_IPC
_PROC_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
# Where uid 0 of the host's could change the machine by writing; bubblewrap covers them too.
_PROC_WRITABLE = (b"/proc/sys", b"/proc/sysrq-trigger", b"/proc/irq", b"/proc/bus")
# How the first steps went: all well, or an errno.
_READY = b"ok"
_REPORT_BYTES = 16


def fork_apart(body: "Callable[[], NoReturn]", before: "Sequence[Callable[[], None]]" = ()) -> int:
    """The pid of a new process 1 that runs `body`; it is our child as soon as this returns.

    `before` is called there while it still may mount.
    Raises: OSError where the kernel does not allow it; nothing runs then.
    """
    reader, writer = posix.pipe()
    try:
        first = kernel.fork_into(_NAMESPACES)
        if first == 0:
            posix.close(reader)
            _begin(writer, body, before)
    except OSError:
        posix.close(reader)
        raise
    finally:
        posix.close(writer)
    try:
        report = posix.read(reader, _REPORT_BYTES)
    finally:
        posix.close(reader)
    if report == _READY:
        return first
    posix.waitpid(first, 0)
    code = int(report) if report else errno.EPERM
    raise OSError(code, posix.strerror(code))


def _begin(
    writer: int, body: "Callable[[], NoReturn]", before: "Sequence[Callable[[], None]]"
) -> "NoReturn":
    """As process 1 of the namespaces: their own /proc, then no capability, then `body`."""
    try:
        try:
            kernel.mount(b"none", b"/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            _mount_proc()
            for step in before:
                step()
            kernel.drop_capabilities()
        except OSError as error:
            posix.write(writer, b"%d" % (error.errno or errno.EPERM))
            end_process(1)
        posix.write(writer, _READY)
        posix.close(writer)
        body()
    finally:
        end_process(1)


def _mount_proc() -> None:
    kernel.mount(b"proc", b"/proc", b"proc", _PROC_FLAGS)
    for place in _PROC_WRITABLE:
        if posix.access(place, posix.W_OK):
            kernel.mount(place, place, None, kernel.MS_BIND | kernel.MS_REC)
            flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | _PROC_FLAGS
            kernel.mount(b"none", place, None, flags)
