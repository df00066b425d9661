"""Runs a command inside the capsule: init starts it, its streams come here.

The same `Running` as on the host; the leader is the capsule's own and speaks the same words. It
refuses to know policy, redaction and the wire. Invariants: values go to init's process alone, in a
memory file; no descriptor of a host file or directory is passed, only pipes; a capsule whose init
has gone runs nothing.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import signal
import stat
from collections.abc import Sequence
from typing import Final

from ..capsules import Capsule, Runner
from ..errors import DenialCode, Refusal
from ..init_protocol import SKILL_SOCKETS, Isolation, Job, JobFile, encode_job
from ..texts import Bytes64, text_from_bytes
from . import descriptors, leader
from .descriptors import Ours, is_listening
from .running import Running
from .spec import NoSuchCommand, OutputSink, RunSpec, SpawnFailed
from .warden import Forked

# Three forks and a mount take milliseconds; only a machine that swaps needs seconds.
START_LIMIT_S: Final = 20.0
# The command of a second uid opens /dev/stdout and its like by name.
_PIPE_MODE: Final = 0o666
# What a leader says with each descriptor of a socket.
_SOCKET: Final = b"socket"
NO_INIT_HINT: Final = "start the capsule again: jackin-broker launch"


class RunningInside(Running):
    """A command inside. Made by `start_inside` alone."""

    def __init__(
        self, spec: RunSpec, sink: OutputSink, ours: Ours, forked: Forked, runner: Runner, id_: str
    ) -> None:
        """`forked`: init's pid, and a pipe that is readable once the leader has gone."""
        super().__init__(spec, sink, ours, forked)
        self._runner, self._request_id = runner, id_
        self._sockets = list(spec.sockets)

    @property
    def _awaits_descriptor(self) -> bool:
        return bool(self._sockets) or super()._awaits_descriptor

    def _take_descriptor(self, message: bytes, fd: int) -> None:
        """Before the command is started, so no code of the command's sent it."""
        if message != _SOCKET or not self._sockets:
            super()._take_descriptor(message, fd)
            return
        take = self._sockets.pop(0).take
        if take is None or not is_listening(fd):
            os.close(fd)
            self._leader_left()
            return
        take(fd)

    def _take_report(self, words: list[bytes]) -> None:
        match words:
            case [b"started", _] if self._sockets:
                self._leader_left()
            case [b"failed", stage, code] if not self._started.done():
                self._fail(refusal_for(stage, int(code), self._spec.name))
            case _:
                super()._take_report(words)

    def _leader_left(self) -> None:
        self._fail(SpawnFailed("the capsule's init could not start the command", hint=NO_INIT_HINT))
        super()._leader_left()

    def _kill_leader(self) -> None:
        self._runner.kill(self._request_id, signal.SIGKILL)


async def start_inside(
    spec: RunSpec, sink: OutputSink, capsule: Capsule, request_id: str
) -> Running:
    """The running command; its output begins to reach the sink after this returned.

    Raises: SpawnFailed (NoSuchCommand among them) or Refusal: nothing ran. Cancelled, it leaves
    nothing running.
    """
    runner, init = capsule.runner, capsule.init
    if runner is None or init is None:
        raise SpawnFailed(f"the init of capsule {capsule.name} has gone", hint=NO_INIT_HINT)
    _check(spec, runner)
    with descriptors.opened(
        encode_job(_job(spec)), spec.stdin, spec.cwd.fd, has_terminal=spec.terminal is not None
    ) as (ours, theirs):
        work, control, *streams = theirs[:5]
        left, life = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            running = RunningInside(spec, sink, ours, Forked(init.pid, left), runner, request_id)
            _open_to_all(streams)
            passed = [work, control, life, *([] if spec.terminal is not None else streams)]
            try:
                runner.spawn(request_id, passed)
            except OSError as error:
                running.abort()
                raise SpawnFailed(
                    f"the init of capsule {capsule.name} does not answer", hint=NO_INIT_HINT
                ) from error
        finally:
            os.close(life)
    return await _started(running)


async def _started(running: Running) -> Running:
    try:
        async with asyncio.timeout(START_LIMIT_S):
            await running.started()
    except TimeoutError as error:
        running.abort()
        raise SpawnFailed(
            f"the command did not start within {START_LIMIT_S:g} seconds", hint=NO_INIT_HINT
        ) from error
    except BaseException:
        running.abort()
        raise
    return running


def _check(spec: RunSpec, runner: Runner) -> None:
    """Raises: SpawnFailed for what has no place of its own inside."""
    if (spec.files or spec.sockets) and runner.isolation is not Isolation.NAMESPACES:
        raise SpawnFailed(
            "a file that the agent cannot see cannot be had in this capsule",
            hint='the operator may set deliver = "env" for that binding',
        )
    if spec.sockets and SKILL_SOCKETS not in runner.skills:
        raise SpawnFailed(
            "the init of this capsule is of an earlier version, and makes no sockets",
            hint=NO_INIT_HINT,
        )


def _job(spec: RunSpec) -> Job:
    return Job(
        argv=tuple(text_from_bytes(word) for word in spec.argv),
        cwd=text_from_bytes(spec.cwd.capsule_path),
        env={name.decode("ascii"): text_from_bytes(value) for name, value in spec.env.items()},
        files=tuple(JobFile(one.path, _coded(one.content)) for one in spec.files),
        sockets=tuple(one.path for one in spec.sockets),
        terminal=spec.terminal,
        address_space_bytes=spec.address_space_bytes,
    )


def _coded(content: bytes) -> Bytes64:
    return Bytes64(base64.b64encode(content).decode("ascii"))


def _open_to_all(streams: Sequence[int]) -> None:
    for fd in streams:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.fchmod(fd, _PIPE_MODE)


def refusal_for(stage: bytes, code: int, name: str) -> Refusal:
    """The refusal for a leader's `failed` report of a command of this name."""
    words = os.strerror(code).lower()
    if stage == leader.STAGE_CWD:
        return Refusal(
            DenialCode.WORKDIR_REJECTED,
            f"the working directory cannot be entered inside the capsule: {words}",
            hint="ask again from a directory that exists there",
        )
    if stage == leader.STAGE_TERMINAL:
        return SpawnFailed(
            f"no terminal could be made for {name}: {words}", hint="run it without -t"
        )
    if code in (errno.ENOENT, errno.ENOTDIR):
        return NoSuchCommand(
            f"{name}: no such command in the capsule",
            hint="it is looked for on the PATH that the capsule was started with; a program of the "
            "operator's own machine can be listed in host_binaries",
        )
    return SpawnFailed(
        f"{name} could not be started in the capsule: {words}",
        hint="check that it is a program, and executable there",
    )
