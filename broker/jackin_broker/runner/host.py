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
from importlib.util import find_spec
from types import CodeType
from typing import Any, Final, cast

from . import descriptors, leader
from .confine import Arrangement, arrange
from .probe import is_available
from .running import Running
from .spec import OutputSink, RunSpec, SpawnFailed
from .warden import Warden

# bubblewrap and an interpreter take 15 ms; only a machine that swaps needs seconds.
START_LIMIT_S: Final = 20.0

__all__ = ["Running", "shut_down", "start", "warm_up"]

_warden: Warden | None = None


async def start(spec: RunSpec, sink: OutputSink) -> Running:
    """The running command; its output begins to reach the sink after this returned.

    Raises: SpawnFailed (NoSuchCommand among them) or Refusal(WORKDIR_REJECTED): nothing ran.
    Cancelled, it leaves nothing running.
    """
    arrangement = Arrangement()
    if spec.confinement.is_confined:
        # In a thread: it looks at paths, and a dead network mount must not stop the loop.
        arrangement = await asyncio.to_thread(arrange, spec)
    job = {
        "code": _leader_code(),
        "path": spec.executable.encode("utf-8", "surrogateescape"),
        "argv": spec.argv,
        "env": dict(spec.env),
        "walk": arrangement.walk,
        "bwrap": arrangement.bwrap,
        "is_scoped": arrangement.is_scoped,
    }
    if not arrangement.bwrap:
        del job["code"]
    with descriptors.opened(marshal.dumps(job), spec.stdin, spec.cwd.fd) as (ours, theirs):
        del job
        forked = await _current_warden().fork(theirs)
        running = Running(spec, sink, ours, forked)
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
    return running


def warm_up() -> None:
    """Do now what the first command would wait for: the warden, and a try of bubblewrap."""
    _current_warden()
    _leader_code()
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
        _warden = Warden()
    return _warden


@functools.cache
def _leader_code() -> CodeType:
    """The compiled leader, from the cache that import made."""
    spec = find_spec(leader.__name__)
    loader = cast(Any, spec).loader  # a module that is imported has both
    code: CodeType = loader.get_code(leader.__name__)
    return code
