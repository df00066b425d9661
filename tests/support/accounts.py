"""Accounts that exist for one program and what it starts: a passwd and a shadow of their own.

A mount namespace in which passwd, group and shadow are a test's files: nothing of the machine's own
accounts changes. Needs root. It refuses to know what the program does.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .real import START_LIMIT_S, require_file, require_program, require_root

# $1 the folder with the files; then what to run.
_MOUNT: Final = (
    "for name in passwd group shadow subuid subgid; do "
    '[ ! -e "$1/$name" ] || mount --bind "$1/$name" "/etc/$name" || exit; done; shift; exec "$@"'
)
# Behind the ids of people and services, and of nobody's here: as useradd gives them out.
_SUBORDINATE: Final = "{name}:1000000:65536\n"
# Nobody has logged in since the epoch, and nothing ever expires.
_SHADOW_REST: Final = ":19000:0:99999:7:::"


@dataclass(frozen=True)
class Account:
    """An account; `password_hash` as crypt(3) makes it, `*` for none that would open it."""

    name: str
    uid: int
    home: str
    shell: str = "/bin/bash"
    password_hash: str = "*"


def password_hash(password: str) -> str:
    """The SHA-512 crypt hash of a password, which goes by stdin."""
    openssl = require_program("openssl", package="openssl")
    done = subprocess.run(
        [openssl, "passwd", "-6", "-stdin"],
        input=password.encode(),
        capture_output=True,
        timeout=START_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def with_accounts(
    folder: Path, *accounts: Account, run_as: Account, has_subordinates: bool = False
) -> list[str]:
    """The argv prefix of a program that sees root and these accounts alone, and runs as one.

    It keeps the capability bounding set, so that set-uid programs work below it.
    `has_subordinates`: `run_as` owns a range of ids for its user namespaces.
    """
    require_root()
    if has_subordinates:
        for name in ("subuid", "subgid"):
            require_file(f"/etc/{name}", package="uidmap")
            (folder / name).write_text(_SUBORDINATE.format(name=run_as.name))
    unshare = require_program("unshare", package="util-linux")
    setpriv = require_program("setpriv", package="util-linux")
    (folder / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\n"
        + "".join(f"{a.name}:x:{a.uid}:{a.uid}::{a.home}:{a.shell}\n" for a in accounts)
    )
    # No group `tty`: a terminal then is its user's, as a server without root can arrange it.
    (folder / "group").write_text(
        "root:x:0:\nshadow:x:42:\n" + "".join(f"{a.name}:x:{a.uid}:\n" for a in accounts)
    )
    shadow = folder / "shadow"
    shadow.touch(mode=0o600)
    shadow.write_text(
        f"root:*{_SHADOW_REST}\n"
        + "".join(f"{a.name}:{a.password_hash}{_SHADOW_REST}\n" for a in accounts)
    )
    mounted = [unshare, "--mount", "--propagation", "private", "sh", "-c", _MOUNT, "sh"]
    identity = [f"--reuid={run_as.uid}", f"--regid={run_as.uid}", "--clear-groups"]
    return [*mounted, str(folder), setpriv, *identity, "--"]
