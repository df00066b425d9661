"""System calls that Python has no words for: namespaces, mounts, capabilities, process flags.

It refuses to know why they are made. `_ctypes` alone, because `ctypes` costs as much to import as
starting the interpreter does, and a capsule starts with this. Every failure is an OSError.
Sources: unshare(2), mount(2), prctl(2), capset(2).
"""

import _ctypes
import posix

NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
NEW_IPC = 0x08000000
NEW_PIDS = 0x20000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND = 0x20, 0x1000
MS_REC, MS_PRIVATE = 0x4000, 0x40000

_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
# clone(2)'s number by machine, where its first argument is the flags. One thread is all that there
# is, so the child needs nothing that the C library's fork does beyond it.
_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "ppc64le": 120, "i686": 120, "armv7l": 120}
_SIGCHLD = 17
_ENOSYS = 38
# capset's header: _LINUX_CAPABILITY_VERSION_3, then a pid; its data: six words.
_CAPABILITY_HEADER = (0x20080522).to_bytes(4, "little") + bytes(4)
_NO_CAPABILITIES = bytes(24)
# More than any kernel knows; asking for one that it does not is the end of the list.
_CAPABILITIES_MAX = 64

# FUNCFLAG_CDECL and FUNCFLAG_USE_ERRNO of CPython's own ctypes.
_FLAGS = 0x1 | 0x8


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # generic for type checkers alone
    _type_ = "l"


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]  # generic for type checkers alone
    _type_ = "i"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _FLAGS
    _restype_ = _Int


_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # the stub knows names alone


def _call(name: str, *arguments: "int | bytes | None") -> int:
    """What the C function returned.

    Raises: OSError.
    """
    words = [_Long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _Function(_ctypes.dlsym(_LIBC, name))(*words)
    if result < 0:
        code = _ctypes.get_errno()
        raise OSError(code, posix.strerror(code))
    return result


def _prctl(option: int, *arguments: int) -> int:
    return _call("prctl", option, *arguments, *[0] * (4 - len(arguments)))


def fork_into(flags: int) -> int:
    """As fork(2), the child in namespaces of its own.

    Raises: OSError, ENOSYS also where we do not know how this machine numbers the call.
    """
    number = _CLONE.get(posix.uname().machine)
    if number is None:
        raise OSError(_ENOSYS, posix.strerror(_ENOSYS))
    return _call("syscall", number, flags | _SIGCHLD, 0, 0, 0, 0)


def mount(
    source: bytes, target: bytes, kind: "bytes | None", flags: int, data: "bytes | None" = None
) -> None:
    """Mount, bind, remount or change what is there."""
    _call("mount", source, target, kind, flags, data)


def forbid_dumps() -> None:
    """Nobody of our uid reads our memory, environment or descriptors."""
    _prctl(_PR_SET_DUMPABLE, 0)


def is_dumpable() -> bool:
    """Whether others of our uid may look into us."""
    return _prctl(_PR_GET_DUMPABLE) != 0


def become_subreaper() -> None:
    """Orphans below us become our children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """Executing a program gives nothing that we do not have."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """None is left and none can be gained: not by a file's mode, not by being uid 0."""
    no_new_privileges()
    for number in range(_CAPABILITIES_MAX):
        try:
            held = _prctl(_PR_CAPBSET_READ, number)
        except OSError:
            break
        if held:
            _prctl(_PR_CAPBSET_DROP, number)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _call("capset", _CAPABILITY_HEADER, _NO_CAPABILITIES)
    forbid_dumps()


def limit_address_space(size_bytes: int) -> None:
    """Let this process, and what it becomes, reserve no more; nothing for 0. It cannot go back."""
    if not size_bytes:
        return
    import resource

    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = size_bytes if allowed == resource.RLIM_INFINITY else min(size_bytes, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
