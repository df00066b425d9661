"""Delivery `ssh-agent`: a real agent for this command alone, which holds only the ticked keys.

The command can have things signed; the key itself never enters it, so it has no needles. Each key
has a lifetime and, where its binding names some, destinations; a passphrase comes from a second
binding. The record gets the fingerprints. `agent_keeper.py` starts and ends the agent,
`agent_filter.py` says what may be asked of it.
"""

from __future__ import annotations

import asyncio
import marshal
import math
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..bindings import Binding, Credential
from ..protocol import Target
from . import agent_keeper as keeper
from .agent_filter import AgentFilter, fingerprints_in
from .base import COMMAND_DIR, Place, Prepared, PrivateSocket, refused
from .file import as_file
from .scratch import AGENT_SOCKET

VARIABLE: Final = b"SSH_AUTH_SOCK"
# Of the socket that the command sees, on the host and in a confined command.
_FILTER_SOCKET: Final = "sock"
_SOCKET_NAME: Final = "ssh-agent.sock"
_SEARCH_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"
# A pipe's smallest capacity on the systems we know; RSA keys of 16,384 bits take 13 KB.
KEY_MAX_BYTES: Final = 16 * 1024
# Agent and ssh-add take 7 ms; a passphrase's key derivation up to seconds on a slow machine.
LOAD_LIMIT_S: Final = 20.0
# The keeper's answer comes at the limit at the latest, and some bytes long.
_ANSWER_LIMIT_S: Final = LOAD_LIMIT_S + 5.0
_ANSWER_MAX_BYTES: Final = 256
# From the end of stdin to the keeper's own; then it is killed.
_LEAVE_LIMIT_S: Final = 3.0
# ssh-add counts whole seconds; a key must not go before its command's last use.
_LIFETIME_SPARE_S: Final = 60
_KNOWN_HOSTS: Final = ("{home}/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")


class _Programs(NamedTuple):
    agent: str
    add: str


class SshAgentDelivery:
    """One agent a command, however many keys are ticked."""

    def check(self, bindings: Sequence[Binding], place: Place) -> None:
        """OpenSSH must be there, and a socket that the command alone can reach.

        Raises: Refusal(SOURCE_FAILED).
        """
        if why := place.why_no_files or place.why_no_sockets:
            raise refused(
                bindings[0], why, hint="the operator may list the command in host_binaries"
            )
        _programs(bindings[0])

    async def deliver(
        self, credentials: Sequence[Credential], prepared: Prepared, place: Place
    ) -> None:
        """Start the agent, load the keys, and say where it listens.

        Raises: Refusal(SOURCE_FAILED), ConfigError, OSError.
        """
        folder = prepared.directory(place.scratch)
        agent = os.fspath(folder / AGENT_SOCKET)
        ours, theirs = socket.socketpair()
        with theirs:
            process = _spawn_keeper(theirs)

        async def leave() -> None:
            ours.close()
            await asyncio.to_thread(_reap, process)

        prepared.cleanups.append(leave)
        ours.setblocking(False)
        await _load(credentials, place, agent, ours)
        seen = os.fspath(folder / _FILTER_SOCKET)
        agent_filter = AgentFilter(agent)
        prepared.cleanups.append(agent_filter.close)
        prepared.notes["ssh_keys"] = await fingerprints_in(agent)
        inside = f"{COMMAND_DIR}/{_SOCKET_NAME}"
        if place.target is Target.CAPSULE:
            prepared.sockets.append(PrivateSocket("", inside, agent_filter.take))
        else:
            await agent_filter.open(seen)
            if place.is_confined:
                prepared.sockets.append(PrivateSocket(seen, inside))
        is_inside = place.is_confined or place.target is Target.CAPSULE
        prepared.env[VARIABLE] = os.fsencode(inside if is_inside else seen)


async def _load(
    credentials: Sequence[Credential], place: Place, agent: str, channel: socket.socket
) -> None:
    """Have the keeper start the agent and load the keys.

    Raises: Refusal(SOURCE_FAILED).
    """
    job = marshal.dumps(dict(_job(credentials, place, agent)))
    loop = asyncio.get_running_loop()
    answer = b""
    with suppress(OSError, TimeoutError):  # told below, as no answer
        async with asyncio.timeout(_ANSWER_LIMIT_S):
            await loop.sock_sendall(channel, len(job).to_bytes(4, "big") + job)
            answer = await loop.sock_recv(channel, _ANSWER_MAX_BYTES)
    why, number = marshal.loads(answer) if answer else (keeper.NO_AGENT, -1)  # noqa: S302 - our own keeper wrote it
    if why != keeper.ADDED:
        raise _refusal(credentials[max(0, number)].binding, why)


def _job(credentials: Sequence[Credential], place: Place, agent: str) -> keeper.Job:
    programs = _programs(credentials[0].binding)
    passphrases = [one.passphrase for one in credentials]
    return {
        "agent": os.fsencode(programs.agent),
        "add": os.fsencode(programs.add),
        "socket": os.fsencode(agent),
        "keys": [_checked_key(one) for one in credentials],
        "passphrases": [b"" if one is None else _checked_passphrase(one) for one in passphrases],
        "options": [_options(one.binding, place) for one in credentials],
        "limit_s": LOAD_LIMIT_S,
    }


def _options(binding: Binding, place: Place) -> list[bytes]:
    """What is said to ssh-add of this key."""
    lifetime_s = math.ceil(place.lifetime_s) + _LIFETIME_SPARE_S
    words = ["-q", "-t", str(lifetime_s)]
    if binding.destinations:
        files = (pattern.format(home=place.home) for pattern in _KNOWN_HOSTS)
        for file in files:
            words += ["-H", file] if os.path.exists(file) else []
        for destination in binding.destinations:
            words += ["-h", destination]
    return [os.fsencode(word) for word in words]


def _checked_key(credential: Credential) -> bytes:
    key = as_file(credential.reveal())
    if len(key) > KEY_MAX_BYTES:
        raise refused(
            credential.binding,
            f"a private key has at most {KEY_MAX_BYTES // 1024} KiB",
            hint="look at what its source points to",
        )
    return key


def _checked_passphrase(credential: Credential) -> bytes:
    value = credential.reveal()
    if any(byte < 0x20 for byte in value):
        raise refused(
            credential.binding,
            "a passphrase with a newline or a control character cannot be typed",
            hint="look at what its source points to",
        )
    return value


def _refusal(binding: Binding, why: int) -> Exception:
    other = binding.passphrase
    words, hint = {
        keeper.NEEDS_PASSPHRASE: (
            "the key is protected by a passphrase",
            'the operator may name the entry that holds it: passphrase = "NAME"',
        ),
        keeper.WRONG_PASSPHRASE: (f"the passphrase of {other} does not open it", "correct it"),
        keeper.NO_HOST_KEY: (
            "the host key of one of its destinations is in no known_hosts file of the operator's",
            "the operator may log in there once, or correct destinations",
        ),
        keeper.REFUSED: (
            "ssh-add takes no private key from it",
            "store the private key's file, from its first line to its last; destinations take "
            "OpenSSH 8.9",
        ),
        keeper.LATE: (f"ssh-add had not loaded it after {LOAD_LIMIT_S:g} s", "try it by hand"),
    }.get(why, ("no ssh-agent could be started", "the operator may try it by hand: ssh-agent -D"))
    return refused(binding, words, hint=hint)


def _programs(binding: Binding) -> _Programs:
    """Where OpenSSH's programs are.

    Raises: Refusal(SOURCE_FAILED).
    """
    agent = shutil.which("ssh-agent", path=_SEARCH_PATH)
    add = shutil.which("ssh-add", path=_SEARCH_PATH)
    if agent is None or add is None:
        raise refused(
            binding,
            "there is no ssh-agent on this machine",
            hint="the operator may install OpenSSH's client (openssh-client)",
        )
    return _Programs(agent, add)


def _spawn_keeper(stdin: socket.socket) -> subprocess.Popen[bytes]:
    """Start it; returns at its exec, in about a millisecond."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", os.fspath(Path(keeper.__file__))],
        stdin=stdin.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait until agent and keeper are gone."""
    try:
        process.wait(_LEAVE_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
