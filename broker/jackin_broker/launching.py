"""What a launcher is told to put into a capsule: doorway, programs, mounts, variables.

On-demand bindings are named and never resolved here. The other `[env]` entries are the agent's by
configuration (DESIGN §13): their values are resolved now and go to the launcher, the one reply
that holds what the agent may read anyway.
"""

from __future__ import annotations

from .capsules import Capsule
from .config import Config
from .errors import ConfigError
from .operator_protocol import CapsuleReady, MountView
from .paths import CAPSULE_BIN_DIR, Paths
from .sources.resolver import Resolver

# A capsule's own PATH, ours in front; what the image adds comes with the kinds that have one.
_CAPSULE_PATH = f"{CAPSULE_BIN_DIR}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def capsule_ready(
    seq: int, capsule: Capsule, config: Config, resolver: Resolver, paths: Paths
) -> CapsuleReady:
    """The reply to `OpenCapsule`.

    Raises: SourceError for a launch-time value that does not come; ConfigError for one that
    cannot be a variable.
    """
    name = capsule.name
    given = await _launch_values(name, config, resolver)
    return CapsuleReady(
        seq=seq,
        name=name,
        run_dir=str(paths.capsule_dir(name)),
        bin_dir=str(paths.shim_dir(name)),
        env={**given, **_environment(capsule, config, paths)},
        kind=capsule.kind.value,
        uids=tuple(sorted(capsule.uids)),
        mounts=tuple(MountView(m.capsule, m.host, m.read_only) for m in capsule.mounts),
    )


async def _launch_values(name: str, config: Config, resolver: Resolver) -> dict[str, str]:
    bindings = list(config.launch_env_of(name).values())
    given: dict[str, str] = {}
    for credential in await resolver.resolve(bindings):
        variable = credential.binding.deliver_as or credential.binding.name
        try:
            given[variable] = credential.reveal().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"env.{variable}: its value is not text") from error
        finally:
            credential.forget()
        if "\0" in given[variable]:
            raise ConfigError(f"env.{variable}: its value contains a NUL byte")
    return given


def _environment(capsule: Capsule, config: Config, paths: Paths) -> dict[str, str]:
    """The variables that teach the capsule's programs what there is.

    Without a boundary nothing is mounted: the doorway is where it is, and the launcher puts
    the programs in front of the PATH that it has.
    """
    env = {
        "JACKIN_EXEC_BINDINGS": ",".join(sorted(config.bindings_of(capsule.name))),
        "JACKIN_HOST_BINARIES": ",".join(capsule.config.host_binaries),
    }
    if capsule.has_boundary:
        return {"PATH": _CAPSULE_PATH, **env}
    return {"JACKIN_BROKER_SOCKET": str(paths.capsule_socket(capsule.name)), **env}
