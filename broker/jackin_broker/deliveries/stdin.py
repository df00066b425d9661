"""Delivery `stdin`: the value is all that the command reads on its standard input, then EOF."""

from __future__ import annotations

from collections.abc import Sequence

from ..bindings import Binding, Credential
from ..protocol import StdinKind
from .base import Place, Prepared, refused


class StdinDelivery:
    """For programs with an option such as `--password-stdin`."""

    def check(self, bindings: Sequence[Binding], place: Place) -> None:
        """One value, and nobody else's input beside it.

        Raises: Refusal(SOURCE_FAILED).
        """
        first, *others = bindings
        if others:
            raise refused(
                others[0],
                f"{first.name} is delivered on stdin too, and there is one stdin",
                hint="tick one of them",
            )
        if place.stdin is not StdinKind.NONE:
            raise refused(
                first,
                "it goes to stdin, and the agent gave the command a stdin of its own",
                hint="call it with </dev/null, so that stdin is free for the value",
            )
        if place.has_terminal:
            raise refused(
                first,
                "it goes to stdin, and the command has a terminal there",
                hint="call it without a terminal, or the operator may set "
                'deliver = "prompt" for it',
            )

    async def deliver(
        self, credentials: Sequence[Credential], prepared: Prepared, place: Place
    ) -> None:
        """Take the one value, to the byte: no newline is added."""
        prepared.stdin = credentials[0].reveal()
