"""Delivery `prompt`: the value is typed when the command asks for it on its terminal.

When that is, `runner/prompting.py` decides. A caller without a terminal does not matter: the
command gets one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..bindings import Binding, Credential
from ..protocol import StdinKind, Target
from .base import Place, Prepared, Prompt, refused

# What a terminal takes for the end of a line or for something else than text; in canonical mode
# the kernel holds no more than this of one line.
_LINE_MAX_BYTES = 4095


class PromptDelivery:
    """The answer to one question, typed once."""

    def check(self, bindings: Sequence[Binding], place: Place) -> None:
        """Only where we can see who asks.

        Raises: Refusal(SOURCE_FAILED).
        """
        if place.target is Target.CAPSULE:
            raise refused(
                bindings[0],
                "inside a capsule nobody can tell who asks for it",
                hint='the operator may set deliver = "env" or "file" for it',
            )
        if not place.has_terminal and place.stdin is not StdinKind.NONE:
            raise refused(
                bindings[0],
                "it is typed on a terminal, and the agent gave the command a stdin of its own",
                hint="call it with </dev/null, or with -t",
            )

    async def deliver(
        self, credentials: Sequence[Credential], prepared: Prepared, place: Place
    ) -> None:
        """Add the question and its answer.

        Raises: Refusal(SOURCE_FAILED) for what cannot be typed as one line.
        """
        for credential in credentials:
            binding, value = credential.binding, credential.reveal()
            if any(byte < 0x20 or byte == 0x7F for byte in value):
                raise refused(
                    binding,
                    "it holds a newline or a control character, which cannot be typed",
                    hint='the operator may set deliver = "env" or "file" for it',
                )
            if len(value) > _LINE_MAX_BYTES:
                raise refused(
                    binding,
                    f"a terminal takes at most {_LINE_MAX_BYTES} bytes in a line",
                    hint='the operator may set deliver = "env" or "file" for it',
                )
            pattern = binding.prompt.encode("utf-8", "surrogateescape")
            prepared.prompts.append(Prompt(binding.name, pattern, value))
