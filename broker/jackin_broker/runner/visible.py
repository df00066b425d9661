"""Whether a confined command would see its own program, and the line to add where it would not.

A command that fails with the loader's or an interpreter's own words is a riddle; this one is asked
before. It refuses to know bubblewrap. Invariants: every missing directory is in one line, which
the configuration takes; a library counts as missing only where the program's file itself, or its
configured LD_LIBRARY_PATH, leads to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..errors import DenialCode, Refusal
from .elf import interpreter_of, needs_of
from .layout import Layout, is_within

if TYPE_CHECKING:
    from .confine import Confinement

# A script's interpreter is a program; one that is a script again is rare, a longer row is none.
_INTERPRETERS_MAX: Final = 4
# Programs bring a dozen libraries of their own; a whole runtime some more.
_LIBRARIES_MAX: Final = 200


def check_visible(
    executable: str, env: Mapping[bytes, bytes], confined: Confinement, layout: Layout
) -> None:
    """Return when the command would see its program, interpreter and own libraries.

    Raises: Refusal(SPAWN_FAILED) with the line to add.
    """
    missing = _programs(executable, layout)
    what = "is in"
    if not missing:
        search = os.fsdecode(env.get(b"LD_LIBRARY_PATH", b"")).split(":")
        missing = _libraries(os.path.realpath(executable), tuple(filter(None, search)), layout)
        what = "needs what is in"
    if missing:
        name = os.path.basename(executable)
        raise Refusal(
            DenialCode.SPAWN_FAILED,
            f"{name} {what} {', '.join(missing)}, which a confined command does not see",
            hint=_hint(missing, confined),
        )


def _programs(executable: str, layout: Layout) -> list[str]:
    """The directories of program and interpreters, by every name, that are not seen."""
    missing: list[str] = []
    path = executable
    for _ in range(_INTERPRETERS_MAX):
        real = os.path.realpath(path)
        for place in (os.path.realpath(os.path.dirname(path)), os.path.dirname(real)):
            _add(missing, place, layout)
        path = interpreter_of(real)
        if not path:
            break
    return missing


def _libraries(program: str, search: tuple[str, ...], layout: Layout) -> list[str]:
    """The directories of its own libraries, and of theirs, that are not seen."""
    missing: list[str] = []
    queue, known = [program], {program}
    while queue and len(known) < _LIBRARIES_MAX:
        needs = needs_of(queue.pop())
        places = (*needs.places, *search)
        for name in needs.libraries if places else ():
            found = _find(name, places)
            if found and found not in known:
                known.add(found)
                queue.append(found)
                _add(missing, os.path.dirname(found), layout)
    return missing


def _find(name: str, places: tuple[str, ...]) -> str:
    """The file, without links, of the first place that has it; none where the system does."""
    for place in places:
        path = os.path.realpath(os.path.join(place, name))
        if os.path.isfile(path):
            return path
    return ""


def _add(missing: list[str], place: str, layout: Layout) -> None:
    if layout.is_visible(place):
        return
    # A virtual environment is more than its programs.
    above = os.path.dirname(place)
    if os.path.exists(os.path.join(above, "pyvenv.cfg")):
        place = above
    if place not in missing:
        missing.append(place)


def _hint(missing: list[str], confined: Confinement) -> str:
    homes = confined.hidden.homes
    if all(any(is_within(place, home) for home in homes) for place in missing):
        paths = (*confined.home_paths, *missing)
        line = ", ".join(_toml(path) for path in paths)
        return f"the operator may add home_paths = [{line}] or confine = false to {confined.table}"
    return (
        "the operator may install it outside of HOME, /tmp and /run, or add confine = false to "
        f"{confined.table}"
    )


def _toml(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
