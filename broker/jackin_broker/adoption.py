"""A container that compose or a devcontainer started, taken as a capsule by its engine's word.

It refuses to know callers. Invariants: the engine is asked, never anybody inside; its container's
first process may run commands only where it was started as our init from our own programs; an
engine that does not answer is asked again once a second at most.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Final

from .capsules import Capsule
from .engines import Container, inspect
from .errors import ConfigError, DenialCode, Refusal
from .paths import CAPSULE_BIN_DIR

_log = logging.getLogger(__name__)

# A caller that comes before its container is known asks for it; a flood of them asks once.
ASK_AGAIN_S: Final = 1.0
_INIT: Final = (f"{CAPSULE_BIN_DIR}/jackin-capsule", "init")


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
