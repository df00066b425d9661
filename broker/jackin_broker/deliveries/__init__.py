"""Deliveries: how a command gets a value. One file each, with the contract in `base.py`.

A delivery that this version does not have is refused before any source is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..bindings import Binding, Credential, Delivery
from ..errors import DenialCode, Refusal
from .base import Deliverer, Prepared
from .env import EnvDelivery

__all__ = ["Prepared", "check_supported", "is_supported", "prepare"]

_DELIVERERS: Final[dict[Delivery, Deliverer]] = {Delivery.ENV: EnvDelivery()}


def is_supported(delivery: Delivery) -> bool:
    """Whether this version can deliver that way."""
    return delivery in _DELIVERERS


def check_supported(bindings: Iterable[Binding]) -> None:
    """Return when all of these can be delivered; to be called before any value is resolved.

    Raises: Refusal(SOURCE_FAILED) that names the first which cannot.
    """
    for binding in bindings:
        if not is_supported(binding.delivery):
            raise Refusal(
                DenialCode.SOURCE_FAILED,
                f"{binding.name} is to be delivered by {binding.delivery.value}, "
                "which this version does not do",
                hint='the operator may set deliver = "env" for it, or leave it unticked',
            )


async def prepare(credentials: Sequence[Credential]) -> Prepared:
    """What the command of these credentials gets.

    Raises: Refusal(SOURCE_FAILED); what was made before is taken back.
    """
    check_supported(credential.binding for credential in credentials)
    prepared = Prepared()
    try:
        for credential in credentials:
            await _DELIVERERS[credential.binding.delivery].deliver(credential, prepared)
    except BaseException:
        await prepared.clean()
        raise
    return prepared
