"""A plan as the operator sees it: everything that is shown, nothing that is secret.

Texts are raw here; `display.py` says what may be shown of them.
"""

from __future__ import annotations

import os
from collections.abc import Container

from .bindings import Binding, Redact, describe_source
from .guessing import WARNING
from .masking import Unredactable
from .operator_protocol import BindingView, CredentialView, FileOperandView, RequestView
from .peer import Caller
from .plan import Plan
from .protocol import text_from_bytes


def view_of(plan: Plan, request_id: str, caller: Caller, unredactable: Unredactable) -> RequestView:
    """All that the operator is shown."""
    message = plan.message
    return RequestView(
        id=request_id,
        capsule=plan.capsule.name,
        capsule_kind=plan.capsule.kind.value,
        command=message.command,
        args=message.args,
        cwd=text_from_bytes(plan.shown_cwd),
        capsule_cwd=message.cwd,
        cwd_writable=plan.workdir.is_agent_writable,
        binary_path=text_from_bytes(os.fsencode(plan.program)),
        target=plan.target,
        confinement=plan.confinement.describe(),
        stdin=plan.stdin,
        tty=message.tty,
        reason=message.reason,
        want=message.want,
        bindings=tuple(
            _binding_view(
                binding,
                _warnings(binding, unredactable, is_suspended=binding.name in plan.suspended),
                wanted=binding.name in message.want,
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


def credential_view(
    binding: Binding, capsule: str, suspended: Container[str], unredactable: Unredactable
) -> CredentialView:
    """An `[env]` entry as the operator sees it; `capsule` is empty for a shared one."""
    return CredentialView(
        binding.name,
        describe_source(binding.source),
        _delivery(binding),
        binding.label,
        capsule,
        binding.on_demand,
        _warnings(binding, unredactable, is_suspended=binding.name in suspended),
    )


def _binding_view(binding: Binding, warnings: tuple[str, ...], *, wanted: bool) -> BindingView:
    return BindingView(
        binding.name,
        describe_source(binding.source),
        _delivery(binding),
        binding.label,
        wanted,
        warnings,
    )


def _delivery(binding: Binding) -> str:
    """How it is delivered, and under which name where it is not its own."""
    words = binding.delivery.value
    return f"{words} as {binding.deliver_as}" if binding.deliver_as else words


def _warnings(
    binding: Binding, unredactable: Unredactable, *, is_suspended: bool
) -> tuple[str, ...]:
    warnings: list[str] = []
    if is_suspended:
        warnings.append(WARNING)
    if binding.redact is Redact.OFF:
        warnings.append('its value is not taken out of the output (redact = "off")')
    if why := unredactable.words(binding):
        warnings.append(f"its value cannot be redacted, so it will not be delivered: it {why}")
    if binding.passphrase:
        warnings.append(f"its passphrase is taken from {binding.passphrase}")
    return tuple(warnings)
