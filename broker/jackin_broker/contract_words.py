"""The sentences of a contract: what each kind protects against, and what it does not.

`docs/capsules.md` says the same at length. Pure: words.
"""

from __future__ import annotations

from typing import Final

from .config.model import CapsuleKind

TARGET_HOST: Final = (
    "listed binaries, by their bare names: as you, confined, in the mounted directory"
)
_INSIDE: Final = "everything else: started by the capsule's init, on the capsule's own PATH; "
_APART: Final = _INSIDE + "in namespaces of its own, so the agent cannot read what it is given"
_READABLE: Final = (
    _INSIDE + "the agent can read what it is given, so a credential takes a prompt that says so"
)
_OTHER_UID: Final = _INSIDE + "as uid {uid}, so the agent cannot read what it is given"


def inside_words(kind: CapsuleKind, *, run_as: int, uid: int, is_adopted: bool) -> str:
    """What the target `capsule` is with this kind; `uid` is the operator's."""
    if kind is CapsuleKind.NONE:
        return "not available: without a boundary there is no inside"
    if kind is CapsuleKind.REMOTE:
        return "not available over the bridge"
    is_rootless = kind is CapsuleKind.PODMAN and uid != 0
    if kind is CapsuleKind.BWRAP or (is_rootless and not is_adopted):
        return _APART
    if run_as and not is_rootless:
        return _OTHER_UID.format(uid=run_as)
    return _READABLE


SPEAKERS: Final = {
    CapsuleKind.NONE: "any process of these uids: there is no boundary",
    CapsuleKind.BWRAP: "processes of these uids below the init that launch recorded",
    CapsuleKind.PODMAN: "processes of these uids in the container, by the engine's own word",
    CapsuleKind.DOCKER: "processes of these uids in the container, by the engine's own word",
    CapsuleKind.REMOTE: "whoever has the bridge's token",
}
EFFECTS: Final = (
    "launch opens the doorway, writes the capsule's programs below the runtime directory, and "
    "takes both away again",
    "a command that you approve on the host can change the mounted directories that are not "
    "read-only, and whatever its own arguments ask of the network",
)
RISKS: Final = {
    CapsuleKind.NONE: (
        "there is no boundary: the agent can approve itself, and read whatever you can",
    ),
    CapsuleKind.BWRAP: (
        "a fault in the kernel's namespaces would let it out",
        "it sees the host's /usr and /opt, read-only",
    ),
    CapsuleKind.PODMAN: (
        "a fault in the kernel or in the engine would let it out",
        "what else you give the engine (other mounts, its socket) is yours to look after",
    ),
    CapsuleKind.DOCKER: (
        "the engine runs as root: whoever reaches its socket is root",
        "a fault in the kernel or in the engine would let it out",
    ),
    CapsuleKind.REMOTE: (
        "nothing but a token tells the agent from others who can read it",
        "the bridge's TCP is not encrypted: keep it on a network that is yours",
    ),
}
