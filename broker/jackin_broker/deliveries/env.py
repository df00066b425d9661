"""Delivery `env`: the value is a variable of the command's environment, and of nobody else's."""

from __future__ import annotations

import re
from typing import Final

from ..bindings import Credential
from .base import Prepared, refused

# What execve and every shell take for a name.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The kernel's limit for one string of the environment, its final NUL included (MAX_ARG_STRLEN).
STRING_MAX_BYTES: Final = 128 * 1024


class EnvDelivery:
    """`NAME=value`; `deliver_as` is the variable's name where it differs from the binding's."""

    async def deliver(self, credential: Credential, prepared: Prepared) -> None:
        """Add one variable.

        Raises: Refusal(SOURCE_FAILED).
        """
        name = credential.binding.deliver_as or credential.binding.name
        value = credential.reveal()
        if _NAME.fullmatch(name) is None:
            raise refused(
                credential,
                f"{name!r} is no name of a variable",
                hint="the operator may set deliver_as to a plain name",
            )
        if b"\0" in value:
            raise refused(
                credential,
                "it contains a NUL byte, which no variable can hold",
                hint="the operator may store it encoded, as base64 for example",
            )
        if len(name) + 1 + len(value) + 1 > STRING_MAX_BYTES:
            raise refused(
                credential,
                f"the kernel takes at most {STRING_MAX_BYTES} bytes in a variable",
                hint="the operator may store it in a file that the command reads",
            )
        key = name.encode("ascii")
        if key in prepared.env:
            raise refused(
                credential,
                f"another of the ticked credentials is delivered as {name} too",
                hint="tick one of them, or give one another deliver_as",
            )
        prepared.env[key] = value
