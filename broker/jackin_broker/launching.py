"""What a launcher is told to put into a capsule: doorway, programs, mounts, variables.

On-demand bindings are named and never resolved here. The other `[env]` entries are the agent's by
configuration (DESIGN §13): their values are resolved now and go to the launcher, the one reply
that holds what the agent may read anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from .capsules import Capsule
from .config import COMPAT_CONSTRUCT, Config
from .errors import ConfigError
from .operator_protocol import CapsuleReady, MountView
from .paths import CAPSULE_BIN_DIR, Paths
from .sources.resolver import Resolver

# A capsule's own PATH, ours in front; what the image adds comes with the kinds that have one.
_CAPSULE_PATH = f"{CAPSULE_BIN_DIR}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def capsule_ready(
    seq: int,
    capsule: Capsule,
    config: Config,
    resolver: Resolver,
    paths: Paths,
    bridge: Mapping[str, str],
    *,
    again: bool = False,
) -> CapsuleReady:
    """The reply to `OpenCapsule`; `bridge` are the variables of its bridge, if it has one.

    `again`: for a capsule that runs. Its agent has its values, so no source is asked for them:
    one that is locked or slow after a broker's restart keeps nobody out, and no person is asked.
    Raises: SourceError for a launch-time value that does not come; ConfigError for one that
    cannot be a variable.
    """
    name = capsule.name
    given = {} if again else await _launch_values(name, config, resolver)
    return CapsuleReady(
        seq=seq,
        name=name,
        run_dir=str(paths.capsule_dir(name)),
        bin_dir=str(paths.shim_dir(name)),
        env={**given, **_environment(capsule, config, paths), **bridge},
        kind=capsule.kind.value,
        uids=tuple(sorted(capsule.uids)),
        mounts=tuple(MountView(m.capsule, m.host, m.read_only) for m in capsule.mounts),
        image=capsule.config.image,
        run_as=capsule.config.run_as,
    )


async def entry_variables(
    capsule: Capsule,
    config: Config,
    resolver: Resolver,
    bridge: Mapping[str, str],
    *,
    with_values: bool,
) -> dict[str, str]:
    """What an entry into a capsule gets that is no launch: `docker exec`, compose, a VM.

    Its PATH and its paths are its own. Raises: as `capsule_ready`.
    """
    given = await _launch_values(capsule.name, config, resolver) if with_values else {}
    return {**given, **_names(capsule, config), **bridge}


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
    env = _names(capsule, config)
    if capsule.has_boundary:
        return {"PATH": _CAPSULE_PATH, **env}
    return {"JACKIN_BROKER_SOCKET": str(paths.capsule_socket(capsule.name)), **env}


def _names(capsule: Capsule, config: Config) -> dict[str, str]:
    """What may be asked for, by name; for the seed's own programs under its name, too."""
    binaries = ",".join(capsule.config.host_binaries)
    env = {
        "JACKIN_EXEC_BINDINGS": ",".join(sorted(config.bindings_of(capsule.name))),
        "JACKIN_HOST_BINARIES": binaries,
    }
    if COMPAT_CONSTRUCT in capsule.config.compat:
        env["CONSTRUCT_HOST_BINARIES"] = binaries
    return env
