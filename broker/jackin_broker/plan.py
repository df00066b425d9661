"""What would run, fixed before anyone is asked and checked again before it runs.

A `Plan` holds the working directory open from asking to spawn. It refuses to know how it was
found out (`examine.py`), operators and values.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from . import identity
from .bindings import Binding
from .capsules import Capsule
from .config import Allowance, BinaryConfig, Config, run_limit_s
from .deliveries import Place, Prepared, Scratch
from .errors import DenialCode, Refusal
from .identity import BinaryState, FileOperand, PinnedBinary, changed_operand
from .operands import Reach, reach_of
from .operator_protocol import StdinView
from .policy import Shape
from .protocol import ExecCommand, StdinKind, Target, TerminalSize
from .runner.confine import Confinement
from .runner.environment import child_environment
from .runner.foreground import Program
from .runner.spec import RunSpec
from .sources.resolver import consumed_variables
from .workdir import WorkDir

# What a terminal has that nobody sees.
_OWN_TERMINAL: Final = TerminalSize(rows=24, cols=80)


@dataclass
class Plan:
    """One request, examined. `close` lets go of the working directory."""

    message: ExecCommand
    argv: tuple[bytes, ...]
    capsule: Capsule
    binary: PinnedBinary | None
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
    def program(self) -> str:
        """Which program it is: the path found."""
        return self.binary.path if self.binary is not None else ""

    @property
    def operand_args(self) -> tuple[bytes, ...]:
        """The arguments as paths of the host."""
        return self.argv[1:]

    @property
    def shown_cwd(self) -> bytes:
        """Where it runs: the host directory."""
        return self.workdir.host_path

    @property
    def cwd_text(self) -> str:
        """Where it runs, for the record."""
        return self.shown_cwd.decode("utf-8", "backslashreplace")

    def close(self) -> None:
        """Let go of the working directory."""
        self.workdir.close()

    @property
    def writable_roots(self) -> tuple[bytes, ...]:
        """The host directories in which the agent can change files."""
        return writable_roots(self.capsule)

    def run_s(self, config: Config, environ: Mapping[str, str]) -> float:
        """How long it may run: the operator's limit, or less where the agent wants less."""
        is_construct = "construct" in self.capsule.config.compat
        longest = run_limit_s(config.limits, environ, is_construct=is_construct)
        wanted = self.message.timeout_s
        return min(wanted, longest) if wanted and longest else wanted or longest

    def allowance(self, config: Config) -> Allowance:
        """What it may use; inside the capsule, what `[limits]` says."""
        return config.limits.allowance(self.binary_config)

    def place(self, config: Config, environ: Mapping[str, str], scratch: Scratch) -> Place:
        """What deliveries must know."""
        return Place(
            is_confined=self.confinement.is_confined,
            scratch=scratch,
            lifetime_s=self.run_s(config, environ),
            stdin=self.message.stdin,
            has_terminal=self.message.tty is not None,
            target=self.target,
            home=os.path.expanduser("~"),
        )

    def spec(self, prepared: Prepared, config: Config, environ: Mapping[str, str]) -> RunSpec:
        """What the runner is told, once the values are there."""
        limits, allowance = config.limits, self.allowance(config)
        env = child_environment(
            operator=environ,
            caller=self.message.env,
            binary=self.binary_config.env,
            home=os.path.expanduser("~"),
            user=_operator_name(),
            consumed=consumed_variables(config.all_bindings()),
        )
        return RunSpec(
            executable=self.program,
            argv=self.argv,
            cwd=self.workdir,
            env={**env, **prepared.env},
            confinement=self.confinement,
            stdin=self.message.stdin if prepared.stdin is None else StdinKind.CLOSED,
            # Who answers a prompt needs a terminal, whether the caller has one or not.
            terminal=self.message.tty or (_OWN_TERMINAL if prepared.prompts else None),
            is_plain=self.message.tty is None,
            files=tuple(prepared.files),
            sockets=tuple(prepared.sockets),
            prompts=tuple(prepared.prompts),
            program=self._program(),
            run_s=self.run_s(config, environ),
            address_space_bytes=allowance.address_space_bytes,
            processes=allowance.processes,
            grace_s=limits.kill_grace_s,
            drain_s=limits.drain_s,
        )

    def _program(self) -> Program:
        """The pinned file, as the runner compares it with what reads from a terminal."""
        if self.binary is None:
            return Program()
        file = self.binary.file
        set_uid = file.uid if file.mode & stat.S_ISUID else None
        is_script = bool(self.binary.interpreters)
        return Program(file.device, file.inode, is_script, set_uid, self.writable_roots)


def recheck(plan: Plan) -> None:
    """Return when what was shown is still what would run.

    Raises: Refusal(CHANGED_SINCE_APPROVAL) that names what is different.
    """
    if plan.binary is not None:
        state = identity.state_of(plan.binary)
        if state is not BinaryState.SAME:
            raise _changed(f"{plan.binary.path} is {state.value} since it was shown")
    place = (plan.operand_args, plan.workdir.fd, plan.writable_roots)
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
