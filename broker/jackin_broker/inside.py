"""What would run inside the capsule, found out before anyone is asked (DESIGN §9, capsule target).

There the program, its directory and its files are the agent's own, and nothing is pinned but what
the host can see: files among the arguments that lie in a mount. It blocks on the file system. It
refuses to know rules' verdicts and values. Invariants: without a channel to the recorded init
nothing is offered; where the agent could read what a command is given, the plan says so in plain
words, and its shape lets no rule and no grant give it anything.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from .bindings import Binding
from .capsules import Capsule, Runner
from .config import BinaryConfig, CapsuleKind, Config, Mount
from .deliveries import Place, Prepared, Scratch
from .errors import DenialCode, Refusal
from .init_protocol import SKILL_SOCKETS, Isolation
from .operands import FileOperand, Reach, file_operands, has_more, reach_of
from .operator_protocol import StdinView
from .plan import Plan, writable_roots
from .policy import ApprovedFile, Shape
from .protocol import ExecCommand, StdinKind, Target, bytes_from_text
from .runner.confine import Confinement
from .runner.environment import caller_environment
from .runner.look import look_inside
from .runner.spec import RunSpec
from .workdir import WorkDir, open_workdir

# Init tries again once a second; the launcher has to record it first.
RUNNER_LIMIT_S: Final = 5.0
READABLE: Final = "the agent can read these values: nothing keeps it apart from the command here"
_APART: Final = {
    Isolation.NAMESPACES: "apart from the agent (namespaces of its own)",
    Isolation.UID: "apart from the agent (another uid)",
    Isolation.NONE: READABLE,
}
_AGENTS_OWN: Final = "it runs inside the capsule: program, files and directory are the agent's own"
_NO_ROOM: Final = "in this capsule the agent can see every file and socket of a command"
_NO_SOCKETS: Final = "the capsule's init is of an earlier version, and makes no sockets"
_NAME_SHOWN_MAX_CHARS: Final = 80


@dataclass
class InsidePlan(Plan):
    """A plan for the capsule. `seen_args` are the arguments as far as the host can see them."""

    seen_args: tuple[bytes, ...] = ()
    runner: Runner | None = None

    @property
    def program(self) -> str:
        """As it was asked for: the capsule's own PATH says which one that is."""
        return os.fsdecode(self.argv[0])

    @property
    def operand_args(self) -> tuple[bytes, ...]:
        return self.seen_args

    @property
    def shown_cwd(self) -> bytes:
        """The capsule's own path."""
        return self.workdir.capsule_path

    def place(self, config: Config, environ: Mapping[str, str], scratch: Scratch) -> Place:
        """What deliveries must know: also whether there is room that the agent cannot look into."""
        has_room = self.runner is not None and self.runner.isolation is Isolation.NAMESPACES
        has_sockets = self.runner is not None and SKILL_SOCKETS in self.runner.skills
        return replace(
            super().place(config, environ, scratch),
            why_no_files="" if has_room else _NO_ROOM,
            why_no_sockets="" if has_sockets else _NO_SOCKETS,
        )

    def spec(self, prepared: Prepared, config: Config, environ: Mapping[str, str]) -> RunSpec:
        """What the runner is told; init adds the environment that the capsule started with."""
        return RunSpec(
            executable=self.program,
            argv=self.argv,
            cwd=self.workdir,
            env={**caller_environment(self.message.env), **prepared.env},
            confinement=self.confinement,
            stdin=self.message.stdin if prepared.stdin is None else StdinKind.CLOSED,
            terminal=self.message.tty,
            files=tuple(prepared.files),
            sockets=tuple(prepared.sockets),
            run_s=self.run_s(config, environ),
            address_space_bytes=self.allowance(config).address_space_bytes,
            grace_s=config.limits.kill_grace_s,
            drain_s=config.limits.drain_s,
        )


def check_possible(command: bytes, capsule: Capsule, *, is_bridged: bool) -> Isolation:
    """What keeps the agent from a command that is not listed for the host.

    Raises: Refusal(NOT_ALLOWED), with what is missing.
    """
    missing, hint = _missing(capsule, is_bridged=is_bridged)
    if capsule.runner is not None and not missing:
        return _isolation(capsule, capsule.runner)
    shown = ascii(os.fsdecode(command))[1:-1][:_NAME_SHOWN_MAX_CHARS]
    raise Refusal(
        DenialCode.NOT_ALLOWED,
        f"{shown} is not among the host binaries of capsule {capsule.name}, and {missing}",
        hint=f"the operator can list it in host_binaries of [capsules.{capsule.name}]{hint}",
    )


def _isolation(capsule: Capsule, runner: Runner) -> Isolation:
    """What init says; but who enters an adopted container stands beside init (`podman exec`).

    There every command can be seen; only another uid keeps them apart.
    """
    is_adopted = bool(capsule.config.container) and not capsule.is_open
    if is_adopted and runner.isolation is Isolation.NAMESPACES:
        return Isolation.NONE
    return runner.isolation


async def look(command: bytes, cwd: bytes, capsule: Capsule) -> None:
    """Return when such a command can be started, or that is not init's to say.

    Raises: SpawnFailed (NoSuchCommand among them), Refusal(WORKDIR_REJECTED).
    """
    if os.fsdecode(command) in capsule.binaries:
        return
    await wait_for_runner(command, capsule)
    await look_inside(capsule, command, cwd)


async def wait_for_runner(command: bytes, capsule: Capsule) -> None:
    """Return when the channel is there that such a command needs, or will not come.

    After a broker's restart the recorded init connects again by itself, in a second or two.
    """
    init = capsule.init
    is_listed = os.fsdecode(command) in capsule.binaries
    if is_listed or init is None or not init.is_ours or not init.is_alive():
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(RUNNER_LIMIT_S):
            await capsule.runner_came.wait()


@dataclass(frozen=True)
class Unlisted:
    """A request for a command that is not listed for the host."""

    message: ExecCommand
    argv: tuple[bytes, ...]
    stdin: StdinView
    capsule: Capsule
    bindings: dict[str, Binding]
    suspended: frozenset[str]
    is_bridged: bool


def examine_inside(asked: Unlisted) -> InsidePlan:
    """Everything about such a request that can be known now. Close the plan.

    Raises: Refusal(NOT_ALLOWED, WORKDIR_REJECTED).
    """
    capsule, argv = asked.capsule, asked.argv
    isolation = check_possible(argv[0], capsule, is_bridged=asked.is_bridged)
    held = _workdir(bytes_from_text(asked.message.cwd), capsule)
    try:
        seen, is_all_seen = _seen(argv, capsule.mounts, has_cwd=bool(held.host_path))
        place = (seen, held.fd, writable_roots(capsule))
        files = file_operands(*place)
        is_whole = is_all_seen and not has_more(seen, files) and all(one.sha256 for one in files)
        return InsidePlan(
            message=asked.message,
            argv=argv,
            capsule=capsule,
            binary=None,
            binary_config=BinaryConfig(),
            workdir=held,
            files=files,
            reach=Reach(is_writable=True, moving=reach_of(*place).moving),
            stdin=asked.stdin,
            bindings=asked.bindings,
            suspended=asked.suspended,
            confinement=Confinement(inside=_APART[isolation]),
            shape=_shape(asked, held, isolation, _approved(files) if is_whole else None),
            notices=_notices(isolation, is_whole=is_whole),
            target=Target.CAPSULE,
            seen_args=seen,
            runner=capsule.runner,
        )
    except BaseException:
        held.close()
        raise


def _shape(
    asked: Unlisted, held: WorkDir, isolation: Isolation, files: tuple[ApprovedFile, ...] | None
) -> Shape:
    """What policy sees: all that is inside is the agent's to change."""
    message = asked.message
    return Shape(
        capsule=asked.capsule.name,
        argv=asked.argv,
        cwd=held.host_path,
        is_cwd_writable=True,
        available=frozenset(asked.bindings),
        want=message.want,
        target=Target.CAPSULE,
        stdin=message.stdin,
        has_tty=message.tty is not None,
        has_writable_files=True,
        suspended=asked.suspended,
        stdin_sha256=asked.stdin.sha256,
        files=files,
        are_values_readable=isolation is Isolation.NONE,
    )


def _approved(files: Sequence[FileOperand]) -> tuple[ApprovedFile, ...]:
    return tuple(ApprovedFile(one.path, one.sha256) for one in files)


def _missing(capsule: Capsule, *, is_bridged: bool) -> tuple[str, str]:
    """What keeps commands from being run inside, and what else could be done; empty for nothing."""
    init = capsule.init
    if not capsule.has_boundary:
        return "a capsule without a boundary has no inside to run it in", ""
    if is_bridged or capsule.kind is CapsuleKind.REMOTE:
        return "over the bridge nothing is run inside a capsule", ""
    if init is not None and not init.is_ours:
        return (
            "the first process of its container is not jackin-capsule init, which would run it",
            ", or make `jackin-capsule init --` the beginning of the container's command",
        )
    if capsule.runner is None:
        return "its init has no channel to the broker", ", or launch the capsule again"
    return "", ""


def _workdir(cwd: bytes, capsule: Capsule) -> WorkDir:
    """The host's side of the directory where a mount has one, else nothing but its path.

    Raises: Refusal(WORKDIR_REJECTED) for a path that cannot be one.
    """
    if not cwd.startswith(b"/"):
        raise Refusal(
            DenialCode.WORKDIR_REJECTED,
            "the working directory is not an absolute path",
            hint="run it from a directory that exists",
        )
    mapped = msgspec.structs.replace(
        capsule.config, mounts=capsule.mounts, unmapped_cwd=type(capsule.config.unmapped_cwd).DENY
    )
    try:
        return open_workdir(cwd, mapped)
    except Refusal:
        # No directory: every relative path that is looked for from here does not exist.
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return WorkDir(fd, host_path=b"", capsule_path=cwd, mount=None, is_agent_writable=True)


def _seen(
    argv: tuple[bytes, ...], mounts: Sequence[Mount], *, has_cwd: bool
) -> tuple[tuple[bytes, ...], bool]:
    """The arguments with the mounts' host paths, and whether none names a place beyond them."""
    seen: list[bytes] = []
    is_all = has_cwd
    for arg in argv[1:]:
        head, path = _path_in(arg)
        if not path:
            seen.append(arg)
            continue
        host = _host_of(path, mounts)
        is_all = is_all and bool(host)
        seen.append(head + host if host else head)
    return tuple(seen), is_all


def _path_in(arg: bytes) -> tuple[bytes, bytes]:
    """An argument as what stands before an absolute path, and that path; it may have none."""
    start = 0 if arg.startswith(b"/") else arg.find(b"=/") + 1
    if start == 0 and not arg.startswith(b"/"):
        start = next(
            (at for at in (1, 2) if arg[:1] in (b"-", b"@") and arg[at : at + 1] == b"/"), 0
        )
        if start == 0:
            return arg, b""
    return arg[:start], arg[start:]


def _host_of(path: bytes, mounts: Sequence[Mount]) -> bytes:
    """The host's path of a capsule's, empty where no mount has it."""
    clean = os.path.normpath(path)
    best, host = b"", b""
    for mount in mounts:
        root = os.fsencode(mount.capsule)
        is_below = clean == root or clean.startswith(root.rstrip(b"/") + b"/")
        if is_below and len(root) > len(best):
            best, host = root, os.fsencode(mount.host) + clean[len(root.rstrip(b"/")) :]
    return host


def _notices(isolation: Isolation, *, is_whole: bool) -> tuple[str, ...]:
    lines = [_AGENTS_OWN]
    if isolation is Isolation.NONE:
        lines.append(READABLE)
    if not is_whole:
        lines.append("not every file among the arguments can be seen from here")
    return tuple(lines)
