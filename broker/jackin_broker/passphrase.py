"""The vault's passphrase from a file, for programs that nobody sits in front of.

`JACKIN_VAULT_PASSPHRASE_FILE` names it; only its owner may be able to read it. It refuses to
know terminals: the hidden prompt is the command line's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Final

from .errors import ConfigError

PASSPHRASE_FILE_VARIABLE: Final = "JACKIN_VAULT_PASSPHRASE_FILE"  # noqa: S105 - a name
# The one that `vault change` sets.
NEW_PASSPHRASE_FILE_VARIABLE: Final = "JACKIN_VAULT_NEW_PASSPHRASE_FILE"  # noqa: S105 - a name
PASSPHRASE_VARIABLES: Final = frozenset({PASSPHRASE_FILE_VARIABLE, NEW_PASSPHRASE_FILE_VARIABLE})
# A passphrase is a line; a longer file is surely another one.
PASSPHRASE_MAX_BYTES: Final = 4096


def from_file(environ: Mapping[str, str], variable: str = PASSPHRASE_FILE_VARIABLE) -> str | None:
    """The passphrase, less one newline at its end; None where the variable is not set.

    Raises: ConfigError where the file cannot be used, or others may read it.
    """
    path = environ.get(variable, "")
    if not path:
        return None
    content = _read_private(path, variable).removesuffix(b"\n").removesuffix(b"\r")
    if not content:
        raise _refused(variable, path, "is empty", hint="write the passphrase into it")
    try:
        return content.decode()
    except UnicodeDecodeError:
        pass  # raised below: that exception carries the content
    raise _refused(variable, path, "is not UTF-8 text", hint="write the passphrase into it")


def _read_private(path: str, variable: str) -> bytes:
    try:
        # O_NONBLOCK: opening a FIFO must not wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(variable, path, f"cannot be read: {error.strerror}") from error
    try:
        _check_file(path, os.fstat(fd), variable)
        with open(fd, "rb", closefd=False) as file:
            content = file.read(PASSPHRASE_MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(content) > PASSPHRASE_MAX_BYTES:
        raise _refused(variable, path, f"is over {PASSPHRASE_MAX_BYTES} bytes")
    return content


def _check_file(path: str, status: os.stat_result, variable: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _refused(variable, path, "is not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise _refused(variable, path, "belongs to another uid", hint="use a file of your own")
    if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise _refused(variable, path, "can be read by others", hint=f"chmod 600 {path}")


def _refused(variable: str, path: str, how: str, *, hint: str = "") -> ConfigError:
    return ConfigError(f"{variable}: {path} {how}", hint=hint)
