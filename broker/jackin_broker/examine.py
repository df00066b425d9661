"""Finding out what a request would run, before anyone is asked.

It blocks on the file system, so it is called off the loop. It refuses to know operators, rules'
verdicts and values.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Final

import msgspec

from . import identity
from .bindings import Binding, FileSource
from .capsules import Capsule
from .config import Config
from .errors import ConfigError, DenialCode, Refusal
from .identity import BinaryState, FileOperand, PinnedBinary, file_operands
from .inside import Unlisted, examine_inside
from .operands import Reach, has_more, reach_of
from .operator_protocol import STDIN_PREVIEW_MAX_BYTES, StdinView
from .plan import Plan, writable_roots
from .policy import Shape
from .protocol import Ask, ExecCommand, StdinKind, bytes_from_text
from .runner import confine
from .runner.confine import Confinement
from .workdir import WorkDir, open_workdir

NO_BOUNDARY: Final = "no boundary (kind none): the agent can approve itself"


@dataclass(frozen=True)
class Asked:
    """A request as it came, and where.

    `hidden`: host paths that no command may see; `suspended`: bindings that no rule delivers.
    """

    message: ExecCommand
    argv: tuple[bytes, ...]
    stdin: bytes
    capsule: Capsule
    config: Config
    hidden: tuple[str, ...]
    suspended: frozenset[str] = frozenset()
    # Over the bridge there is no target inside the capsule (DESIGN §4).
    is_bridged: bool = False


def inquiry_of(message: Ask) -> ExecCommand:
    """An inquiry as the request that it is about."""
    return ExecCommand(
        protocol=message.protocol,
        command=message.command,
        args=message.args,
        cwd=message.cwd,
        want=message.want,
    )


def examine(asked: Asked) -> Plan:
    """Everything about a request that can be known now. Close the plan.

    Raises: Refusal(BAD_REQUEST, NOT_ALLOWED, UNKNOWN_BINDING, WORKDIR_REJECTED).
    """
    message, capsule = asked.message, asked.capsule
    _check_terminal(message)
    bindings = asked.config.bindings_of(capsule.name)
    _check_want(message.want, bindings, capsule)
    known = capsule.binaries.get(os.fsdecode(asked.argv[0]))
    if known is None:
        return examine_inside(
            Unlisted(
                message=message,
                argv=asked.argv,
                stdin=_stdin_view(message.stdin, asked.stdin),
                capsule=capsule,
                bindings=bindings,
                suspended=asked.suspended,
                is_bridged=asked.is_bridged,
            )
        )
    return _examine_on_host(asked, known, bindings)


def _examine_on_host(asked: Asked, known: PinnedBinary, bindings: dict[str, Binding]) -> Plan:
    message, capsule = asked.message, asked.capsule
    binary = _as_it_is(known)
    is_changed = identity.state_of(known) is not BinaryState.SAME
    mapped = msgspec.structs.replace(capsule.config, mounts=capsule.mounts)
    held = open_workdir(bytes_from_text(message.cwd), mapped, hidden=asked.hidden)
    try:
        place = (asked.argv[1:], held.fd, writable_roots(capsule))
        files, reach = file_operands(*place), reach_of(*place)
        return Plan(
            message=message,
            argv=asked.argv,
            capsule=capsule,
            binary=binary,
            binary_config=capsule.config.binary(known.name),
            workdir=held,
            files=files,
            reach=reach,
            stdin=_stdin_view(message.stdin, asked.stdin),
            bindings=bindings,
            suspended=asked.suspended,
            confinement=_confinement(asked, held, known.name),
            shape=_shape(asked, held, bindings, reach, is_changed=is_changed),
            notices=_notices(asked, held, known, is_changed=is_changed)
            + _file_notices(asked.argv[1:], files, reach),
        )
    except BaseException:
        held.close()
        raise


def _confinement(asked: Asked, held: WorkDir, name: str) -> Confinement:
    """How it is confined; the files that values come from are hidden, ticked or not."""
    capsule = asked.capsule
    files = [
        os.path.expanduser(binding.source.path)
        for binding in asked.config.all_bindings()
        if isinstance(binding.source, FileSource)
    ]
    return confine.confinement(
        capsule.config.binary(name),
        held,
        (*asked.hidden, *files),
        binary=name,
        capsule=capsule.name,
    )


def _shape(
    asked: Asked,
    held: WorkDir,
    bindings: dict[str, Binding],
    reach: Reach,
    *,
    is_changed: bool,
) -> Shape:
    """What policy sees."""
    message = asked.message
    return Shape(
        capsule=asked.capsule.name,
        argv=asked.argv,
        cwd=held.host_path,
        is_cwd_writable=held.is_agent_writable,
        available=frozenset(bindings) - asked.suspended,
        want=message.want,
        stdin=message.stdin,
        has_tty=message.tty is not None,
        has_writable_files=reach.is_writable,
        is_binary_changed=is_changed,
    )


def _check_terminal(message: ExecCommand) -> None:
    if message.tty is not None and not message.stream:
        raise Refusal(
            DenialCode.BAD_REQUEST,
            "a command with a terminal streams what it writes, and this caller wants no stream",
            hint="ask without a terminal, or with a stream",
        )


def _as_it_is(known: PinnedBinary) -> PinnedBinary:
    """The listed binary as it is now.

    Raises: Refusal(NOT_ALLOWED) when it is gone or can no longer be trusted.
    """
    try:
        return identity.pin_again(known)
    except ConfigError as error:
        raise Refusal(
            DenialCode.NOT_ALLOWED, str(error), hint="the operator has to install it again"
        ) from error


def _check_want(want: tuple[str, ...], bindings: dict[str, Binding], capsule: Capsule) -> None:
    for name in want:
        if name not in bindings:
            raise Refusal(
                DenialCode.UNKNOWN_BINDING,
                f"capsule {capsule.name} has no binding {ascii(name)[1:-1][:80]}",
                hint=f"it has: {', '.join(bindings) or 'none'}",
            )


def _stdin_view(kind: StdinKind, data: bytes) -> StdinView:
    if kind is not StdinKind.CLOSED:
        return StdinView(kind)
    digest = hashlib.sha256(data).hexdigest()
    return StdinView(kind, len(data), digest, data[:STDIN_PREVIEW_MAX_BYTES])


def _notices(
    asked: Asked, held: WorkDir, known: PinnedBinary, *, is_changed: bool
) -> tuple[str, ...]:
    lines: list[str] = []
    if not asked.capsule.has_boundary:
        lines.append(NO_BOUNDARY)
    if is_changed:
        lines.append(f"{known.path} has changed since the broker started")
    if held.is_fallback:
        lines.append("the agent's directory is under no mount: it runs in the fallback directory")
    return tuple(lines)


def _file_notices(
    args: tuple[bytes, ...], files: tuple[FileOperand, ...], reach: Reach
) -> tuple[str, ...]:
    lines: list[str] = []
    if any(not file.sha256 for file in files) or has_more(args, files):
        lines.append("not every file among the arguments could be digested: too many, or too large")
    if reach.moving:
        shown = ascii(reach.moving)[2:-1][:80]
        lines.append(
            f"{shown} is a pipe, or leads by way of /proc: the agent decides what it reads"
        )
    return tuple(lines)
