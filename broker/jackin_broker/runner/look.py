"""Whether a command can be started inside the capsule, found out before anyone is asked.

Init looks, as the command would: from its directory, on its PATH, as its uid; nothing is run. It
refuses to know what for. Invariants: an init that does not answer in time is a refusal; one of an
earlier version, which cannot look, is none: the start will say it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from typing import Final

from ..capsules import Capsule, Runner
from ..init_protocol import SKILL_LOOK, Job, encode_job
from ..texts import text_from_bytes
from .capsule import NO_INIT_HINT, refusal_for
from .descriptors import MESSAGE_MAX_BYTES, write_all
from .spec import SpawnFailed

# Init itself gives up after ten seconds; only an init that is stuck needs longer.
LOOK_LIMIT_S: Final = 15.0
_FOUND: Final = b"found"
_ID_BYTES: Final = 8


async def look_inside(capsule: Capsule, command: bytes, cwd: bytes) -> None:
    """Return when it is there, or nobody can tell.

    Raises: SpawnFailed (NoSuchCommand among them), Refusal(WORKDIR_REJECTED).
    """
    runner = capsule.runner
    if runner is None or SKILL_LOOK not in runner.skills or not cwd.startswith(b"/"):
        return
    job = Job(argv=(text_from_bytes(command),), cwd=text_from_bytes(cwd), env={})
    answer = await _answer(runner, encode_job(job))
    match answer.split():
        case [word] if word == _FOUND:
            return
        case [b"failed", stage, code] if code.isdigit():
            raise refusal_for(stage, int(code), os.fsdecode(command))
        case _:
            raise SpawnFailed(
                f"the init of capsule {capsule.name} does not answer", hint=NO_INIT_HINT
            )


async def _answer(runner: Runner, job: bytes) -> bytes:
    """What init's own process says; nothing where it does not."""
    look_id = f"look-{secrets.token_hex(_ID_BYTES)}"
    work = os.memfd_create("job", os.MFD_CLOEXEC)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near.setblocking(False)
    with near:
        try:
            with far:
                write_all(work, job)
                runner.look(look_id, (work, far.fileno()))
        except OSError:
            return b""
        finally:
            os.close(work)
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                return await asyncio.get_running_loop().sock_recv(near, MESSAGE_MAX_BYTES)
        except (TimeoutError, OSError):
            return b""
        finally:
            runner.kill(look_id, signal.SIGKILL)
