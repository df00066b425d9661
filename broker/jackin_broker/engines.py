"""What docker or podman says of a container: its first process, and how that was started.

The engine's word is the proof of who a container's init is (DESIGN §4); nobody inside can give it.
It refuses to know capsules. Invariants: an engine gets an environment of its own settings and
nothing else; every question has a limit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from .errors import ConfigError

# An engine that pulls nothing answers in a tenth of a second.
ANSWER_LIMIT_S: Final = 20.0
PACKAGES: Final = {"docker": "docker.io", "podman": "podman"}
# Where the engine is and what it reads; never a credential's variable.
_PASSED: Final = (
    *("PATH", "HOME", "USER", "LANG", "TMPDIR"),
    # A rootless podman keeps its images below the one and finds its containers by the other.
    *("XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"),
)
_PASSED_PREFIXES: Final = ("DOCKER_", "CONTAINER_", "CONTAINERS_")
_LINE_MAX_CHARS: Final = 200


@dataclass(frozen=True)
class Container:
    """A running container. `pid` is its init's on the host, `argv` how that was started.

    `mounts` are the host directories that are mounted read-only, by their place inside.
    """

    pid: int
    id: str
    argv: tuple[str, ...]
    mounts: Mapping[str, str]


def engine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What an engine's own program needs of ours."""
    return {
        name: value
        for name, value in environ.items()
        if name in _PASSED or name.startswith(_PASSED_PREFIXES)
    }


def find_engine(engine: str, environ: Mapping[str, str]) -> str:
    """The path of the engine's program.

    Raises: ConfigError that names the package.
    """
    path = shutil.which(engine, path=environ.get("PATH", os.defpath))
    if path is None:
        raise ConfigError(f"{engine} is missing", hint=f"apt-get install {PACKAGES[engine]}")
    return path


def inspect(engine: str, name: str, environ: Mapping[str, str]) -> Container | None:
    """The running container of that name or id, None when there is none.

    Raises: ConfigError when the engine cannot be asked.
    """
    done = ask_engine(engine, ["container", "inspect", name], environ)
    if done.returncode != 0:
        words = done.stderr.strip().lower()
        if "no such" in words or "not found" in words:
            return None
        raise ConfigError(
            f"{engine} does not answer: {last_line(done.stderr)}",
            hint=f"check that you can run: {engine} ps",
        )
    return _container(engine, done.stdout)


def ask_engine(
    engine: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    limit_s: float = ANSWER_LIMIT_S,
) -> subprocess.CompletedProcess[str]:
    """One ended command of the engine's.

    Raises: ConfigError when it is missing, or does not end.
    """
    try:
        return subprocess.run(
            [find_engine(engine, environ), *argv],
            env=engine_environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=limit_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"{engine} did not answer within {limit_s:g} s",
            hint=f"check that you can run: {engine} ps",
        ) from error


def last_line(text: str) -> str:
    """What a program said at its end, short enough for one line."""
    lines = text.strip().splitlines()
    return lines[-1].strip()[:_LINE_MAX_CHARS] if lines else "it said nothing"


def _container(engine: str, text: str) -> Container | None:
    try:
        (found,) = cast("list[Any]", json.loads(text))
        if found["State"]["Pid"] <= 0:
            return None
        mounts = found["Mounts"] or ()
        fixed = {one["Destination"]: one["Source"] for one in mounts if not one["RW"]}
        argv = (str(found["Path"]), *(str(word) for word in found["Args"] or ()))
        return Container(int(found["State"]["Pid"]), str(found["Id"]), argv, fixed)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{engine} gave an answer that does not fit") from error
