"""A small container image, made of this machine's own programs: a shell, a few tools, Python.

No registry is asked. It refuses to know engines: it is one tar archive, as `import` takes it.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .real import SYSTEM_PYTHON

_TOOLS: Final = (
    *("sh", "bash", "cat", "ls", "id", "env", "sleep", "touch", "true", "uname", "kill"),
    *("grep", "stat", "mkdir", "mkfifo", "rm", "head", "wc", "tr", "tty", "stty"),
    *("setpriv", "umount", "unshare"),
)
_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x")
_SKIPPED: Final = ("test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "__pycache__")
# Also those that an engine would make by itself, closed to everybody but root.
_FOLDERS: Final = (
    *("bin", "dev", "etc", "home", "home/agent", "jackin", "lib", "lib/x86_64-linux-gnu", "lib64"),
    *("proc", "root", "run", "sys", "tmp", "usr", "usr/bin", "usr/lib", "var", "var/tmp"),
)
_ACCOUNTS: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nagent:x:1500:1500::/home/agent:/bin/sh\n",
    "etc/group": "root:x:0:\nagent:x:1500:\n",
}


def write_image(path: Path) -> None:
    """Write the archive; some 30 MB, in a second or two."""
    with tarfile.open(path, "w") as archive:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            folder.mode = 0o1777 if name.endswith("tmp") else 0o755
            archive.addfile(folder)
        for name, text in _ACCOUNTS.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
        programs = [_found(name) for name in _TOOLS] + [SYSTEM_PYTHON]
        for file in sorted(_with_libraries(programs)):
            _add(archive, file)
        library = Path(sysconfig.get_path("stdlib"))
        real = Path(os.path.realpath(SYSTEM_PYTHON)).name
        library = Path("/usr/lib", real) if Path("/usr/lib", real).is_dir() else library
        archive.add(library, str(library).lstrip("/"), filter=_wanted)


def _found(name: str) -> str:
    for folder in ("/bin", "/usr/bin"):
        if os.path.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    raise AssertionError(f"{name} is not on this machine")


def _with_libraries(programs: Iterable[str]) -> set[str]:
    found: set[str] = set()
    extensions = Path("/usr/lib", Path(os.path.realpath(SYSTEM_PYTHON)).name, "lib-dynload")
    found.update(programs)
    for program in [*found, *map(str, extensions.glob("_ctypes*.so"))]:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        found.update(_LIBRARY.findall(listed))
    return found


def _add(archive: tarfile.TarFile, path: str) -> None:
    """The file under the name that it is called by, with its content: no link is kept."""
    entry = archive.gettarinfo(os.path.realpath(path), path.lstrip("/"))
    entry.mode, entry.uid, entry.gid = 0o755, 0, 0
    with open(path, "rb") as file:
        archive.addfile(entry, file)


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = entry.name.split("/")
    if any(part in _SKIPPED or part.startswith("config-") for part in parts):
        return None
    if not (entry.isfile() or entry.isdir()):
        return None
    entry.uid = entry.gid = 0
    return entry
