"""A plan as the operator sees it: everything that is shown, nothing that is secret.

Texts are raw here; `display.py` says what may be shown of them.
"""

from __future__ import annotations

import os

from .bindings import Binding, Delivery, Redact, describe_source
from .deliveries import is_supported
from .guessing import WARNING
from .masking import unredactable_words
from .operator_protocol import BindingView, FileOperandView, RequestView
from .peer import Caller
from .plan import Plan
from .protocol import text_from_bytes


def view_of(plan: Plan, request_id: str, caller: Caller) -> RequestView:
    """All that the operator is shown."""
    message = plan.message
    return RequestView(
        id=request_id,
        capsule=plan.capsule.name,
        capsule_kind=plan.capsule.kind.value,
        command=message.command,
        args=message.args,
        cwd=text_from_bytes(plan.workdir.host_path),
        capsule_cwd=message.cwd,
        cwd_writable=plan.workdir.is_agent_writable,
        binary_path=text_from_bytes(os.fsencode(plan.binary.path)),
        target=plan.target,
        confinement=plan.confinement.describe(),
        stdin=plan.stdin,
        tty=message.tty,
        reason=message.reason,
        want=message.want,
        bindings=tuple(
            _binding_view(
                binding,
                wanted=binding.name in message.want,
                is_suspended=binding.name in plan.suspended,
            )
            for binding in plan.bindings.values()
        ),
        files=tuple(
            FileOperandView(text_from_bytes(file.path), file.size_bytes, file.sha256)
            for file in plan.files
        ),
        asked_by=caller.chain,
        notices=plan.notices,
    )


def _binding_view(binding: Binding, *, wanted: bool, is_suspended: bool) -> BindingView:
    warnings: list[str] = []
    if is_suspended:
        warnings.append(WARNING)
    if binding.redact is Redact.OFF:
        warnings.append('its value is not taken out of the output (redact = "off")')
    if why := unredactable_words(binding):
        warnings.append(f"its value cannot be redacted, so it will not be delivered: {why}")
    if not is_supported(binding.delivery):
        warnings.append(f"delivery {binding.delivery.value} is not part of this version")
    elif binding.delivery is not Delivery.ENV and binding.deliver_as:
        warnings.append(f"delivered as {binding.deliver_as}")
    return BindingView(
        binding.name,
        describe_source(binding.source),
        binding.delivery.value,
        binding.label,
        wanted,
        tuple(warnings),
    )
