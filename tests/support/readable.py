"""Our packages where another uid can read them: the working tree may lie in a 0700 home.

It refuses to know what is run with them.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path


def readable_copy(place: Path) -> Path:
    """Ours and what it imports, where a second uid can read it."""
    for name in ("jackin_broker", "support", "msgspec", "pexpect", "ptyprocess", "tomlkit"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        shutil.copytree(spec.submodule_search_locations[0], place / name)
    return place


def is_passable(path: Path) -> bool:
    """Whether others can walk to this path."""
    return all(step.stat().st_mode & 0o001 for step in (path, *path.parents))
