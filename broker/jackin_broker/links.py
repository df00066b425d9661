"""The programs of a capsule: the directory that is mounted at /jackin/bin.

It holds the shim's package, its bytecode made by the capsule's own interpreter, one launcher
each for `jackin-exec` and `jackin-capsule`, and a link for every binary that the host may run.
It refuses to know who may run what. Invariants: a running capsule never meets a half-written
file, and keeps its mount, because the directory is brought up to date in place; a name that is
no longer listed loses its link; what we did not put there is not touched; any uid can read it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from . import __version__
from .atomic import held_lock, replace_file
from .errors import ConfigError
from .paths import CAPSULE_BIN_DIR

SHIM_NAME: Final = "jackin-exec"
CAPSULE_NAME: Final = "jackin-capsule"
SHELL_SHIM_NAME: Final = "jackin-exec-sh"
_PACKAGE: Final = "jackin_capsule"
_MANIFEST: Final = ".manifest.json"
_RESERVED: Final = frozenset({SHIM_NAME, CAPSULE_NAME, SHELL_SHIM_NAME, "lib"})
_FILE_MODE: Final = 0o644
_PROGRAM_MODE: Final = 0o755
_DIRECTORY_MODE: Final = 0o755
# A dozen small files; a cold interpreter on a busy machine takes under a second.
_COMPILE_LIMIT_S: Final = 30.0
# Kernels read at most this much of a first line. Source: BINPRM_BUF_SIZE, execve(2).
_SHEBANG_MAX_BYTES: Final = 255

# -I drops the launcher's own folder from sys.path, -S the site packages, so the folder of the
# package is named: where it is mounted, then where it is on the host (a capsule of kind none).
_LAUNCHER: Final = """\
#!{interpreter} -IS
import sys
sys.path[:0] = ({mounted!r}, {here!r})
from {module} import main
main({arguments})
"""
# Unchecked hashes: the bytecode stays valid whatever happens to the files' times, and is made
# anew whenever the sources change.
_COMPILE: Final = (
    "import py_compile, sys\n"
    "mode = py_compile.PycInvalidationMode.UNCHECKED_HASH\n"
    "for path in sys.argv[1:]:\n"
    "    py_compile.compile(path, doraise=True, invalidation_mode=mode)\n"
)


def build_programs(dest: Path, names: Sequence[str], interpreter: str) -> bool:
    """Bring a capsule's programs up to date; whether their bytecode is there.

    `interpreter` is the capsule's Python, as the capsule sees it. Where it cannot be run on this
    side the programs work all the same, a little slower at each start.
    Raises: ConfigError for a name or an interpreter that cannot be, or a place that fails.
    """
    _check(names, interpreter)
    try:
        with held_lock(dest.parent / f".{dest.name}.lock"):
            _make_directory(dest)
            is_compiled = _sync_package(dest, interpreter)
            _sync_links(dest, names)
            return is_compiled
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{dest}: cannot build the capsule's programs: {reason}") from error


def _check(names: Iterable[str], interpreter: str) -> None:
    for name in names:
        if not name or name in _RESERVED or name.startswith(".") or "/" in name or "\0" in name:
            raise ConfigError(f"host_binaries: {name!r} cannot be the name of a program")
    first_line = f"#!{interpreter} -IS"
    if not os.path.isabs(interpreter) or any(mark in interpreter for mark in " \t\n"):
        raise ConfigError(f"{interpreter!r} cannot stand in the first line of a program")
    if len(os.fsencode(first_line)) > _SHEBANG_MAX_BYTES:
        raise ConfigError("the path of the capsule's interpreter is too long for a first line")


def _sync_package(dest: Path, interpreter: str) -> bool:
    """Write launchers and package unless they are there already; the manifest comes last."""
    sources = {path.name: path.read_bytes() for path in _package_sources()}
    script = shell_shim()
    wanted = _manifest({**sources, SHELL_SHIM_NAME: script}, interpreter)
    manifest = dest / _MANIFEST
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(manifest.read_bytes())
        if found["made_from"] == wanted:
            return bool(found["is_compiled"])
    manifest.unlink(missing_ok=True)
    package = dest / "lib" / _PACKAGE
    for directory in (package.parent, package, package / "__pycache__"):
        _make_directory(directory)
    _remove_stale(package, set(sources))
    for name, content in sources.items():
        replace_file(package / name, content, mode=_FILE_MODE)
    is_compiled = _compile([package / name for name in sources], interpreter)
    for name, module, arguments in (
        (SHIM_NAME, f"{_PACKAGE}.shim", "sys.argv"),
        (CAPSULE_NAME, f"{_PACKAGE}.main", ""),
    ):
        text = _LAUNCHER.format(
            interpreter=interpreter,
            mounted=f"{CAPSULE_BIN_DIR}/lib",
            here=str(package.parent),
            module=module,
            arguments=arguments,
        )
        replace_file(dest / name, text.encode(), mode=_PROGRAM_MODE)
    replace_file(dest / SHELL_SHIM_NAME, script, mode=_PROGRAM_MODE)
    record = {"made_from": wanted, "is_compiled": is_compiled}
    replace_file(manifest, json.dumps(record).encode(), mode=_FILE_MODE)
    return is_compiled


def _package_sources() -> list[Path]:
    """The modules of the installed package, found without importing it."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the package {_PACKAGE} is not installed", hint="install jackin-exec again"
        )
    return sorted(Path(spec.submodule_search_locations[0]).glob("*.py"))


def shell_shim() -> bytes:
    """The shim for a capsule without Python, a script for sh and curl.

    Raises: ConfigError when the package is not installed.
    """
    return (_package_sources()[0].parent / SHELL_SHIM_NAME).read_bytes()


def _manifest(sources: dict[str, bytes], interpreter: str) -> list[str]:
    """All that the built programs depend on."""
    digest = hashlib.sha256(__version__.encode())
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    digest.update(_LAUNCHER.encode() + _COMPILE.encode())
    identity = "absent"
    with suppress(OSError):
        found = os.stat(interpreter)
        identity = f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
    return [digest.hexdigest(), interpreter, identity]


def _compile(paths: list[Path], interpreter: str) -> bool:
    argv = [interpreter, "-IS", "-c", _COMPILE, *map(str, paths)]
    try:
        done = subprocess.run(
            argv,
            check=False,
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMPILE_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    for path in (paths[0].parent / "__pycache__").iterdir():
        path.chmod(_FILE_MODE)
    return done.returncode == 0


def _remove_stale(package: Path, names: set[str]) -> None:
    """Drop modules that a newer version no longer has, and bytecode of older sources."""
    for path in package.glob("*.py"):
        if path.name not in names:
            path.unlink()
    for path in (package / "__pycache__").iterdir():
        path.unlink()


def _sync_links(dest: Path, names: Iterable[str]) -> None:
    wanted = set(names)
    for path in dest.iterdir():
        if path.is_symlink() and os.readlink(path) == SHIM_NAME and path.name not in wanted:
            path.unlink()
    for name in wanted:
        link = dest / name
        if link.is_symlink() and os.readlink(link) == SHIM_NAME:
            continue
        if os.path.lexists(link):
            raise ConfigError(f"{link}: is in the way of a program's link", hint="move it away")
        draft = dest / f".{name}.new"
        draft.unlink(missing_ok=True)
        draft.symlink_to(SHIM_NAME)
        draft.rename(link)


def _make_directory(path: Path) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(_DIRECTORY_MODE)
