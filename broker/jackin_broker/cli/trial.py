"""`try`: a first minute without any set-up.

A private broker with a temporary vault, a throw-away credential, a capsule with a small agent, and
one request for the operator to answer. Everything lives in one temporary directory that is
removed on every way out; the operator's own configuration, keyring and broker are not touched.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from .. import operator_protocol as op
from .. import paths
from ..errors import BrokerUnreachable, JackinError
from ..operator_client import ask_broker

# A broker with a cold cache; only a fault takes longer.
START_LIMIT_S: Final = 15.0
LOOK_S: Final = 0.05
# How long the picker stays after the agent ended, so that its result can be read.
LINGER_S: Final = 2.5
# TERM, then KILL; the broker gives its commands their own grace first.
END_LIMIT_S: Final = 10.0
CAPSULE: Final = "demo"
BINDING: Final = "DEMO_TOKEN"
_PROJECT: Final = "project"
_PROGRAM: Final = (sys.executable, "-m", "jackin_broker")

_AGENT: Final = f"""
echo '$ echo "${{{BINDING}:-I have no such thing}}"'
echo "${{{BINDING}:-I have no such thing}}"
echo '$ jackin-exec --want {BINDING} --reason "a first look" printenv {BINDING}'
jackin-exec --want {BINDING} --reason "a first look" printenv {BINDING}
echo "(exit status $?)"
"""

_INTRO: Final = """
jackin-exec: a first minute

  An agent starts in a capsule{boundary}.
  It has no credentials. It will ask to run

      printenv {binding}

  with a throw-away credential, made just now. You answer on the next screen:

      Space   tick {binding}, so that this one command gets it
      Enter   then says yes: it runs, and the agent gets its output, redacted
      Esc     says no: nothing runs

  Keys do nothing until the prompt has been still for a moment, so that what
  you type for something else approves nothing.
"""


@click.command("try")
@click.option("--yes", "at_once", is_flag=True, help="Do not wait for Enter before the screen.")
def try_(at_once: bool) -> int:
    """See it work in a minute, without any set-up."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise JackinError(
            "try needs a terminal: it shows the picker",
            hint="run it in a terminal, not in a pipe",
        )
    runtime = _runtime()
    boundary = "" if runtime == "bwrap" else " without a boundary: no bubblewrap here"
    click.echo(_INTRO.format(boundary=boundary, binding=BINDING))
    with _directory() as root:
        environ = _private_environment(root)
        _furnish(environ, root, runtime)
        # A passphrase costs seconds, twice: they pass while the text above is read.
        with ThreadPoolExecutor(1) as behind, _broker(environ) as child:
            ready = behind.submit(_make_ready, environ, child)
            if not at_once:
                _wait_for_enter()
            if not ready.done():
                click.echo("one moment, a vault is being made for it …", err=True)
            ready.result()
            transcript = _play(environ, root)
            record = _record(environ)
    _epilogue(transcript, record)
    return 0


def _runtime() -> str:
    """The kind of capsule that can be had: `launch` finds bubblewrap on PATH and nowhere else."""
    from ..runner import confine

    return "bwrap" if confine.is_available() and shutil.which("bwrap") else "none"


@contextmanager
def _directory() -> Generator[Path]:
    """A directory of our own, with a path so short that sockets fit; removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="jackin-try-", dir="/tmp"))
    former = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield root
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        shutil.rmtree(root, ignore_errors=True)


def _interrupt(number: int, _frame: object) -> None:
    """Leave by the same way as Ctrl-C, so that everything is cleaned up."""
    raise KeyboardInterrupt


def _private_environment(root: Path) -> dict[str, str]:
    environ = dict(os.environ)
    for variable, name in (
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_STATE_HOME", "state"),
        ("XDG_RUNTIME_DIR", "run"),
    ):
        (root / name).mkdir(mode=0o700)
        environ[variable] = str(root / name)
    return environ


def _furnish(environ: Mapping[str, str], root: Path, runtime: str) -> None:
    """The demo's configuration, and the directory that its agent works in."""
    from ..trust import ensure_private_dir

    here = paths.resolve(environ)
    ensure_private_dir(here.config_dir)
    project = root / _PROJECT
    project.mkdir()
    # Read-only, so that the first prompt that anybody sees has nothing to warn of.
    mount = f'{{ capsule = "/workspaces/demo", host = "{project}", read_only = true }}'
    if runtime == "bwrap":
        more = f"mounts = [{mount}]\n"
    else:
        more = f"\n[capsules.{CAPSULE}.binaries.printenv]\nconfine = false\n"
    text = f"""schema = 1

[broker]
keyring = "vault"
no_operator = "wait"

[env]
{BINDING} = {{ keyring = "jackin-try", on_demand = true, label = "a throw-away token" }}

[capsules.{CAPSULE}]
kind = "{runtime}"
host_binaries = ["printenv"]
{more}"""
    here.config_file.touch(mode=0o600)
    here.config_file.write_text(text)


@contextmanager
def _broker(environ: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """A private broker that has only just been started."""
    child = subprocess.Popen(
        [*_PROGRAM, "serve"],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    try:
        yield child
    finally:
        _end(child)


def _make_ready(environ: Mapping[str, str], child: subprocess.Popen[bytes]) -> None:
    """A vault that holds the throw-away credential, unlocked for the private broker."""
    from ..vault import Vault

    here = paths.resolve(environ)
    passphrase = secrets.token_urlsafe(24)
    vault = Vault(here.vault_file)
    vault.create(passphrase)
    vault.set("jackin-try", BINDING, "demo-" + secrets.token_urlsafe(24))
    vault.lock()
    _wait_for_broker(child, here)
    ask_broker(here.operator_socket, op.UnlockVault(0, passphrase))


def _wait_for_enter() -> None:
    click.prompt("Press Enter to begin", default="", show_default=False, prompt_suffix=" ")


def _wait_for_broker(child: subprocess.Popen[bytes], here: paths.Paths) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            ask_broker(here.operator_socket, op.GetStatus(0))
        except BrokerUnreachable as error:
            if child.poll() is not None or time.monotonic() > deadline:
                child.kill()
                assert child.stderr is not None
                words = child.stderr.read().decode("utf-8", "replace").strip()
                raise JackinError(f"the private broker did not start: {words}") from error
            time.sleep(LOOK_S)
        else:
            return


def _play(environ: Mapping[str, str], root: Path) -> str:
    """Run the agent behind the picker; what the agent saw."""
    here = paths.resolve(environ)
    transcript = root / "transcript"
    with transcript.open("wb") as sink:
        agent = subprocess.Popen(
            [*_PROGRAM, "launch", "--quiet", "--name", CAPSULE, "--", "sh", "-c", _AGENT],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            cwd=root / _PROJECT,
        )
        try:
            picker = subprocess.Popen(
                [sys.executable, "-m", "jackin_picker", "--socket", str(here.operator_socket)],
                env=dict(environ),
            )
            threading.Thread(target=_leave_after, args=(agent, picker), daemon=True).start()
            try:
                picker.wait()
            finally:
                _end(picker)
        finally:
            _end(agent)
    return transcript.read_text("utf-8", "replace")


def _leave_after(agent: subprocess.Popen[bytes], picker: subprocess.Popen[bytes]) -> None:
    """Close the picker a moment after the agent is done."""
    agent.wait()
    try:
        picker.wait(LINGER_S)
    except subprocess.TimeoutExpired:
        picker.terminate()


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    if child.stderr is not None:
        child.stderr.close()


def _record(environ: Mapping[str, str]) -> list[str]:
    from .. import audit
    from .audit_lines import describe

    lines = audit.read(paths.resolve(environ).audit_file)
    return [describe(line, is_brief=True) for line in lines if "argv" in line.fields]


def _epilogue(transcript: str, record: list[str]) -> None:
    from ..display import show

    click.echo("\nWhat the agent saw:\n")
    for line in transcript.splitlines():
        click.echo("    " + show(line).line)
    click.echo("\nWhat is on record:\n")
    for entry in record:
        click.echo("    " + entry)
    click.echo(
        "\nEverything of this trial is gone again. To use it for real:\n\n"
        "    jackin-broker config init               a configuration to begin with\n"
        "    jackin-broker credential add GH_TOKEN   a value from a hidden prompt\n"
        "    jackin-broker                           start the broker, open the picker\n"
    )
