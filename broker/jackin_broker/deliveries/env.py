"""Delivery `env`: the value is a variable of the command's environment, and of nobody else's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..bindings import Binding, Credential
from .base import Place, Prepared, add_variable, refused

# What execve and every shell take for a name.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The kernel's limit for one string of the environment, its final NUL included (MAX_ARG_STRLEN).
STRING_MAX_BYTES: Final = 128 * 1024


class EnvDelivery:
    """`NAME=value`; `deliver_as` is the variable's name where it differs from the binding's."""

    def check(self, bindings: Sequence[Binding], place: Place) -> None:
        """Names are all that is known.

        Raises: Refusal(SOURCE_FAILED).
        """
        for binding in bindings:
            variable_of(binding)

    async def deliver(
        self, credentials: Sequence[Credential], prepared: Prepared, place: Place
    ) -> None:
        """Add one variable each.

        Raises: Refusal(SOURCE_FAILED).
        """
        for credential in credentials:
            _deliver(credential, prepared)


def variable_of(binding: Binding, suffix: str = "") -> str:
    """The name of the variable: `deliver_as`, else the binding's with this suffix.

    Raises: Refusal(SOURCE_FAILED) for what is no name of a variable.
    """
    name = binding.deliver_as or binding.name + suffix
    if _NAME.fullmatch(name) is None:
        raise refused(
            binding,
            f"{name!r} is no name of a variable",
            hint="the operator may set deliver_as to a plain name",
        )
    return name


def _deliver(credential: Credential, prepared: Prepared) -> None:
    name = variable_of(credential.binding)
    value = credential.reveal()
    if b"\0" in value:
        raise refused(
            credential.binding,
            "it contains a NUL byte, which no variable can hold",
            hint='the operator may set deliver = "file" for it, or store it as base64',
        )
    if len(name) + 1 + len(value) + 1 > STRING_MAX_BYTES:
        raise refused(
            credential.binding,
            f"the kernel takes at most {STRING_MAX_BYTES} bytes in a variable",
            hint='the operator may set deliver = "file" for it',
        )
    add_variable(credential.binding, name, value, prepared)
