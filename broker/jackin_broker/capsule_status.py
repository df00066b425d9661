"""What `status` says of one capsule: who is in it now, and its doorways.

It refuses to know how any of it came about. No token is in it.
"""

from __future__ import annotations

from .bridge.bridges import Bridge
from .capsules import Capsule
from .config import CapsuleKind
from .errors import ConfigError
from .operator_protocol import BridgeView, CapsuleStatus, PeerView
from .paths import Paths
from .peer import Caller


def has_socket(capsule: Capsule) -> bool:
    """Whether it has a broker.sock: into a remote machine none can be mounted."""
    return capsule.kind is not CapsuleKind.REMOTE


def check_can_be_launched(capsule: Capsule) -> None:
    """Return unless it is a machine of its own.

    Raises: ConfigError.
    """
    if not has_socket(capsule):
        raise ConfigError(
            f"capsules.{capsule.name}.kind: a remote one runs by itself, it is not launched",
            hint=f"enter it with the variables of: jackin-broker capsule env {capsule.name}",
        )


def capsule_status(capsule: Capsule, paths: Paths, bridge: Bridge | None) -> CapsuleStatus:
    """The capsule as it is now."""
    init = capsule.init
    is_running = init is not None and init.is_alive()
    return CapsuleStatus(
        name=capsule.name,
        kind=capsule.kind,
        socket=str(paths.capsule_socket(capsule.name)) if has_socket(capsule) else "",
        uids=tuple(sorted(capsule.uids)),
        init_pid=init.pid if init is not None and is_running else 0,
        note=_note(capsule, bridge, is_running=is_running),
        peers=tuple(_peers(capsule)),
        bridge=BridgeView(bridge.url, bridge.address) if bridge is not None else None,
    )


def _note(capsule: Capsule, bridge: Bridge | None, *, is_running: bool) -> str:
    if not capsule.has_boundary:
        return "no boundary: the agent can approve itself"
    is_remote = not has_socket(capsule)
    # A launch that ends takes its token along: that one is not launched, and nobody revoked it.
    if bridge is not None and bridge.key is None and (is_running or is_remote):
        return "its bridge's token was revoked"
    if is_remote:
        return "" if bridge is not None else "nothing leads in: list host_binaries for its bridge"
    if capsule.why_closed:
        return f"it runs, and is not opened again: {capsule.why_closed}"
    return "" if is_running else "not launched"


def _peers(capsule: Capsule) -> list[PeerView]:
    """Those who have a session, in an order that does not jump."""
    callers = [caller for caller in capsule.callers if isinstance(caller, Caller)]
    views = [PeerView(one.pid, one.uid, one.chain[0].name if one.chain else "") for one in callers]
    return sorted(views, key=lambda view: (view.pid, view.name))
