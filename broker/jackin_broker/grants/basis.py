"""What a request's approval could be stored from: its whole shape, and how its bindings are made.

It refuses to know rules, grants in force and prompts. Invariant: digests and names alone, no
value: whatever an approval stores was known before anyone was asked.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import date
from typing import Final

import msgspec

from ..bindings import Binding
from ..identity import digest_of
from ..operands import has_more
from ..plan import Plan
from ..policy import ApprovedFile, Shape
from .ledger import Basis

# Names a rule in the configuration and on a command line; the first letter makes it a word.
_RULE_ID_BYTES: Final = 4
_RULE_ID_MARK: Final = "r-"


def shape_of(plan: Plan) -> Shape:
    """All that policy and grants see of a request, digests and suspended bindings too."""
    return msgspec.structs.replace(
        plan.shape,
        suspended=plan.suspended.intersection(plan.bindings),
        binary_sha256=digest_of(plan.binary) if plan.binary is not None else "",
        stdin_sha256=plan.stdin.sha256,
        files=_files(plan),
    )


def basis_of(plan: Plan, shape: Shape, today: date) -> Basis:
    """What an approval of this request may be stored from."""
    traits = {name: _trait(binding) for name, binding in plan.bindings.items()}
    return Basis(
        shape=shape,
        session_id=plan.capsule.life,
        rule_id=_RULE_ID_MARK + secrets.token_hex(_RULE_ID_BYTES),
        today=today,
        # The empty name stands for the command's own surroundings.
        traits={"": _digest(f"{plan.confinement.describe()}\n{plan.binary_config!r}"), **traits},
    )


def _files(plan: Plan) -> tuple[ApprovedFile, ...] | None:
    """The files among the arguments by digest; None where not all that is read is fixed."""
    is_fixed = all(file.sha256 for file in plan.files) and not plan.reach.moving
    if not is_fixed or has_more(plan.operand_args, plan.files):
        return None
    return tuple(ApprovedFile(file.path, file.sha256) for file in plan.files)


def _trait(binding: Binding) -> str:
    """How a binding is configured, so that another source of that name is another binding."""
    return _digest(repr(msgspec.structs.replace(binding, label="")))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
