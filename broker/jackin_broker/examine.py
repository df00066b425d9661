"""What would run: everything about a request that is fixed before anyone is asked.

A `Plan` holds the working directory open from asking to spawn. `recheck` says whether what was
shown is still what would run. It refuses to know operators and values.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from . import identity
from .bindings import Binding, Delivery, Redact, describe_source
from .capsules import Capsule
from .config import BinaryConfig, Config
from .deliveries import Prepared, is_supported
from .errors import ConfigError, DenialCode, Refusal
from .identity import BinaryState, FileOperand, PinnedBinary, changed_operand, file_operands
from .operands import has_more
from .operator_protocol import (
    STDIN_PREVIEW_MAX_BYTES,
    BindingView,
    FileOperandView,
    RequestView,
    StdinView,
)
from .peer import Caller
from .policy import Shape
from .protocol import Ask, ExecCommand, StdinKind, Target, bytes_from_text, text_from_bytes
from .runner import confine
from .runner.environment import child_environment
from .runner.spec import RunSpec
from .sources.resolver import consumed_variables
from .workdir import WorkDir, open_workdir

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

    @property
    def writable_roots(self) -> tuple[bytes, ...]:
        """The host directories in which the agent can change files."""
        return _writable_roots(self.capsule)

    def spec(self, prepared: Prepared, config: Config, environ: Mapping[str, str]) -> RunSpec:
        """What the runner is told, once the values are there."""
        limits = config.limits
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
            run_s=min(wanted, limits.run_s) if wanted and limits.run_s else wanted or limits.run_s,
            grace_s=limits.kill_grace_s,
            drain_s=limits.drain_s,
        )


def examine(
    message: ExecCommand,
    argv: tuple[bytes, ...],
    stdin: bytes,
    capsule: Capsule,
    config: Config,
    hidden: tuple[str, ...],
) -> Plan:
    """Everything about a request that can be known before anyone is asked.

    Blocks on the file system, so it is called off the loop.
    Raises: Refusal(NOT_ALLOWED, UNKNOWN_BINDING, WORKDIR_REJECTED).
    """
    bindings = config.bindings_of(capsule.name)
    _check_want(message.want, bindings, capsule)
    known = _listed(argv[0], capsule)
    try:
        binary = identity.pin_again(known)
    except ConfigError as error:
        raise Refusal(
            DenialCode.NOT_ALLOWED, str(error), hint="the operator has to install it again"
        ) from error
    is_changed = identity.state_of(known) is not BinaryState.SAME
    mapped = msgspec.structs.replace(capsule.config, mounts=capsule.mounts)
    held = open_workdir(bytes_from_text(message.cwd), mapped, hidden=hidden)
    try:
        files = file_operands(argv[1:], held.fd, _writable_roots(capsule))
        binary_config = capsule.config.binary(known.name)
        return Plan(
            message=message,
            argv=argv,
            capsule=capsule,
            binary=binary,
            binary_config=binary_config,
            workdir=held,
            files=files,
            stdin=_stdin_view(message.stdin, stdin),
            bindings=bindings,
            confinement=confine.confinement(
                binary_config, held, hidden, binary=known.name, capsule=capsule.name
            ),
            shape=Shape(
                capsule=capsule.name,
                argv=argv,
                cwd=held.host_path,
                is_cwd_writable=held.is_agent_writable,
                available=frozenset(bindings),
                want=message.want,
                stdin=message.stdin,
                has_tty=message.tty is not None,
                has_writable_files=bool(files),
                is_binary_changed=is_changed,
            ),
            notices=_notices(capsule, held, known, argv, files, is_changed=is_changed),
        )
    except BaseException:
        held.close()
        raise


def ask_shape(
    message: Ask, argv: tuple[bytes, ...], capsule: Capsule, config: Config, hidden: tuple[str, ...]
) -> Shape:
    """What policy would see of a request like this, without asking anyone.

    Raises: Refusal, as `examine` does.
    """
    plan = examine(
        ExecCommand(
            protocol=message.protocol,
            command=message.command,
            args=message.args,
            cwd=message.cwd,
            want=message.want,
        ),
        argv,
        b"",
        capsule,
        config,
        hidden,
    )
    plan.close()
    return plan.shape


def recheck(plan: Plan) -> None:
    """Return when what was shown is still what would run.

    Raises: Refusal(CHANGED_SINCE_APPROVAL) that names what is different.
    """
    state = identity.state_of(plan.binary)
    if state is not BinaryState.SAME:
        raise _changed(f"{plan.binary.path} is {state.value} since it was shown")
    changed = changed_operand(plan.files, plan.argv[1:], plan.workdir.fd, plan.writable_roots)
    if changed is not None:
        raise _changed(f"the file {ascii(changed)[2:-1]} is not the one that was shown")


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
        binary_path=text_from_bytes(plan.binary.path.encode("utf-8", "surrogateescape")),
        target=plan.target,
        confinement=plan.confinement.describe(),
        stdin=plan.stdin,
        tty=message.tty,
        reason=message.reason,
        want=message.want,
        bindings=tuple(
            _binding_view(binding, wanted=binding.name in message.want)
            for binding in plan.bindings.values()
        ),
        files=tuple(
            FileOperandView(text_from_bytes(file.path), file.size_bytes, file.sha256)
            for file in plan.files
        ),
        asked_by=caller.chain,
        notices=plan.notices,
    )


def _listed(command: bytes, capsule: Capsule) -> PinnedBinary:
    """The pinned binary of a listed name.

    Raises: Refusal(NOT_ALLOWED): without a place inside the capsule to run it, nothing else can.
    """
    name = command.decode("utf-8", "surrogateescape")
    known = capsule.binaries.get(name)
    if known is not None:
        return known
    shown = ascii(name)[1:-1][:80]
    if "/" in name:
        words = f"{shown} is a path; the operator's side runs listed names alone"
    else:
        words = f"{shown} is not among the host binaries of capsule {capsule.name}"
    raise Refusal(
        DenialCode.NOT_ALLOWED,
        f"{words}, and this broker runs nothing inside a capsule",
        hint=f"the operator can list it in host_binaries of [capsules.{capsule.name}]",
    )


def _check_want(want: tuple[str, ...], bindings: dict[str, Binding], capsule: Capsule) -> None:
    for name in want:
        if name not in bindings:
            raise Refusal(
                DenialCode.UNKNOWN_BINDING,
                f"capsule {capsule.name} has no binding {ascii(name)[1:-1][:80]}",
                hint=f"it has: {', '.join(bindings) or 'none'}",
            )


def _writable_roots(capsule: Capsule) -> tuple[bytes, ...]:
    if not capsule.has_boundary:
        return (b"/",)
    return tuple(
        mount.host.encode("utf-8", "surrogateescape")
        for mount in capsule.mounts
        if not mount.read_only
    )


def _stdin_view(kind: StdinKind, data: bytes) -> StdinView:
    if kind is not StdinKind.CLOSED:
        return StdinView(kind)
    digest = hashlib.sha256(data).hexdigest()
    return StdinView(kind, len(data), digest, data[:STDIN_PREVIEW_MAX_BYTES])


def _binding_view(binding: Binding, *, wanted: bool) -> BindingView:
    warnings: list[str] = []
    if binding.redact is Redact.OFF:
        warnings.append('its value is not taken out of the output (redact = "off")')
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


def _notices(
    capsule: Capsule,
    held: WorkDir,
    known: PinnedBinary,
    argv: tuple[bytes, ...],
    files: tuple[FileOperand, ...],
    *,
    is_changed: bool,
) -> tuple[str, ...]:
    lines: list[str] = []
    if not capsule.has_boundary:
        lines.append(NO_BOUNDARY)
    if is_changed:
        lines.append(f"{known.path} has changed since the broker started")
    if held.is_fallback:
        lines.append("the agent's directory is under no mount: it runs in the fallback directory")
    if any(not file.sha256 for file in files) or has_more(argv[1:], files):
        lines.append("not every file among the arguments could be digested: too many, or too large")
    return tuple(lines)


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
