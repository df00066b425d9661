"""Who is at the other end of a socket: a process of this capsule, its init, the operator.

The socket says which capsule, the kernel says who (DESIGN §4). A program's name and arguments
are labels for the prompt and never proof. What cannot be read is a refusal.
Invariant, the pidfd sandwich: credentials and a pidfd are taken from the socket, /proc is read,
and only then the pidfd must still be alive; so everything read was of the process that connected.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .capsules import Capsule, InitRecord
from .errors import DenialCode, Refusal
from .operator_protocol import ProcessView
from .processes import Namespace, ProcessGone, Status, is_alive, lineage, opened

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

# Linux 6.5; Python has no name for it yet. Source: asm-generic/socket.h.
_SO_PEERPIDFD: Final = 77
_PEERCRED: Final = struct.Struct("iII")
# The uid that the kernel shows for one that has no mapping: it could be anybody.
OVERFLOW_UID: Final = 65534
# Agents nest shells and interpreters, not a hundred of them; each level costs three reads.
LINEAGE_MAX: Final = 128
# As many labels as a prompt has room for.
CHAIN_SHOWN: Final = 16
# A process of the chain may end while it is read; each try starts again at the caller.
_CHAIN_TRIES: Final = 3


@dataclass(frozen=True, eq=False)
class Caller:
    """A process that may speak for its capsule. `close` lets go of its pidfd.

    Over the bridge nobody sees the process: `pidfd` is None, pid and depth 0, uid -1.
    """

    pid: int
    uid: int
    pidfd: int | None
    depth: int
    chain: tuple[ProcessView, ...]
    # Whether it may still begin something: over the bridge, as long as its token is valid.
    may_begin: Callable[[], bool] = lambda: True

    @property
    def is_bridged(self) -> bool:
        """Whether a token spoke for it over TCP, and not the kernel."""
        return self.pidfd is None

    def is_alive(self) -> bool:
        """Whether it has not ended; over the bridge its connection says so."""
        return self.pidfd is None or is_alive(self.pidfd)

    def again(self) -> Caller:
        """The same caller for another request, with a pidfd of its own."""
        return replace(self, pidfd=None if self.pidfd is None else os.dup(self.pidfd))

    def close(self) -> None:
        """Let go of the pidfd."""
        if self.pidfd is not None:
            os.close(self.pidfd)


def bridge_caller(address: str, may_begin: Callable[[], bool]) -> Caller:
    """Whoever came over the bridge with the token, from this address of the network."""
    return Caller(0, -1, None, 0, (ProcessView(0, f"bridge {address}"),), may_begin)


def identify(sock: socket.socket | TransportSocket, capsule: Capsule) -> Caller:
    """The process that connected to this capsule's socket, if it lives in the capsule.

    Raises: Refusal(PEER_REFUSED).
    """
    pid, uid = peer_credentials(sock)
    check_credentials(pid, uid, _uids_of(capsule, pid))
    pidfd = _peer_pidfd(sock, pid)
    try:
        chain = _chain_in(capsule, pid)
        _check_alive(pidfd)
    except BaseException:
        os.close(pidfd)
        raise
    views = tuple(ProcessView(status.pid, status.name) for status in chain[:CHAIN_SHOWN])
    return Caller(pid, uid, pidfd, len(chain[0].depths), views)


def _uids_of(capsule: Capsule, pid: int) -> Collection[int]:
    """Who may speak: the configured uids; init itself as whom it was recorded."""
    init = capsule.init
    if init is not None and pid == init.pid:
        return {*capsule.uids, init.uid}
    return capsule.uids


def is_init(caller: Caller, capsule: Capsule) -> bool:
    """Whether the caller is the recorded init itself; the only one values may cross to.

    A nested namespace has an innermost pid 1 too: it is another process, and deeper.
    """
    init = capsule.init
    return (
        init is not None
        and not caller.is_bridged
        and caller.pid == init.pid
        and caller.depth == init.depth
        and caller.is_alive()
        and init.is_alive()
    )


def is_runner(caller: Caller, capsule: Capsule) -> bool:
    """Whether the caller is the recorded init and our own program: it runs commands inside."""
    return is_init(caller, capsule) and capsule.init is not None and capsule.init.is_ours


def check_operator(sock: socket.socket | TransportSocket, broker_pid: int) -> int:
    """The pid of the operator's program at the other end of operator.sock.

    It has the broker's uid and PID namespace, and no command of the broker is above it.
    Raises: Refusal(PEER_REFUSED).
    """
    pid, uid = peer_credentials(sock)
    check_credentials(pid, uid, (os.geteuid(),))
    pidfd = _peer_pidfd(sock, pid)
    try:
        _check_beside(pid, broker_pid)
        _check_alive(pidfd)
    finally:
        os.close(pidfd)
    return pid


def peer_credentials(sock: socket.socket | TransportSocket) -> tuple[int, int]:
    """The host pid and host uid of the process that connected. Source: unix(7), SO_PEERCRED."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    pid, uid, _ = _PEERCRED.unpack(raw)
    return pid, uid


def check_credentials(pid: int, uid: int, uids: Collection[int]) -> None:
    """Return when a kernel's answer can be somebody who is configured.

    Raises: Refusal(PEER_REFUSED) for pid 0 (a namespace that we cannot see), for the overflow
    uid even where it is configured, and for a uid that is not.
    """
    if pid <= 0:
        raise _refused("the caller lives in a process namespace that the broker cannot see")
    if uid == OVERFLOW_UID:
        raise _refused(f"the caller has the overflow uid {OVERFLOW_UID}, which is nobody")
    if uid not in uids:
        raise _refused(f"uid {uid} is not one that may speak here")


def _peer_pidfd(sock: socket.socket | TransportSocket, pid: int) -> int:
    """A pidfd of the process that connected, dead or alive.

    Before Linux 6.5 it is opened by number: a pid reused between connecting and accepting
    would then be taken for the caller, and still has to live in the capsule.
    """
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise _refused("the caller ended before it was identified") from error
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        raise _refused("the caller ended before it was identified") from error


def _check_alive(pidfd: int) -> None:
    if not is_alive(pidfd):
        raise _refused("the caller ended before it was identified")


def _chain_in(capsule: Capsule, pid: int) -> list[Status]:
    """The caller and what is above it, up to init. Raises: Refusal unless it is in the capsule."""
    for _ in range(_CHAIN_TRIES):
        try:
            if capsule.has_boundary:
                return _chain_to_init(pid, capsule)
            return _first(pid, LINEAGE_MAX)
        except ProcessGone:
            continue
    raise _refused("the caller's processes cannot be read")


def _chain_to_init(pid: int, capsule: Capsule) -> list[Status]:
    init = capsule.init
    if init is None or not init.is_alive():
        raise _without_init(capsule)
    shares_namespace = _shares_namespace(pid, init) or _shares_cgroup(pid, init)
    chain: list[Status] = []
    with closing(lineage(pid)) as steps:
        for status in steps:
            # A child is never shallower than its parent, so init is not further up either.
            if len(status.depths) < init.depth or len(chain) == LINEAGE_MAX:
                break
            chain.append(status)
            if status.pid == init.pid:
                break
    reaches_init = bool(chain) and chain[-1].pid == init.pid
    if not (chain and (shares_namespace or reaches_init) and init.is_alive()):
        raise _refused(f"the caller does not live in capsule {capsule.name}")
    return chain


def _shares_namespace(pid: int, init: InitRecord) -> bool:
    with opened(pid) as process:
        mine = process.pid_namespace()
    return mine is not None and mine == init.namespace()


def _without_init(capsule: Capsule) -> Refusal:
    """Nobody may speak yet: not launched, or not opened again after a broker's restart.

    Why not is the operator's to read: whoever asks here may be anybody.
    """
    words = f"capsule {capsule.name} has no running init on record"
    start = f"start it with: jackin-broker launch --name {capsule.name} -- COMMAND"
    if not capsule.why_closed:
        return Refusal(DenialCode.PEER_REFUSED, words, hint=start)
    return Refusal(
        DenialCode.PEER_REFUSED,
        f"{words}: the broker does not open it again for its launcher",
        hint=f"the operator reads why in: jackin-broker status; or ends it, and can {start}",
    )


def _shares_cgroup(pid: int, init: InitRecord) -> bool:
    """For a container's processes that do not descend from its init, seen by another uid."""
    if not init.cgroup:
        return False
    with opened(pid) as process:
        return process.is_in_cgroup(init.cgroup)


def _check_beside(pid: int, broker_pid: int) -> None:
    for _ in range(_CHAIN_TRIES):
        try:
            with opened(pid) as process, opened(broker_pid) as broker:
                theirs, ours = process.pid_namespace(), broker.pid_namespace()
            chain = _first(pid, LINEAGE_MAX + 1)
            break
        except ProcessGone:
            continue
    else:
        raise _refused("the caller's processes cannot be read")
    _check_same_namespace(theirs, ours)
    if len(chain) > LINEAGE_MAX:
        raise _refused("the caller is too deep in other processes")
    if any(status.pid == broker_pid for status in chain[1:]):
        raise _refused("the caller runs under the broker, as a command that it started")


def _check_same_namespace(theirs: Namespace | None, ours: Namespace | None) -> None:
    if theirs is None or ours is None or theirs != ours:
        raise _refused("the caller is not in the broker's process namespace")


def _first(pid: int, count: int) -> list[Status]:
    """The process and at most so many in all, upwards."""
    chain: list[Status] = []
    with closing(lineage(pid)) as steps:
        for status in steps:
            chain.append(status)
            if len(chain) == count:
                break
    return chain


def _refused(reason: str) -> Refusal:
    return Refusal(DenialCode.PEER_REFUSED, reason)
