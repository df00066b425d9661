"""The daemon's life from the command line: `serve`, `attach`, `status`, `reload`, `stop`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NoReturn

import click
import msgspec

from .. import operator_protocol as op
from .. import paths
from ..bridge.tokens import load_key
from ..display import show
from ..errors import BrokerUnreachable, JackinError
from ..operator_client import ask_broker
from .hidden_prompt import WAIT

# A broker on a slow disk with a cold cache; only a fault takes longer, and the log has it.
START_LIMIT_S: Final = 15.0
# Between two looks whether the broker that was started answers.
START_LOOK_S: Final = 0.05
# Commands that run get their grace before the broker ends.
STOP_LIMIT_S: Final = 30.0


@click.command()
def serve() -> None:
    """Run the broker in the foreground until it is stopped or interrupted."""
    from ..daemon import run

    gc.freeze()  # what was imported stays: a look through all of it is felt as a slow start
    asyncio.run(run(os.environ, announce=lambda line: click.echo(line)))


@click.command()
@click.option("--plain", is_flag=True, help="Line by line, without a screen: for screen readers.")
def attach(plain: bool) -> None:
    """Open the picker on the running broker."""
    socket_path = paths.resolve(os.environ).operator_socket
    _status(socket_path)
    _become_picker(socket_path, *(("--plain",) if plain else ()))


def start_and_attach() -> NoReturn:
    """Start the broker if none runs, and open the picker in its place.

    Raises: JackinError; nothing is started where the picker would have no terminal.
    """
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise JackinError(
            "the picker needs a terminal, and this is none",
            hint="start the broker alone with: jackin-broker serve",
        )
    places = paths.resolve(os.environ)
    if not _answers(places.operator_socket):
        click.echo("no broker runs, starting one …", err=True)
        _start_in_background(places)
    _offer_to_unlock(places.operator_socket)
    _become_picker(places.operator_socket)


def _offer_to_unlock(socket_path: Path) -> None:
    """Ask for the passphrase of a locked vault now: later, every approval would fail for it."""
    report = _status(socket_path)
    if report.vault != "locked" or "vault" not in report.keyring:
        return
    click.echo("the vault is locked: type its passphrase, or Enter to go on without", err=True)
    while passphrase := click.prompt(
        "vault passphrase", default="", show_default=False, hide_input=True, err=True
    ):
        try:
            click.echo(WAIT, err=True)
            ask_broker(socket_path, op.UnlockVault(0, passphrase))
        except BrokerUnreachable:
            raise
        except JackinError as error:
            click.echo(str(error), err=True)
        else:
            return
    click.echo("locked it stays; unlock it with: jackin-broker vault unlock", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--show-token", is_flag=True, help="With the tokens of the capsules' bridges.")
@click.option("--waiting", is_flag=True, help="Only how many requests wait, for a status line.")
def status(as_json: bool, show_token: bool, waiting: bool) -> None:
    """Say what is up: capsules, who is attached, what waits and runs."""
    places = paths.resolve(os.environ)
    report = _status(places.operator_socket)
    if waiting:
        click.echo(str(report.waiting))
        return
    tokens = _tokens(report, places) if show_token else {}
    if as_json:
        fields = msgspec.to_builtins(report)
        del fields["seq"], fields["type"]
        for capsule in fields["capsules"]:
            if capsule["name"] in tokens:
                capsule["bridge"]["token"] = tokens[capsule["name"]]
        click.echo(json.dumps(fields, indent=2))
        return
    operators = f"{report.operators} attached" if report.operators else "nobody attached"
    operators += ", requests pop up in tmux" if report.can_pop_up else ""
    click.echo(f"broker {report.version}, pid {report.pid}, up {report.uptime_s:.0f} s")
    click.echo(f"operators: {operators}; {report.waiting} waiting, {report.running} running")
    click.echo(f"keyring: {report.keyring}; vault: {report.vault}")
    for capsule in report.capsules:
        note = f" ({capsule.note})" if capsule.note else ""
        doors = [capsule.socket] if capsule.socket else []
        if capsule.bridge is not None:
            doors.append(f"{capsule.bridge.url} and {capsule.bridge.address} for frames")
        click.echo(f"capsule {capsule.name}: {', '.join((capsule.kind, *doors))}{note}")
        if capsule.name in tokens:
            click.echo(f"capsule {capsule.name}: token {tokens[capsule.name]}")
    if not report.capsules:
        click.echo("no capsule is configured: jackin-broker config init")
    for notice in report.notices:
        click.echo(f"notice: {show(notice).line}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def reload(as_json: bool) -> None:
    """Have the broker read its configuration again; what runs is not harmed."""
    reply = ask_broker(paths.resolve(os.environ).operator_socket, op.Reload(0))
    assert isinstance(reply, op.Done)
    if as_json:
        click.echo(json.dumps({"reloaded": True, "notes": list(reply.notes)}))
        return
    click.echo("reloaded")
    for note in reply.notes:
        click.echo(f"note: {note}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stop(as_json: bool) -> None:
    """Stop the broker; what waits is denied, what runs is ended."""
    socket_path = paths.resolve(os.environ).operator_socket
    pid = _status(socket_path).pid
    watch = os.pidfd_open(pid)
    try:
        ask_broker(socket_path, op.Stop(0))
        click.echo("stopping …", err=True)
        _wait_for_end(watch, pid)
    finally:
        os.close(watch)
    click.echo(json.dumps({"stopped": True, "pid": pid}) if as_json else "stopped")


def _tokens(report: op.StatusReport, places: paths.Paths) -> dict[str, str]:
    """The tokens of the open bridges, from the operator's own files: no message carries one."""
    keys = {
        capsule.name: load_key(places.bridge_file(capsule.name))
        for capsule in report.capsules
        if capsule.bridge is not None
    }
    return {name: key.token for name, key in keys.items() if key is not None}


def _wait_for_end(watch: int, pid: int) -> None:
    import select

    poller = select.poll()
    poller.register(watch, select.POLLIN)
    if not poller.poll(STOP_LIMIT_S * 1000):
        raise JackinError(f"the broker (pid {pid}) has not ended within {STOP_LIMIT_S:g} s")


def _status(socket_path: Path) -> op.StatusReport:
    reply = ask_broker(socket_path, op.GetStatus(0))
    assert isinstance(reply, op.StatusReport)
    return reply


def _answers(socket_path: Path) -> bool:
    try:
        _status(socket_path)
    except BrokerUnreachable:
        return False
    return True


def _start_in_background(places: paths.Paths) -> None:
    """Start `serve` in a session of its own and wait until it answers.

    Raises: JackinError with the broker's own words when it ends at once.
    """
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "jackin_broker", "serve"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    assert child.stderr is not None
    deadline = time.monotonic() + START_LIMIT_S
    while not _answers(places.operator_socket):
        if child.poll() is not None:
            words = child.stderr.read().decode("utf-8", "replace").strip()
            raise JackinError(
                f"the broker did not start: {_line_of(words, 'error')}",
                hint=_line_of(words, "hint") or f"see {places.log_file}",
            )
        if time.monotonic() > deadline:
            raise JackinError(
                f"the broker does not answer after {START_LIMIT_S:g} s",
                hint=f"see {places.log_file}",
            )
        time.sleep(START_LOOK_S)
    child.stderr.close()


def _line_of(words: str, mark: str) -> str:
    """The error or the hint of the broker's own stderr, without its prefix."""
    for line in words.splitlines():
        _, found, text = line.partition(f"jackin-broker: {mark}: ")
        if found:
            return text
    if mark == "hint":
        return ""
    return words.splitlines()[-1] if words else "it said nothing"


def _become_picker(socket_path: Path, *options: str) -> NoReturn:
    # -P: a module in the current directory, which may be a project, is not ours.
    command = [sys.executable, "-P", "-m", "jackin_picker"]
    argv = [*command, "--socket", str(socket_path), *options]
    sys.stdout.flush()
    os.execv(sys.executable, argv)  # noqa: S606 - our own interpreter and module
