"""The bridge's token of one capsule: 256 random bits in a file of the operator's own.

It survives the broker, so that a capsule that runs on keeps its way back; each launch gets a new
one, and one that was revoked opens nothing. It refuses to know TCP and HTTP.
Invariants: the file is 0600 in a 0700 directory; a token has no `repr`; it is compared in constant
time; a file that others could have written is not believed.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ..atomic import replace_file
from ..errors import ConfigError
from ..trust import ensure_private_dir

# 256 bits, as 64 hex digits. Source: the seed's "64-char hex".
TOKEN_BYTES: Final = 32
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
# A token and two ports; anything longer was not written here.
_FILE_MAX_BYTES: Final = 4096


class BridgeKey(msgspec.Struct, frozen=True):
    """A capsule's token and the ports that its doorways had, 0 for any."""

    token: str
    http_port: int = 0
    frames_port: int = 0

    def __repr__(self) -> str:
        return f"<bridge key, ports {self.http_port} and {self.frames_port}>"

    def matches(self, candidate: bytes) -> bool:
        """Whether this is the token; how long that takes says nothing of it."""
        return hmac.compare_digest(self.token.encode(), candidate)


def new_key(http_port: int = 0, frames_port: int = 0) -> BridgeKey:
    """A key that nobody has."""
    return BridgeKey(secrets.token_hex(TOKEN_BYTES), http_port, frames_port)


def load_key(path: Path) -> BridgeKey | None:
    """The key in a file, None where there is none.

    Raises: ConfigError for a file that is not ours alone, or holds something else.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _wrong(path, (error.strerror or "cannot be read").lower()) from error
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise _wrong(path, "is not a file of yours")
        if found.st_mode & _OTHERS:
            raise _wrong(path, f"others can read it (mode {stat.S_IMODE(found.st_mode):04o})")
        content = file.read(_FILE_MAX_BYTES)
    try:
        key = msgspec.json.decode(content, type=BridgeKey)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _wrong(path, "does not hold a token") from None
    if len(key.token) != 2 * TOKEN_BYTES:
        raise _wrong(path, "does not hold a token")
    return key


def save_key(path: Path, key: BridgeKey) -> None:
    """Put the key in its file, in place of a former one.

    Raises: ConfigError.
    """
    ensure_private_dir(path.parent)
    try:
        replace_file(path, msgspec.json.encode(key))
    except OSError as error:
        raise _wrong(path, (error.strerror or "cannot be written").lower()) from error


def revoke_key(path: Path) -> None:
    """Forget the key; whoever has it opens nothing with it any more."""
    with suppress(FileNotFoundError):
        path.unlink()


def _wrong(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{path}: {reason}", hint=f"remove it for a new token: rm {path}")
