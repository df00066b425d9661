"""How an MCP server is confined: its command line, from nothing but what it needs to run.

It reads what an agent writes, so it sees an interpreter, the packages and no file of anybody's;
it has no network, no environment, no privileges and no place to write to, and ends with the broker.
It refuses to know what is said to it. Blocks on the file system. Source: bwrap(1).
"""

from __future__ import annotations

import functools
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from ..errors import DenialCode, Refusal
from ..runner.probe import NAMESPACE_OPTIONS, abilities

# What a process can fill of the machine's memory; ours takes 90 MB with its packages.
MEMORY_MAX_BYTES: Final = 1024 * 1024 * 1024
# Where the system's libraries are; links into /usr on merged systems.
_SYSTEM: Final = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_LOADER: Final = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_OWN_PACKAGE: Final = Path(__file__).parents[1]
_SITE_NAMES: Final = ("site-packages", "dist-packages")
# Runs without `site`, so that no .pth file is executed; the memory limit stands before anything
# of the agent's is read.
_BOOTSTRAP: Final = """\
import resource, sys
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path += sys.argv[3:]
from jackin_mcp.main import main
main(int(sys.argv[1]))
"""


def server_command(link_fd: int) -> list[str]:
    """The argv that runs a server, which finds its link to the broker at `link_fd`.

    Raises: Refusal(SPAWN_FAILED) where it cannot be confined, or is not installed.
    """
    folders, packages = _where()
    return [
        *confined(_interpreter_words(), (*folders, *packages)),
        *(_BOOTSTRAP, str(link_fd), str(MEMORY_MAX_BYTES)),
        *folders,
        *dict.fromkeys(os.path.dirname(package) for package in packages),
    ]


def confined(program: tuple[str, ...], visible: tuple[str, ...]) -> list[str]:
    """The argv of a program that sees the system's libraries, its interpreter and `visible`.

    Raises: Refusal(SPAWN_FAILED) where bubblewrap does not work.
    """
    can = abilities()
    if not can.bwrap:
        raise Refusal(
            DenialCode.SPAWN_FAILED,
            f"the mcp server must run confined, and {can.why}",
            hint="the operator may install the package bubblewrap",
        )
    words = [can.bwrap, *NAMESPACE_OPTIONS, "--unshare-net"]
    # What can be written there is the machine's memory: no /tmp, and /dev/shm cannot be written.
    words += ["--dev", "/dev", "--remount-ro", "/dev"]
    for path in (*_SYSTEM, *_LOADER):
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            words += ["--ro-bind", path, path]
    for path in dict.fromkeys((*_interpreter_files(), *visible)):
        if not path.startswith("/usr/"):
            words += ["--ro-bind", path, path]
    return [*words, "--remount-ro", "/", "--chdir", "/", "--", *program]


def _interpreter_words() -> tuple[str, ...]:
    return (os.path.realpath(sys.executable), "-I", "-S", "-c")


@functools.cache
def _interpreter_files() -> tuple[str, ...]:
    """Where the interpreter lives when it is not the system's: its whole installation."""
    prefix = os.path.realpath(sys.base_prefix)
    if prefix in {"/", "/usr"}:
        return ()
    return (prefix, os.path.dirname(os.path.realpath(sys.executable)))


@functools.cache
def _where() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders of installed packages, and our own packages' folders.

    Raises: Refusal(SPAWN_FAILED).
    """
    # The first entry may be the directory that the broker was started in: an agent's project.
    path = [place for place in sys.path[1:] if os.path.isabs(place)]
    folders = [place for place in path if Path(place).name in _SITE_NAMES and os.path.isdir(place)]
    packages = [str(_OWN_PACKAGE), _package("jackin_mcp", path)]
    folders.append(os.path.dirname(_package("mcp", folders)))
    return _real(folders), _real(packages)


def _package(name: str, path: list[str]) -> str:
    """The folder of a package in one of these places, without importing it."""
    found = PathFinder.find_spec(name, path)
    places = list(found.submodule_search_locations or ()) if found is not None else []
    if not places:
        raise Refusal(
            DenialCode.SPAWN_FAILED,
            f"the package {name} is not installed on the broker's side",
            hint="the operator may install jackin-exec again, with its dependencies",
        )
    return places[0]


def _real(paths: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))
