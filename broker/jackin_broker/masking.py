"""Which credentials become needles, and which cannot: the one place that asks.

It refuses to know streams; it reads values, as the needle maker must.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

from .bindings import Binding, Credential, Delivery, EnvSource, Redact, ValueSource
from .errors import DenialCode, JackinError, Refusal
from .redact import needles


def has_needles(binding: Binding) -> bool:
    """Whether this binding's value must not appear in the output.

    A key in an ssh-agent never enters the command, so a needle would only be an oracle.
    """
    return binding.redact is not Redact.OFF and binding.delivery is not Delivery.SSH_AGENT


class Unredactable:
    """Why the values of some bindings could not be masked when they were last seen.

    The reasons alone, for the broker's life; a value is seen when it is delivered or checked. A
    binding that is configured otherwise is another one.
    """

    def __init__(self) -> None:
        self._reasons: Final[dict[Binding, str]] = {}

    def note(self, binding: Binding, why: str | None) -> None:
        """Its value was looked at: `why` it cannot be masked, None if it can."""
        if why is None:
            self._reasons.pop(binding, None)
        else:
            self._reasons[binding] = why

    def forget(self) -> None:
        """The configuration was read again: what was stored since is not known."""
        self._reasons.clear()

    def words(self, binding: Binding) -> str:
        """Why the prompt can already say that this value cannot be masked; empty if it cannot.

        What stands in the configuration is known before it is asked for.
        """
        if not has_needles(binding):
            return ""
        if isinstance(binding.source, ValueSource):
            value = binding.source.value.encode("utf-8", "surrogateescape")
            return needles.refusal_of(value) or ""
        return self._reasons.get(binding, "")


def check_redactable(credentials: Iterable[Credential], known: Unredactable) -> None:
    """Return when each value that must be masked can be; all are noted in `known` first.

    Raises: Refusal(UNREDACTABLE) that names the binding.
    """
    refused: list[tuple[str, str]] = []
    for credential in credentials:
        if not has_needles(credential.binding):
            continue
        why = needles.refusal_of(credential.reveal())
        known.note(credential.binding, why)
        if why is not None:
            refused.append((credential.binding.name, why))
    for name, why in refused:
        raise Refusal(
            DenialCode.UNREDACTABLE,
            f"the value of {name} cannot be redacted: it {why}",
            hint='the operator may store another value, or set redact = "off" for that binding',
        )


def known_needles(bindings: Iterable[Binding], environ: Mapping[str, str]) -> needles.NeedleSet:
    """The needles of values that stand in the configuration or in the environment.

    For what is written down before a request is decided, when no source may be asked.
    """
    known: list[tuple[str, bytes, Redact]] = []
    for binding in bindings:
        match binding.source:
            case ValueSource(value) if binding.on_demand and has_needles(binding):
                known.append((binding.name, value.encode("utf-8", "surrogateescape"), Redact.ON))
            case EnvSource(variable) if binding.on_demand and has_needles(binding):
                known.append((binding.name, os.fsencode(environ.get(variable, "")), Redact.ON))
            case _:
                pass
    return needles.build(known)


def needles_of(credentials: Iterable[Credential]) -> needles.NeedleSet:
    """The needles of one command.

    Raises: JackinError without a cause: what failed could quote a value in its message.
    """
    try:
        return needles.build(
            (credential.masked_as, credential.reveal(), credential.binding.redact)
            for credential in credentials
            if has_needles(credential.binding)
        )
    except Exception as error:  # the command has not started: this becomes a denial
        kind = type(error).__name__
    raise JackinError(f"the needles of the command could not be made ({kind})")
