"""What would run: everything about a request that is fixed before anyone is asked.

A `Plan` holds the working directory open from asking to spawn. `recheck` says whether what was
shown is still what would run. It refuses to know operators and values.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from . import identity, workdir
from .bindings import Binding, Delivery, Redact, describe_source
from .capsules import Capsule
from .config import BinaryConfig, Config
from .deliveries import Prepared, is_supported
from .errors import DenialCode, Refusal
from .identity import BinaryState, FileOperand, PinnedBinary
from .operator_protocol import (
    STDIN_PREVIEW_MAX_BYTES,
    BindingView,
    FileOperandView,
    RequestView,
    StdinView,
)
from .peer import Caller
from .policy import Shape
from .protocol import Ask, ExecCommand, StdinKind, Target, Text, bytes_from_text, text_from_bytes
from .runner import confine
from .runner.spec import RunSpec
from .workdir import WorkDir

NO_BOUNDARY: Final = "no boundary (kind none): the agent can approve itself"


@dataclass
class Plan:
    """One request, examined. `close` lets go of the working directory."""

    message: ExecCommand
    argv: tuple[bytes, ...]
    capsule: Capsule
    binary: PinnedBinary
    binary_config: BinaryConfig
    workdir: WorkDir
    files: tuple[FileOperand, ...]
    stdin: StdinView
    bindings: dict[str, Binding]
    confinement: confine.Confinement
    shape: Shape
    notices: tuple[str, ...]
    target: Target = Target.HOST

    @property
    def cwd_text(self) -> str:
        """The host directory for the record."""
        return self.workdir.host_path.decode("utf-8", "backslashreplace")

    def close(self) -> None:
        """Let go of the working directory."""
        self.workdir.close()
