"""Runs a command on the host: starts it, pumps its streams, ends it, says how it ended.

It refuses to know policy, redaction and the wire. Invariants: nothing here blocks, whatever the
command or the sink's owner does; output is never held whole; `wait` answers at most `drain_s`
after the command's end while output is read; when the command has ended its tree ends: what it
left in the background gets TERM, a second, and KILL.
"""

from __future__ import annotations

import asyncio
import functools
import marshal
import resource
from importlib.util import find_spec
from types import CodeType
from typing import Any, Final, cast

from . import descriptors, leader, leader_terminal
from .confine import Arrangement, arrange
from .foreground import Program, reads_alone
from .probe import is_available
from .prompting import Prompter
from .running import Running
from .spec import OutputSink, RunSpec, SpawnFailed
from .warden import Warden

# bubblewrap and an interpreter take 15 ms; only a machine that swaps needs seconds.
START_LIMIT_S: Final = 20.0

__all__ = ["Running", "shut_down", "start", "warm_up"]

_warden: Warden | None = None
_sweeps = ""


async def start(spec: RunSpec, sink: OutputSink) -> Running:
    """The running command; its output begins to reach the sink after this returned.

    Raises: SpawnFailed (NoSuchCommand among them) or Refusal(WORKDIR_REJECTED): nothing ran.
    Cancelled, it leaves nothing running.
    """
    arrangement = Arrangement()
    if spec.confinement.is_confined:
        # In a thread: it looks at paths, and a dead network mount must not stop the loop.
        arrangement = await asyncio.to_thread(arrange, spec)
    prompter = Prompter(spec.prompts, sink) if spec.prompts else None
    with descriptors.opened(
        marshal.dumps(_job(spec, arrangement)),
        spec.stdin,
        spec.cwd.fd,
        has_terminal=spec.terminal is not None,
    ) as (ours, theirs):
        forked = await _current_warden().fork(theirs)
        running = Running(spec, prompter or sink, ours, forked)
    try:
        async with asyncio.timeout(START_LIMIT_S):
            await running.started()
    except TimeoutError as error:
        running.abort()
        raise SpawnFailed(
            f"{spec.name} did not start within {START_LIMIT_S:g} seconds",
            hint="is the machine short of memory?",
        ) from error
    except BaseException:
        running.abort()
        raise
    if prompter is not None:
        running.typed = prompter.answered
        prompter.attach(running, lambda group: _reads_alone(group, spec.program, running))
    return running


def _job(spec: RunSpec, arrangement: Arrangement) -> dict[str, Any]:
    """What the leader, and the warden before it, are told."""
    job: dict[str, Any] = {
        "code": _code_of(leader.__name__),
        "terminal": None,
        "path": spec.executable.encode("utf-8", "surrogateescape"),
        "argv": spec.argv,
        "env": dict(spec.env),
        "walk": arrangement.walk,
        "bwrap": arrangement.bwrap,
        "files": arrangement.files,
        "is_scoped": arrangement.is_scoped,
        "limits": _limits_of(spec),
    }
    if not arrangement.bwrap:
        del job["code"]
    if spec.terminal is not None:
        job["terminal"] = (spec.terminal.rows, spec.terminal.cols, spec.is_plain)
        job["terminal_code"] = _code_of(leader_terminal.__name__)
    return job


def _limits_of(spec: RunSpec) -> tuple[tuple[int, int], ...]:
    """What the leader sets. Outside a user namespace, all that the operator runs would count."""
    limits: list[tuple[int, int]] = []
    if spec.address_space_bytes:
        limits.append((resource.RLIMIT_AS, spec.address_space_bytes))
    if spec.processes and spec.confinement.is_confined:
        limits.append((resource.RLIMIT_NPROC, spec.processes + 1))  # the leader is one more
    return tuple(limits)


def _reads_alone(group: int, program: Program, running: Running) -> bool:
    if running.is_ending:
        return False
    return reads_alone(group, program, pid=running.pid, inner_pid=running.inner_pid)


def warm_up(sweeps: str = "") -> None:
    """Do now what the first command would wait for: the warden, and a try of bubblewrap.

    `sweeps`: how the paths of single commands' directories begin, which are removed after the last
    command, whatever ends the broker.
    """
    global _sweeps
    _sweeps = sweeps
    _current_warden()
    _code_of(leader.__name__)
    is_available()


async def shut_down() -> None:
    """End the warden and with it whatever still runs; the next `start` makes a new one."""
    global _warden
    warden, _warden = _warden, None
    if warden is not None and warden.is_usable:
        await warden.close()
    elif warden is not None:
        warden.abandon()


def _current_warden() -> Warden:
    global _warden
    if _warden is not None and not _warden.is_usable:
        _warden.abandon()
        _warden = None
    if _warden is None:
        _warden = Warden(_sweeps)
    return _warden


@functools.cache
def _code_of(module: str) -> CodeType:
    """The compiled leader or its part for terminals, from the cache that import made."""
    spec = find_spec(module)
    loader = cast(Any, spec).loader  # a module that is imported has both
    code: CodeType = loader.get_code(module)
    return code
