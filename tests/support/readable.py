"""Our packages where another uid can read them: the working tree may lie in a 0700 home.

It refuses to know what is run with them.
"""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from .real import missing


def readable_copy(place: Path) -> Path:
    """Ours and what it imports, where a second uid can read it."""
    return _copy(place, "jackin_broker", "support", "msgspec", "pexpect", "ptyprocess", "tomlkit")


def readable_programs(place: Path) -> Path:
    """Ours alone, for the installed programs: what they import must be readable where it is."""
    if not is_passable(Path(sys.executable).parent):
        missing(f"a second uid cannot run {sys.executable}: put the environment elsewhere")
    return _copy(place, "jackin_broker", "jackin_capsule", "jackin_picker")


def _copy(place: Path, *names: str) -> Path:
    for name in names:
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        shutil.copytree(spec.submodule_search_locations[0], place / name)
    return place


def is_passable(path: Path) -> bool:
    """Whether others can walk to this path."""
    return all(step.stat().st_mode & 0o001 for step in (path, *path.parents))
