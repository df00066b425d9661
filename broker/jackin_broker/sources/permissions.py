"""Who else could read or change where a value comes from: warnings, for `config check` and doctor.

It looks at owners and modes, never at a value. What is not there yet is no warning: resolving says
so. Access lists beyond the mode are not read.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ..bindings import Binding, CommandSource, FileSource, OpSource
from ..errors import ConfigError
from ..trust import check_trusted

_OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH
_OP: Final = "op"


def permission_warnings(bindings: Iterable[Binding], environ: Mapping[str, str]) -> Iterator[str]:
    """One line for each binding whose source others can read or change.

    Blocks on the file system.
    """
    for binding in bindings:
        words = _warning(binding, environ)
        if words:
            yield f"env.{binding.name}: {words}"


def _warning(binding: Binding, environ: Mapping[str, str]) -> str:
    match binding.source:
        case FileSource(path):
            return _of_file(Path(os.path.expanduser(path)))
        case CommandSource(argv):
            return _of_program(argv[0], environ)
        case OpSource():
            return _of_program(_OP, environ)
        case _:
            return ""


def _of_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if mode & _OTHERS_READ:
        shown = f"{stat.S_IMODE(mode):04o}"
        return f"{path} can be read by others (mode {shown}), chmod 0600 {path}"
    return _untrusted(path)


def _of_program(name: str, environ: Mapping[str, str]) -> str:
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    return _untrusted(Path(found).absolute()) if found else ""


def _untrusted(path: Path) -> str:
    try:
        check_trusted(path)
    except ConfigError as error:
        return f"{error}, so others decide what the value is"
    return ""
