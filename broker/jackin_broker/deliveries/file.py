"""Delivery `file`: a file of the command's own holds the value, a variable says where.

Confined, the file exists in the command's own mounts alone and never on the host. Unconfined, it
is in a directory of the command's own that nobody else can enter, removed when the command ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ..bindings import Binding, Credential
from .base import COMMAND_DIR, Place, Prepared, PrivateFile, add_variable, refused
from .env import variable_of

_SUFFIX: Final = "_FILE"
_ARMOUR: Final = b"-----BEGIN "


class FileDelivery:
    """`NAME_FILE=/path`; `deliver_as` is the variable's name where it is to be another."""

    def check(self, bindings: Sequence[Binding], place: Place) -> None:
        """Names are all that is known, and whether there is a place that the agent cannot see.

        Raises: Refusal(SOURCE_FAILED).
        """
        if place.why_no_files:
            raise refused(
                bindings[0],
                place.why_no_files,
                hint='the operator may set deliver = "env" for it',
            )
        for binding in bindings:
            variable_of(binding, _SUFFIX)

    async def deliver(
        self, credentials: Sequence[Credential], prepared: Prepared, place: Place
    ) -> None:
        """Add a file and a variable each.

        Raises: Refusal(SOURCE_FAILED), ConfigError, OSError.
        """
        for credential in credentials:
            binding, content = credential.binding, as_file(credential.reveal())
            if place.is_confined:
                path = f"{COMMAND_DIR}/{binding.name}"
                prepared.files.append(PrivateFile(path, content))
            else:
                path = os.fspath(prepared.directory(place.scratch) / binding.name)
                # By itself, too: it takes no descriptor, of which there may be none left.
                prepared.cleanups.append(partial(_remove, path))
                write_private(path, content)
            name = variable_of(binding, _SUFFIX)
            add_variable(binding, name, os.fsencode(path), prepared)


def as_file(value: bytes) -> bytes:
    """The value as a file's content.

    A source takes the newline at the end away, and OpenSSL reads no armoured key without it.
    """
    if value.startswith(_ARMOUR) and not value.endswith(b"\n"):
        return value + b"\n"
    return value


async def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def write_private(path: str, content: bytes) -> None:
    """Make a file that the operator alone can read.

    Raises: OSError; FileExistsError too, nothing is ever written into a file that is there.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(content)
