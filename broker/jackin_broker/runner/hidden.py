"""What no confined command may see: homes, our own directories, the sockets of the session.

It refuses to know commands and bubblewrap. The environment is passed in.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..passphrase import PASSPHRASE_FILE_VARIABLE

# Where sockets that can act as the operator live by convention; /tmp and /run are emptied
# anyway, but a project may lie, and so be shown, around one of these.
_USUAL_PLACES = (
    "/tmp/tmux-{uid}",  # noqa: S108 - tmux's own choice
    "/tmp/.X11-unix",  # noqa: S108 - X's own choice
    "/run/user/{uid}",
    "/run/dbus",
    "/run/docker.sock",
    "/run/podman",
    "/run/containerd",
)


@dataclass(frozen=True)
class Hidden:
    """Absolute paths without links. `homes`: HOME and the passwd entry's, HOME first."""

    homes: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def hidden_from(trust_roots: Iterable[str | Path], environ: Mapping[str, str]) -> Hidden:
    """What to hide on this machine.

    `trust_roots`: configuration, state and runtime directories (`Paths.trust_roots`).
    """
    uid = os.geteuid()
    homes = [environ.get("HOME", "")]
    with contextlib.suppress(KeyError):  # a uid without an entry has no second home
        homes.append(pwd.getpwuid(uid).pw_dir)
    paths = [*(str(root) for root in trust_roots), *_session_sockets(environ)]
    paths += [place.format(uid=uid) for place in _USUAL_PLACES]
    return Hidden(_real(homes), _real(paths))


def _session_sockets(environ: Mapping[str, str]) -> list[str]:
    """The paths that this session's variables name: sockets, and files with secrets."""
    found = [environ.get(name, "") for name in ("SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "XAUTHORITY")]
    found.append(environ.get("GNOME_KEYRING_CONTROL", ""))
    found.append(environ.get(PASSPHRASE_FILE_VARIABLE, ""))
    found.append(environ.get("TMUX", "").partition(",")[0])
    found.append(environ.get("DOCKER_HOST", "").removeprefix("unix://"))
    for address in environ.get("DBUS_SESSION_BUS_ADDRESS", "").split(";"):
        for option in address.removeprefix("unix:").split(","):
            key, _, value = option.partition("=")
            if key == "path":
                found.append(value)
    return found


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    absolute = (os.path.realpath(path) for path in paths if os.path.isabs(path))
    return tuple(dict.fromkeys(path for path in absolute if path != "/"))
