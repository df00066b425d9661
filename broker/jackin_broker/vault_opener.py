"""Unlocking the vault without stopping the broker: the work is done by another process.

A passphrase costs one or two seconds in which the interpreter's lock is held, so in the broker
itself no output would flow meanwhile. This module is both ends: `unlock` here, and the program
`python -m jackin_broker.vault_opener`, which gets passphrase and key and gives the identity.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

import msgspec

from .errors import SourceFault
from .sources.helper_process import HelperGone, HelperProcess
from .sources.helper_wire import HelperChannel
from .vault import Vault, VaultError, open_key

# Two seconds are usual; a machine that swaps or is shared may need many times that.
OPEN_LIMIT_S: Final = 60.0
_MODULE: Final = "jackin_broker.vault_opener"


class _Open(msgspec.Struct):
    key: bytes
    passphrase: str

    def __repr__(self) -> str:
        return "_Open(<hidden>)"


class _Opened(msgspec.Struct):
    """The identity, or in words why not."""

    identity: str = ""
    reason: str = ""
    hint: str = ""

    def __repr__(self) -> str:
        return "_Opened(<hidden>)"


async def unlock(vault: Vault, passphrase: str) -> None:
    """Unlock the vault for this process while the event loop goes on.

    Raises: VaultError.
    """
    request = msgspec.msgpack.encode(_Open(vault.read_key(), passphrase))
    try:
        async with asyncio.timeout(OPEN_LIMIT_S):
            opened = await _ask(request)
    except TimeoutError:
        raise VaultError(
            SourceFault.TIMED_OUT, f"the vault did not open within {OPEN_LIMIT_S:g} s"
        ) from None
    except (HelperGone, OSError):
        raise VaultError(
            SourceFault.FAILED, "the process that opens the vault ended", hint="try it again"
        ) from None
    if not opened.identity:
        raise VaultError(SourceFault.FAILED, opened.reason, hint=opened.hint)
    vault.adopt(opened.identity)


async def _ask(request: bytes) -> _Opened:
    # What an interpreter needs to find installed packages, and nothing else.
    env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    helper = await HelperProcess.start((_MODULE,), env)
    try:
        return msgspec.msgpack.decode(await helper.ask(request), type=_Opened)
    finally:
        helper.kill()


def main() -> None:
    """Answer one request on stdin's socket."""
    channel = HelperChannel()
    body = channel.receive()
    if body is None:
        return
    request = msgspec.msgpack.decode(body, type=_Open)
    try:
        answer = _Opened(identity=open_key(request.key, request.passphrase))
    except VaultError as error:
        answer = _Opened(reason=str(error), hint=error.hint)
    channel.send(msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main()
