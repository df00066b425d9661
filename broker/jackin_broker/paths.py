"""Where things live: configuration, state, the operator's doorway, the capsules' directories.

It refuses to know what is in any of them. The XDG directories are read from the environment
that is passed in; a relative one is ignored, as the specification says.
Invariants: no socket path is longer than SOCKET_PATH_MAX_BYTES; every program that asks with the
same environment gets the same answer; the operator's socket never moves with
`[broker] runtime_dir`, so that the command line finds it without reading the configuration.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import ConfigError
from .trust import is_owned_directory

APPLICATION: Final = "jackin-exec"
# sun_path holds 108 bytes on Linux and 104 on macOS, both with their final NUL.
SOCKET_PATH_MAX_BYTES: Final = 103
SOCKET_NAME: Final = "broker.sock"
# 48 bits of SHA-256: one operator has a handful of capsules, and a configuration in which two
# names collide is refused by the kernel's bind, never merged.
_SHORT_NAME_DIGITS: Final = 12
# Begins with a character that no capsule's name may begin with.
_SHORT_NAME_MARK: Final = "~"
_LONGEST_SUFFIX: Final = f"/capsules/{_SHORT_NAME_MARK}{'0' * _SHORT_NAME_DIGITS}/{SOCKET_NAME}"
# The kernel's own limit (MAXSYMLINKS in path_resolution(7)).
_LINKS_MAX: Final = 40

# Where capsules see what is mounted into them (DESIGN §14).
CAPSULE_RUN_DIR: Final = "/jackin/run"
CAPSULE_BIN_DIR: Final = "/jackin/bin"


@dataclass(frozen=True)
class Paths:
    """Every place, as absolute paths. `private_dir` holds what is the operator's alone."""

    config_dir: Path
    state_dir: Path
    private_dir: Path
    runtime_dir: Path

    @property
    def config_file(self) -> Path:
        """The one configuration file."""
        return self.config_dir / "config.toml"

    @property
    def audit_file(self) -> Path:
        """The record."""
        return self.state_dir / "audit.jsonl"

    @property
    def vault_file(self) -> Path:
        """The embedded keyring, an age file."""
        return self.state_dir / "vault.age"

    @property
    def log_file(self) -> Path:
        """What the broker says about itself."""
        return self.state_dir / "broker.log"

    @property
    def operator_socket(self) -> Path:
        """The doorway of picker and command line; never mounted anywhere."""
        return self.private_dir / "operator.sock"

    @property
    def lock_file(self) -> Path:
        """Held by the one broker that runs."""
        return self.private_dir / "broker.lock"

    @property
    def trust_roots(self) -> tuple[Path, ...]:
        """The places that no capsule may mount and no command may see.

        A configuration that is a link is where the link leads, too: kept with other dotfiles,
        it must not lie in a project.
        """
        roots = (self.config_dir, self.state_dir, self.private_dir, self.runtime_dir)
        return tuple(dict.fromkeys((*roots, *_leads_to(self.config_file))))

    @property
    def links_dir(self) -> Path:
        """What `links sync` made, directory by directory."""
        return self.state_dir / "links"

    def capsule_dir(self, name: str) -> Path:
        """The directory that is mounted at /jackin/run in this capsule.

        Raises: ConfigError for a name that is not one path component.
        """
        _check_name(name)
        directory = self.runtime_dir / "capsules" / name
        if len(os.fsencode(directory / SOCKET_NAME)) <= SOCKET_PATH_MAX_BYTES:
            return directory
        return self.runtime_dir / "capsules" / (_SHORT_NAME_MARK + _digest(name))

    def capsule_socket(self, name: str) -> Path:
        """Where this capsule's requests arrive.

        Raises: ConfigError for a name that is not one path component.
        """
        return self.capsule_dir(name) / SOCKET_NAME

    def bridge_file(self, name: str) -> Path:
        """This capsule's bridge key, in a place that is never mounted.

        Raises: ConfigError for a name that is not one path component.
        """
        _check_name(name)
        return self.private_dir / "bridge" / f"{name}.json"

    def shim_dir(self, name: str) -> Path:
        """The programs that are mounted at /jackin/bin in this capsule.

        Raises: ConfigError for a name that is not one path component.
        """
        return self.runtime_dir / "shims" / self.capsule_dir(name).name


def resolve(environ: Mapping[str, str], runtime_dir: str = "") -> Paths:
    """The places for this environment; `runtime_dir` is `[broker] runtime_dir`.

    Raises: ConfigError when HOME is unknown or `runtime_dir` is relative.
    """
    home = _home(environ)
    uid = os.geteuid()
    state = _xdg(environ, "XDG_STATE_HOME", home / ".local" / "state") / APPLICATION
    private = _bindable(_runtime_base(environ, uid) or state / "run", uid)
    return Paths(
        config_dir=_xdg(environ, "XDG_CONFIG_HOME", home / ".config") / APPLICATION,
        state_dir=state,
        private_dir=private,
        runtime_dir=_override(runtime_dir, home, uid) if runtime_dir else private,
    )


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME", "")
    if os.path.isabs(home):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        raise ConfigError(
            f"HOME is not set and uid {os.geteuid()} has no passwd entry",
            hint="set HOME to a directory of your own",
        ) from None


def _leads_to(path: Path) -> list[Path]:
    """Each place that a link leads to, one after the other; none for what is no link."""
    places: list[Path] = []
    while path.is_symlink() and len(places) < _LINKS_MAX:
        path = path.parent / path.readlink()
        places.append(Path(os.path.normpath(path)))
    return places


def _xdg(environ: Mapping[str, str], variable: str, default: Path) -> Path:
    value = environ.get(variable, "")
    return Path(value) if os.path.isabs(value) else default


def _runtime_base(environ: Mapping[str, str], uid: int) -> Path | None:
    """Our directory in the first runtime directory that is really ours, if any.

    After `su` XDG_RUNTIME_DIR is somebody else's: it is passed over. Root's own place is /run,
    which every capsule's uid can pass through.
    """
    candidates = [environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{uid}"]
    if uid == 0:
        candidates.append("/run")
    for candidate in candidates:
        if os.path.isabs(candidate) and is_owned_directory(candidate, uid):
            return Path(candidate) / APPLICATION
    return None


def _override(runtime_dir: str, home: Path, uid: int) -> Path:
    text = str(home) + runtime_dir[1:] if runtime_dir.split("/")[0] == "~" else runtime_dir
    if not os.path.isabs(text):
        raise ConfigError(
            "broker.runtime_dir: must be an absolute path",
            hint='write it as in runtime_dir = "/run/jackin-exec-me"',
        )
    return _bindable(Path(os.path.normpath(text)), uid)


def _bindable(directory: Path, uid: int) -> Path:
    """The directory, or a short one in /tmp that stands for it when sockets would not fit."""
    if len(os.fsencode(directory)) + len(_LONGEST_SUFFIX) <= SOCKET_PATH_MAX_BYTES:
        return directory
    return Path(f"/tmp/{APPLICATION}-{uid}-{_digest(str(directory))}")  # noqa: S108 - made 0700 and refused unless ours (trust.py)


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:_SHORT_NAME_DIGITS]


def _check_name(name: str) -> None:
    if not name or name.startswith((".", _SHORT_NAME_MARK)) or "/" in name or "\0" in name:
        raise ConfigError(f"capsules.{name!r}: a capsule's name must be a plain word")
