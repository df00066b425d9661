"""What would run, fixed before anyone is asked and checked again before it runs.

A `Plan` holds the working directory open from asking to spawn. It refuses to know how it was
found out (`examine.py`), operators and values.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

from . import identity
from .bindings import Binding
from .capsules import Capsule
from .config import BinaryConfig, Config, run_limit_s
from .deliveries import Prepared
from .errors import DenialCode, Refusal
from .identity import BinaryState, FileOperand, PinnedBinary, changed_operand
from .operands import Reach, reach_of
from .operator_protocol import StdinView
from .policy import Shape
from .protocol import ExecCommand, Target
from .runner.confine import Confinement
from .runner.environment import child_environment
from .runner.spec import RunSpec
from .sources.resolver import consumed_variables
from .workdir import WorkDir


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
    reach: Reach
    stdin: StdinView
    bindings: dict[str, Binding]
    suspended: frozenset[str]
    confinement: Confinement
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

    @property
    def writable_roots(self) -> tuple[bytes, ...]:
        """The host directories in which the agent can change files."""
        return writable_roots(self.capsule)

    def spec(self, prepared: Prepared, config: Config, environ: Mapping[str, str]) -> RunSpec:
        """What the runner is told, once the values are there."""
        limits = config.limits
        is_construct = "construct" in self.capsule.config.compat
        longest = run_limit_s(limits, environ, is_construct=is_construct)
        wanted = self.message.timeout_s
        env = child_environment(
            operator=environ,
            caller=self.message.env,
            binary=self.binary_config.env,
            home=os.path.expanduser("~"),
            user=_operator_name(),
            consumed=consumed_variables(config.all_bindings()),
        )
        return RunSpec(
            executable=self.binary.path,
            argv=self.argv,
            cwd=self.workdir,
            env={**env, **prepared.env},
            confinement=self.confinement,
            stdin=self.message.stdin,
            run_s=min(wanted, longest) if wanted and longest else wanted or longest,
            grace_s=limits.kill_grace_s,
            drain_s=limits.drain_s,
        )


def recheck(plan: Plan) -> None:
    """Return when what was shown is still what would run.

    Raises: Refusal(CHANGED_SINCE_APPROVAL) that names what is different.
    """
    state = identity.state_of(plan.binary)
    if state is not BinaryState.SAME:
        raise _changed(f"{plan.binary.path} is {state.value} since it was shown")
    place = (plan.argv[1:], plan.workdir.fd, plan.writable_roots)
    changed = changed_operand(plan.files, *place)
    if changed is not None:
        raise _changed(f"the file {ascii(changed)[2:-1]} is not the one that was shown")
    moving = reach_of(*place).moving
    if moving != plan.reach.moving:
        raise _changed(f"{ascii(moving)[2:-1]} became a pipe, or ceased to be one")


def writable_roots(capsule: Capsule) -> tuple[bytes, ...]:
    """The host directories in which a capsule's agent can change files."""
    if not capsule.has_boundary:
        return (b"/",)
    return tuple(
        mount.host.encode("utf-8", "surrogateescape")
        for mount in capsule.mounts
        if not mount.read_only
    )


def _operator_name() -> str:
    """The operator's login name; a uid without a passwd entry goes by its number."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _changed(words: str) -> Refusal:
    return Refusal(
        DenialCode.CHANGED_SINCE_APPROVAL,
        words,
        hint="ask again, so that the operator sees what it is now",
    )
