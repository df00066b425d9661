"""What a command may say to its ssh-agent: which keys are there, and sign this. Nothing else.

It stands between the command and the real agent. A connection that was bound to a forwarding
session (OpenSSH since 8.9 says so before it passes one on) is refused everything, so that nobody
on another host uses the keys; adding, removing and locking keys is refused too. It refuses to
know keys and values. Invariants: a message is bounded; what cannot be parsed is refused.

Source: draft-ietf-sshm-ssh-agent; OpenSSH's PROTOCOL.agent for session-bind@openssh.com.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
from contextlib import suppress
from typing import Final

# OpenSSH's own limit for one message.
MESSAGE_MAX_BYTES: Final = 256 * 1024
# A ssh, a git and what they start; each connection costs one to the agent.
_CONNECTIONS_MAX: Final = 32
_FAILURE: Final = b"\x05"
_REQUEST_IDENTITIES: Final = 11
_IDENTITIES_ANSWER: Final = 12
_SIGN_REQUEST: Final = 13
_EXTENSION: Final = 27
_SESSION_BIND: Final = b"session-bind@openssh.com"
_SIZE_BYTES: Final = 4


class AgentFilter:
    """Listens for one command, and passes on what is allowed."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, path: str) -> None:
        """Listen at `path`, in a directory that only the operator can enter.

        Raises: OSError.
        """
        self._server = await asyncio.start_unix_server(self._accept, path)
        os.chmod(path, 0o600)

    def take(self, fd: int) -> None:
        """Answer at a socket that listens elsewhere, and is ours from now on."""
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        opening = asyncio.get_running_loop().create_task(self._serve_at(sock))
        self._tasks.add(opening)
        opening.add_done_callback(self._tasks.discard)

    async def _serve_at(self, sock: socket.socket) -> None:
        try:
            self._server = await asyncio.start_unix_server(self._accept, sock=sock)
        except BaseException:
            sock.close()
            raise

    async def close(self) -> None:
        """Listen no more, and drop every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= _CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        is_forwarded = False
        try:
            answers, upstream = await asyncio.open_unix_connection(self._agent)
            while True:
                request = await _receive(reader)
                is_forwarded = is_forwarded or _forwards(request)
                if is_forwarded or not _is_allowed(request):
                    answer = _FAILURE
                else:
                    _send(upstream, request)
                    answer = await _receive(answers)
                _send(writer, answer)
                await writer.drain()
        except (OSError, EOFError):
            pass  # either end closed: that is how a conversation ends
        finally:
            writer.transport.abort()
            if upstream is not None:
                upstream.transport.abort()


async def fingerprints_in(agent: str) -> list[str]:
    """The fingerprints of the keys in an agent, as `ssh-add -l` writes them, in its order.

    Raises: OSError, EOFError, ValueError for an answer that is none.
    """
    reader, writer = await asyncio.open_unix_connection(agent)
    try:
        _send(writer, bytes([_REQUEST_IDENTITIES]))
        answer = await _receive(reader)
    finally:
        writer.transport.abort()
    if answer[0] != _IDENTITIES_ANSWER:
        raise ValueError("the ssh-agent lists no keys")
    count, rest = int.from_bytes(answer[1:5], "big"), answer[5:]
    found: list[str] = []
    for _ in range(count):
        key, rest = _take_string(rest)
        _, rest = _take_string(rest)
        digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
        found.append(f"SHA256:{digest}")
    return found


def _is_allowed(request: bytes) -> bool:
    if request[0] in (_REQUEST_IDENTITIES, _SIGN_REQUEST):
        return True
    return _is_binding(request)


def _is_binding(request: bytes) -> bool:
    if request[0] != _EXTENSION:
        return False
    with suppress(ValueError):
        return _take_string(request[1:])[0] == _SESSION_BIND
    return False


def _forwards(request: bytes) -> bool:
    """Whether this binds the connection to a session that passes it on; unreadable ones do."""
    if not _is_binding(request):
        return False
    try:
        rest = _take_string(request[1:])[1]
        for _ in ("host key", "session", "signature"):
            _, rest = _take_string(rest)
    except ValueError:
        return True
    return rest != b"\0"


def _take_string(data: bytes) -> tuple[bytes, bytes]:
    """The string that `data` begins with, and what follows it.

    Raises: ValueError when it is cut off.
    """
    end = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "big")
    if len(data) < end:
        raise ValueError("cut off")
    return data[_SIZE_BYTES:end], data[end:]


def _send(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(len(body).to_bytes(_SIZE_BYTES, "big") + body)


async def _receive(reader: asyncio.StreamReader) -> bytes:
    """One message, at least a byte long.

    Raises: EOFError at the end or for what is no message.
    """
    size = int.from_bytes(await reader.readexactly(_SIZE_BYTES), "big")
    if not 0 < size <= MESSAGE_MAX_BYTES:
        raise EOFError
    return await reader.readexactly(size)
