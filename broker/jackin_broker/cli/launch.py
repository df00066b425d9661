"""`launch`: start an agent in a capsule, with its doorway and programs in place.

The broker holds the capsule for as long as this program's connection lives. When the broker goes
away the agent works on; as soon as one runs again the capsule is opened there anew.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import click

from .. import paths
from ..config.model import CapsuleKind, Mount
from ..errors import BrokerUnreachable, ConfigError, JackinError
from ..launch.base import Launcher, Plan, capsule_cwd, choose_uid
from ..launch.bwrap import BubblewrapLauncher
from ..launch.none import PlainLauncher
from ..launch.run import Watch, run
from ..links import build_programs
from ..operator_client import BlockingClient
from ..operator_protocol import CapsuleReady, MountView, OpenCapsule, RecordInit, Reply

LAUNCHERS: Final[dict[CapsuleKind, type[Launcher]]] = {
    launcher.kind: launcher for launcher in (BubblewrapLauncher, PlainLauncher)
}
# Soon enough for the next command after a broker's restart, rare enough to cost nothing.
REOPEN_EVERY_S: Final = 1.0
# A broker that answers answers at once; keys wait meanwhile.
REOPEN_LIMIT_S: Final = 5.0
# Whether the connection has ended is known without waiting.
_LOOK_S: Final = 0.001
_READ_ONLY: Final = "ro"


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--runtime",
    type=click.Choice([kind.value for kind in LAUNCHERS]),
    help="The kind of capsule. [default: the configured one]",
)
@click.option("--name", default="", help="Which capsule. [default: the only configured one]")
@click.option("--uid", type=click.IntRange(min=0), help="The uid that it lives as; for root.")
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="CAPSULE=HOST[:ro]",
    help="One more directory of the host, beside the configured ones.",
)
@click.option("--no-network", is_flag=True, help="Give it a network namespace of its own, empty.")
@click.option("--socket", type=click.Path(path_type=Path), help="Another operator.sock.")
@click.option("--quiet", is_flag=True, help="No banner.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(
    runtime: str | None,
    name: str,
    uid: int | None,
    mounts: tuple[str, ...],
    no_network: bool,
    socket: Path | None,
    quiet: bool,
    command: tuple[str, ...],
) -> int:
    """Start COMMAND, an agent, in a capsule with everything wired."""
    call = OpenCapsule(
        seq=0,
        name=name,
        kind=runtime or "",
        uids=() if uid is None else (uid,),
        mounts=tuple(parse_mount(text) for text in mounts),
    )
    session = Session(socket or paths.resolve(os.environ).operator_socket, call)
    try:
        ready = session.open()
        launcher = _launcher(ready)
        plan = _plan(launcher, ready, uid, command, has_network=not no_network)
        if not quiet:
            _say_what_is_open(ready, command[0])
        return run(launcher, plan, session.record_init, session)
    finally:
        session.close()


class Session(Watch):
    """The capsule as the broker holds it for us, opened again when a broker comes back."""

    def __init__(self, socket: Path, call: OpenCapsule) -> None:
        self._socket = socket
        self._call = call
        self._client: BlockingClient | None = None
        self._name = call.name
        self._init: int | None = None
        self._reopen_at = 0.0

    def open(self) -> CapsuleReady:
        """Open the capsule.

        Raises: BrokerUnreachable, or the broker's reason against it.
        """
        client = BlockingClient(self._socket)
        try:
            ready = _ready(client.call(self._call, timeout_s=REOPEN_LIMIT_S))
        except BaseException:
            client.close()
            raise
        self._client, self._name = client, ready.name
        return ready

    def record_init(self, pid: int) -> None:
        """Put the capsule's init on record.

        Raises: BrokerUnreachable, or the broker's reason against it.
        """
        if self._client is None:
            raise BrokerUnreachable("the broker has gone")
        self._client.call(RecordInit(0, self._name, pid), timeout_s=REOPEN_LIMIT_S)
        self._init = pid

    def close(self) -> None:
        """Give the capsule back."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def fileno(self) -> int | None:
        return self._client.fileno() if self._client is not None else None

    def ready(self) -> None:
        """The connection said something; all that matters is whether it ended."""
        try:
            if self._client is not None:
                self._client.next_push(_LOOK_S)
        except JackinError:
            self.close()
            self._reopen_at = time.monotonic() + REOPEN_EVERY_S

    def tick(self) -> float | None:
        if self._client is not None:
            return None
        if time.monotonic() >= self._reopen_at:
            self._reopen()
        return None if self._client is not None else REOPEN_EVERY_S

    def _reopen(self) -> None:
        """The agent works on whether this succeeds or not: its next command says what is wrong."""
        self._reopen_at = time.monotonic() + REOPEN_EVERY_S
        try:
            self.open()
            if self._init is not None:
                self.record_init(self._init)
        except JackinError:
            self.close()


def _ready(reply: Reply) -> CapsuleReady:
    if not isinstance(reply, CapsuleReady):
        raise JackinError(
            "the broker gave an answer that does not fit",
            hint="restart it from the installation that this program is of",
        )
    return reply


def parse_mount(text: str) -> MountView:
    """The mount in `CAPSULE=HOST[:ro]`; the host's side may be relative or begin with ~.

    Raises: ConfigError.
    """
    inside, separator, outside = text.partition("=")
    path, _, mode = outside.rpartition(":")
    is_read_only = bool(path) and mode == _READ_ONLY
    host = Path(path if is_read_only else outside).expanduser()
    if not separator or not outside or not os.path.isabs(inside):
        raise ConfigError(
            f"--mount {text}: expected CAPSULE=HOST or CAPSULE=HOST:ro",
            hint="as in --mount /workspaces/app=~/src/app",
        )
    return MountView(os.path.normpath(inside), os.path.realpath(host), is_read_only)


def _launcher(ready: CapsuleReady) -> Launcher:
    made = LAUNCHERS.get(CapsuleKind(ready.kind))
    if made is None:
        raise ConfigError(f"capsules.{ready.name}.kind: {ready.kind} cannot be launched yet")
    launcher = made()
    launcher.check()
    return launcher


def _plan(
    launcher: Launcher,
    ready: CapsuleReady,
    uid: int | None,
    command: tuple[str, ...],
    *,
    has_network: bool,
) -> Plan:
    interpreter = launcher.interpreter()
    binaries = ready.env.get("JACKIN_HOST_BINARIES", "")
    build_programs(Path(ready.bin_dir), [name for name in binaries.split(",") if name], interpreter)
    mounts = tuple(Mount(m.capsule, m.host, m.read_only) for m in ready.mounts)
    return Plan(
        name=ready.name,
        command=command,
        env=ready.env,
        run_dir=ready.run_dir,
        bin_dir=ready.bin_dir,
        interpreter=interpreter,
        uid=choose_uid(uid, ready.uids),
        mounts=mounts,
        cwd=capsule_cwd(mounts, Path.cwd()),
        has_network=has_network,
    )


def _say_what_is_open(ready: CapsuleReady, program: str) -> None:
    """What the agent in this capsule can reach, in a few lines on stderr."""
    click.echo(f"jackin-broker: capsule {ready.name} ({ready.kind})", err=True)
    if ready.kind == CapsuleKind.NONE.value:
        click.echo(
            "jackin-broker: warning: it has no boundary, the agent can approve itself", err=True
        )
    for key, words in (
        ("JACKIN_EXEC_BINDINGS", "may be lent, each time you say yes"),
        ("JACKIN_HOST_BINARIES", "may run on the host and do anything their arguments ask"),
    ):
        if names := ready.env.get(key):
            click.echo(f"jackin-broker: {names.replace(',', ', ')}: {words}", err=True)
    if program in ready.env.get("JACKIN_HOST_BINARIES", "").split(","):
        click.echo(
            f"jackin-broker: warning: {program} is a host binary, so this asks for it on the host; "
            "give its path for the capsule's own",
            err=True,
        )
