"""`launch`: start an agent in a capsule, with its doorway and programs in place.

The broker holds the capsule for as long as this program's connection lives. When the broker goes
away the agent works on; as soon as one runs again the capsule is opened there anew.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from .. import paths
from ..config.model import CapsuleKind, Mount
from ..errors import ConfigError
from ..launch import private_tmux
from ..launch.base import Launcher, Plan, capsule_cwd, choose_uid
from ..launch.bwrap import BubblewrapLauncher
from ..launch.docker import DockerLauncher
from ..launch.holding import Holding
from ..launch.none import PlainLauncher
from ..launch.podman import PodmanLauncher
from ..launch.run import run
from ..links import build_programs
from ..operator_client import ask_broker
from ..operator_protocol import CapsuleReady, GetStatus, MountView, OpenCapsule, StatusReport

LAUNCHERS: Final[dict[CapsuleKind, type[Launcher]]] = {
    launcher.kind: launcher
    for launcher in (BubblewrapLauncher, PodmanLauncher, DockerLauncher, PlainLauncher)
}
_READ_ONLY: Final = "ro"


@dataclass(frozen=True)
class Wishes:
    """What was asked for on the command line, beside the configuration."""

    uid: int | None
    image: str
    has_network: bool
    is_quiet: bool
    teaches: bool
    command: tuple[str, ...]


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--runtime",
    type=click.Choice([kind.value for kind in LAUNCHERS]),
    help="The kind of capsule. [default: the configured one]",
)
@click.option("--name", default="", help="Which capsule. [default: the only configured one]")
@click.option("--image", default="", help="What a container is made of. [default: configured]")
@click.option("--uid", type=click.IntRange(min=0), help="The uid that it lives as; for root.")
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="CAPSULE=HOST[:ro]",
    help="One more directory of the host, beside the configured ones.",
)
@click.option(
    "--ro-mount", "ro_mounts", multiple=True, metavar="CAPSULE=HOST", help="The same, read-only."
)
@click.option(
    "--network/--no-network",
    "has_network",
    default=True,
    help="The host's network, or one of its own that is empty.",
)
@click.option(
    "--tmux/--no-tmux",
    "tmux",
    default=None,
    help="A private tmux session with the picker beside the agent. [default: ask]",
)
@click.option(
    "--teach/--no-teach",
    "teaches",
    default=True,
    help="Tell the agents that are known of it, in the capsule's own HOME.",
)
@click.option("--explain", "explains", is_flag=True, help="Say what would be opened; no more.")
@click.option("--json", "as_json", is_flag=True, help="With --explain: print JSON.")
@click.option("--socket", type=click.Path(path_type=Path), help="Another operator.sock.")
@click.option("--quiet", is_flag=True, help="No banner.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def launch(
    runtime: str | None,
    name: str,
    image: str,
    uid: int | None,
    mounts: tuple[str, ...],
    ro_mounts: tuple[str, ...],
    has_network: bool,
    tmux: bool | None,
    teaches: bool,
    explains: bool,
    as_json: bool,
    socket: Path | None,
    quiet: bool,
    command: tuple[str, ...],
) -> int:
    """Start COMMAND, an agent, in a capsule with everything wired."""
    wanted = (*(parse_mount(one) for one in mounts), *(parse_mount(one, True) for one in ro_mounts))
    call = OpenCapsule(0, name, runtime or "", () if uid is None else (uid,), wanted)
    place = socket or paths.resolve(os.environ).operator_socket
    wishes = Wishes(uid, image, has_network, quiet, teaches, command)
    if explains:
        from .explain import explain_launch

        explain_launch(place, call, image=image, has_network=has_network, as_json=as_json)
        return 0
    if not command:
        raise ConfigError("no command to start", hint="as in: jackin-broker launch -- bash")
    if _wants_tmux(tmux, place, quiet=quiet):
        return _run_in_tmux(place)
    return _launch(Holding(place, call), wishes)


def _launch(holding: Holding, wishes: Wishes) -> int:
    try:
        ready = holding.open()
        launcher = _launcher(ready)
        plan = _plan(launcher, ready, wishes)
        if not wishes.is_quiet:
            _say_what_is_open(ready, wishes.command[0])
        return run(launcher, plan, holding.record_init, holding)
    finally:
        holding.close()


def _wants_tmux(tmux: bool | None, place: Path, *, quiet: bool) -> bool:
    """Whether it runs in a private tmux session; where nobody is attached it is offered."""
    if tmux is not None:
        if tmux and not private_tmux.is_possible():
            raise ConfigError(
                "there can be no private tmux session here",
                hint="it takes a terminal outside tmux, and the package tmux",
            )
        return tmux
    if quiet or _has_operator(place):
        return False
    if private_tmux.is_possible():
        click.echo("jackin-broker: nobody is attached to answer this agent's requests", err=True)
        return click.confirm("Open a tmux session with the picker beside it?", err=True)
    click.echo("jackin-broker: to answer, in another terminal: jackin-broker attach", err=True)
    return False


def _has_operator(place: Path) -> bool:
    """Whether a request would be seen: somebody is attached, or the picker would pop up."""
    status = ask_broker(place, GetStatus(0))
    return isinstance(status, StatusReport) and (status.operators > 0 or status.can_pop_up)


def _run_in_tmux(place: Path) -> int:
    program = private_tmux.own_program()
    words = sys.argv[1:]
    at = words.index("launch") + 1
    inner = [*program, *words[:at], "--no-tmux", *(w for w in words[at:] if w != "--tmux")]
    return private_tmux.run_in_tmux(place.parent, inner, [*program, "attach"])


def parse_mount(text: str, read_only: bool = False) -> MountView:
    """The mount in `CAPSULE=HOST[:ro]`; the host's side may be relative or begin with ~.

    Raises: ConfigError.
    """
    inside, separator, outside = text.partition("=")
    path, _, mode = outside.rpartition(":")
    is_marked = bool(path) and mode == _READ_ONLY
    host = Path(path if is_marked else outside).expanduser()
    if not separator or not outside or not os.path.isabs(inside):
        raise ConfigError(
            f"--mount {text}: expected CAPSULE=HOST or CAPSULE=HOST:ro",
            hint="as in --mount /workspaces/app=~/src/app",
        )
    return MountView(os.path.normpath(inside), os.path.realpath(host), is_marked or read_only)


def _launcher(ready: CapsuleReady) -> Launcher:
    made = LAUNCHERS.get(CapsuleKind(ready.kind))
    if made is None:
        raise ConfigError(
            f"capsules.{ready.name}.kind: {ready.kind} is started elsewhere",
            hint=f"jackin-broker capsule env {ready.name} prints what it needs",
        )
    launcher = made()
    launcher.check()
    return launcher


def _plan(launcher: Launcher, ready: CapsuleReady, wishes: Wishes) -> Plan:
    image = wishes.image or ready.image
    interpreter = launcher.interpreter(image)
    build_programs(Path(ready.bin_dir), _names(ready, "JACKIN_HOST_BINARIES"), interpreter)
    mounts = tuple(Mount(m.capsule, m.host, m.read_only) for m in ready.mounts)
    return Plan(
        name=ready.name,
        command=_command(launcher, ready, wishes),
        env=ready.env,
        run_dir=ready.run_dir,
        bin_dir=ready.bin_dir,
        interpreter=interpreter,
        uid=choose_uid(wishes.uid, ready.uids, is_free=launcher.gives_any_uid),
        mounts=mounts,
        cwd=capsule_cwd(mounts, Path.cwd()),
        has_network=wishes.has_network,
        image=image,
        run_as=ready.run_as,
    )


def _command(launcher: Launcher, ready: CapsuleReady, wishes: Wishes) -> tuple[str, ...]:
    """The agent's command, behind what tells agents of the doorway where there is one to use."""
    names = [*_names(ready, "JACKIN_EXEC_BINDINGS"), *_names(ready, "JACKIN_HOST_BINARIES")]
    if not (launcher.has_boundary and wishes.teaches and names):
        return wishes.command
    return (f"{paths.CAPSULE_BIN_DIR}/jackin-capsule", "equip", "--", *wishes.command)


def _names(ready: CapsuleReady, variable: str) -> list[str]:
    return [name for name in ready.env.get(variable, "").split(",") if name]


def _say_what_is_open(ready: CapsuleReady, program: str) -> None:
    """What the agent in this capsule can reach, in a few lines on stderr."""
    _say(f"capsule {ready.name} ({ready.kind})")
    if ready.kind == CapsuleKind.NONE.value:
        _say("warning: it has no boundary, the agent can approve itself")
    for key, words in (
        ("JACKIN_EXEC_BINDINGS", "may be lent, each time you say yes"),
        ("JACKIN_HOST_BINARIES", "may run on the host and do anything their arguments ask"),
    ):
        if names := _names(ready, key):
            _say(f"{', '.join(names)}: {words}")
    if url := ready.env.get("JACKIN_EXEC_URL"):
        _say(f"{url}: its bridge; whoever has its token may ask, and its TCP is not encrypted")
    if program in _names(ready, "JACKIN_HOST_BINARIES"):
        _say(
            f"{program} is a host binary too: this starts the capsule's own, and by that name "
            "the agent asks for the host's"
        )


def _say(line: str) -> None:
    click.echo(f"jackin-broker: {line}", err=True)
