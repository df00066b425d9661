"""Whose init is not on record yet: a launcher's after a broker's restart, a container's of others.

A container that compose or a devcontainer started is taken as a capsule by its engine's word. It
refuses to know callers. Invariants: the engine is asked, never anybody inside; its container's
first process may run commands only where it was started as our init from our own programs; an
engine that does not answer is asked again once a second at most.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from .capsules import Capsule
from .engines import Container, inspect
from .errors import ConfigError, DenialCode, Refusal
from .paths import CAPSULE_BIN_DIR

_log = logging.getLogger(__name__)

# A caller that comes before its container is known asks for it; a flood of them asks once.
ASK_AGAIN_S: Final = 1.0
# After a broker's start: a launcher looks for it once a second, and opens its capsule again.
RETURN_LIMIT_S: Final = 3.0
_INIT: Final = (f"{CAPSULE_BIN_DIR}/jackin-capsule", "init")


async def settled(capsule: Capsule, environ: Mapping[str, str]) -> None:
    """Return when the capsule's init is on record, or will not come.

    Raises: Refusal(PEER_REFUSED) when its engine does not answer.
    """
    await adopt(capsule, environ)
    left_s = capsule.known_since + RETURN_LIMIT_S - time.monotonic()
    if capsule.has_boundary and capsule.init is None and left_s > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await capsule.init_came.wait()


async def adopt(capsule: Capsule, environ: Mapping[str, str]) -> None:
    """Put the init of a configured container on record, if it runs and is not yet.

    Raises: Refusal(PEER_REFUSED) when its engine does not answer.
    """
    name, now = capsule.config.container, asyncio.get_running_loop().time()
    if not name or capsule.is_open or now < capsule.adopt_after:
        return
    if capsule.init is not None and capsule.init.is_alive():
        return
    capsule.adopt_after = now + ASK_AGAIN_S
    try:
        found = await asyncio.to_thread(inspect, capsule.kind.value, name, environ)
    except ConfigError as error:
        raise Refusal(DenialCode.PEER_REFUSED, str(error), hint=error.hint) from error
    if found is not None:
        is_ours = is_our_init(found, capsule.programs)
        capsule.adopt(found.pid, found.id, is_ours=is_ours)
        _log.info("capsule %s adopted container %s, init ours: %s", capsule.name, name, is_ours)


def is_our_init(found: Container, programs: str) -> bool:
    """Whether its first process was started as `jackin-capsule init` from our own programs."""
    mounted = found.mounts.get(CAPSULE_BIN_DIR, "")
    return found.argv[:2] == _INIT and os.path.realpath(mounted) == os.path.realpath(programs)
