"""What the broker wants run inside: read once, from a memory file that was passed to us alone.

It refuses to know processes. Invariants: the file is emptied once it was read; a job's text form
shows no value; its PATH is the one that the capsule was started with, without our own programs,
so that a name is never the agent's and never a call back to the broker.
"""

import binascii
import errno
import os
import stat

from .agent import PROGRAMS_DIR
from .wire import broken, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Json

# What execvp(3) searches where there is no PATH.
_DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"


class Job:
    """One command: bytes throughout, ready for execve."""

    def __init__(self, found: "dict[str, Json]", base: "dict[bytes, bytes]") -> None:
        """`base` is the environment that init was started with.

        Raises: Fault for what no broker of ours sends.
        """
        try:
            self.argv = [_bytes(word) for word in _sequence(found["argv"])]
            self.cwd = _bytes(found["cwd"])
            given = {name.encode(): _bytes(value) for name, value in _mapping(found["env"])}
            self.files = [
                (_bytes(_field(one, "path")), _bytes(_field(one, "content")))
                for one in _sequence(found.get("files", ()))
            ]
            self.sockets = [_bytes(one) for one in _sequence(found.get("sockets", ()))]
            size = found.get("terminal")
            self.terminal = None if size is None else (_number(size, "rows"), _number(size, "cols"))
            self.address_space_bytes = _bytes_count(found.get("address_space_bytes", 0))
        except (KeyError, TypeError, ValueError) as error:
            raise broken("a job has not the parts that it needs") from error
        if not self.argv:
            raise broken("a job without a command")
        self.env = {**base, b"PATH": search_path(base), **given}

    def __repr__(self) -> str:
        return f"<job {self.argv[0]!r}>"

    def program(self) -> bytes:
        """Where the command's program is.

        Raises: OSError as execve(2) would.
        """
        name = self.argv[0]
        if b"/" in name:
            return name
        refused = errno.ENOENT
        for directory in self.env[b"PATH"].split(b":"):
            path = (directory or b".") + b"/" + name
            try:
                is_file = stat.S_ISREG(os.stat(path).st_mode)
            except OSError:
                continue
            if is_file and os.access(path, os.X_OK):
                return path
            refused = errno.EACCES
        raise OSError(refused, os.strerror(refused))

    def forget(self) -> None:
        """Let go of the values; the memory is the interpreter's."""
        self.env.clear()
        self.files.clear()


def look_for(job: Job) -> None:
    """Return when its program is there, seen from its directory by whoever we are now.

    Raises: OSError as execve(2) would.
    """
    program = job.program()
    if b"/" in job.argv[0]:
        os.stat(program)
        if not os.access(program, os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def read_job(fd: int, base: "dict[bytes, bytes]") -> Job:
    """The job in a memory file, which is emptied.

    Raises: Fault, OSError.
    """
    body = os.pread(fd, os.fstat(fd).st_size, 0)
    os.ftruncate(fd, 0)
    os.close(fd)
    return Job(decode(body), base)


def search_path(base: "dict[bytes, bytes]") -> bytes:
    """The PATH that the capsule was started with, without our own programs."""
    parts = base.get(b"PATH", _DEFAULT_PATH).split(b":")
    return b":".join([part for part in parts if part != PROGRAMS_DIR]) or _DEFAULT_PATH


def _bytes(value: "Json") -> bytes:
    """The bytes of a text, or of `{"b64": …}`."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        coded = value["b64"]
        if isinstance(coded, str):
            return binascii.a2b_base64(coded)
    raise TypeError("no text")


def _sequence(value: "Json") -> "list[Json]":
    if not isinstance(value, (list, tuple)):
        raise TypeError("no list")
    return list(value)


def _mapping(value: "Json") -> "list[tuple[str, Json]]":
    if not isinstance(value, dict):
        raise TypeError("no object")
    return list(value.items())


def _field(value: "Json", name: str) -> "Json":
    if not isinstance(value, dict):
        raise TypeError("no object")
    found: Json = value[name]
    return found


def _bytes_count(value: "Json") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("no size in bytes")
    return value


def _number(value: "Json", name: str) -> int:
    found = _field(value, name)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < 65_536:
        raise ValueError("no size of a terminal")
    return found
