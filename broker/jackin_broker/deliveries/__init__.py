"""Deliveries: how a command gets a value. One file each, with the contract in `base.py`.

What can be known without a value is checked before any source is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from ..bindings import Binding, Credential, Delivery
from .base import Deliverer, Place, Prepared, PrivateFile, PrivateSocket, Prompt
from .env import EnvDelivery
from .file import FileDelivery
from .prompt import PromptDelivery
from .scratch import Scratch, scratch_root
from .ssh_agent import SshAgentDelivery
from .stdin import StdinDelivery

__all__ = [
    "Place",
    "Prepared",
    "PrivateFile",
    "PrivateSocket",
    "Prompt",
    "Scratch",
    "check_deliverable",
    "prepare",
    "scratch_root",
]

_DELIVERERS: Final[dict[Delivery, Deliverer]] = {
    Delivery.ENV: EnvDelivery(),
    Delivery.FILE: FileDelivery(),
    Delivery.STDIN: StdinDelivery(),
    Delivery.PROMPT: PromptDelivery(),
    Delivery.SSH_AGENT: SshAgentDelivery(),
}

B = TypeVar("B", Binding, Credential)


def check_deliverable(bindings: Iterable[Binding], place: Place) -> None:
    """Return when all of these can go to that place; to be called before any value is resolved.

    Raises: Refusal(SOURCE_FAILED) that names the first which cannot.
    """
    for delivery, group in _grouped([(binding.delivery, binding) for binding in bindings]):
        _DELIVERERS[delivery].check(group, place)


async def prepare(credentials: Sequence[Credential], place: Place) -> Prepared:
    """What the command of these credentials gets at that place.

    Raises: Refusal(SOURCE_FAILED); what was made before is taken back.
    """
    check_deliverable([credential.binding for credential in credentials], place)
    prepared = Prepared()
    try:
        for delivery, group in _grouped([(one.binding.delivery, one) for one in credentials]):
            await _DELIVERERS[delivery].deliver(group, prepared, place)
    except BaseException:
        await prepared.clean()
        raise
    return prepared


def _grouped(items: Sequence[tuple[Delivery, B]]) -> Iterator[tuple[Delivery, list[B]]]:
    """The items of each delivery together, in their order."""
    for delivery in dict.fromkeys(kind for kind, _ in items):
        yield delivery, [item for kind, item in items if kind is delivery]
