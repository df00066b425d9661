"""What a capsule is given: its doorway, its programs, the variables that name what it may ask for.

It refuses to know credentials: names of bindings only, never a value.
"""

from __future__ import annotations

from collections.abc import Iterable

from .capsules import Capsule
from .operator_protocol import CapsuleReady, MountView
from .paths import CAPSULE_BIN_DIR, Paths

# A capsule's own PATH when its image says nothing (DESIGN §9: never the agent's).
_CAPSULE_PATH = f"{CAPSULE_BIN_DIR}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def capsule_ready(
    seq: int, capsule: Capsule, paths: Paths, on_demand: Iterable[str]
) -> CapsuleReady:
    """The reply to `OpenCapsule`: everything that a launcher has to put into the capsule."""
    name = capsule.name
    return CapsuleReady(
        seq=seq,
        name=name,
        run_dir=str(paths.capsule_dir(name)),
        bin_dir=str(paths.shim_dir(name)),
        env=capsule_environment(capsule, paths, on_demand),
        kind=capsule.kind.value,
        uids=tuple(sorted(capsule.uids)),
        mounts=tuple(MountView(m.capsule, m.host, m.read_only) for m in capsule.mounts),
    )


def capsule_environment(
    capsule: Capsule, paths: Paths, on_demand: Iterable[str]
) -> dict[str, str]:
    """The variables that teach the capsule's programs what there is.

    Without a boundary nothing is mounted: the doorway is where it is, and the launcher puts
    the programs in front of the PATH that it has.
    """
    env = {
        "JACKIN_EXEC_BINDINGS": ",".join(sorted(on_demand)),
        "JACKIN_HOST_BINARIES": ",".join(capsule.config.host_binaries),
    }
    if capsule.has_boundary:
        return {"PATH": _CAPSULE_PATH, **env}
    return {"JACKIN_BROKER_SOCKET": str(paths.capsule_socket(capsule.name)), **env}
