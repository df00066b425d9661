"""Which credentials become needles, and which cannot: the one place that asks.

It refuses to know streams; it reads values, as the needle maker must.
"""

from __future__ import annotations

from collections.abc import Iterable

from .bindings import Binding, Credential, Delivery, Redact, ValueSource
from .errors import DenialCode, JackinError, Refusal
from .redact import needles


def has_needles(binding: Binding) -> bool:
    """Whether this binding's value must not appear in the output.

    A key in an ssh-agent never enters the command, so a needle would only be an oracle.
    """
    return binding.redact is not Redact.OFF and binding.delivery is not Delivery.SSH_AGENT


def unredactable_words(binding: Binding) -> str:
    """Why the prompt can already say that this value cannot be masked; empty if it cannot.

    Only a value that stands in the configuration is known before it is asked for.
    """
    if not has_needles(binding) or not isinstance(binding.source, ValueSource):
        return ""
    return needles.refusal_of(binding.source.value.encode("utf-8", "surrogateescape")) or ""


def check_redactable(credentials: Iterable[Credential]) -> None:
    """Return when each value that must be masked can be.

    Raises: Refusal(UNREDACTABLE) that names the binding.
    """
    for credential in credentials:
        if not has_needles(credential.binding):
            continue
        why = needles.refusal_of(credential.reveal())
        if why is not None:
            raise Refusal(
                DenialCode.UNREDACTABLE,
                f"the value of {credential.binding.name} cannot be redacted: {why}",
                hint='the operator may store another value, or set redact = "off" for that binding',
            )


def needles_of(credentials: Iterable[Credential]) -> needles.NeedleSet:
    """The needles of one command.

    Raises: JackinError without a cause: what failed could quote a value in its message.
    """
    try:
        return needles.build(
            (credential.binding.name, credential.reveal(), credential.binding.redact)
            for credential in credentials
            if has_needles(credential.binding)
        )
    except Exception as error:  # the command has not started: this becomes a denial
        kind = type(error).__name__
    raise JackinError(f"the needles of the command could not be made ({kind})")
