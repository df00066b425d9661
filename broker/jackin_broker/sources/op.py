"""Source `op`: `op read -- REF`, the 1Password command line.

One call is in flight per account: it asks its own question on the desktop, and several at once
would stack their windows. It refuses references of another scheme and segments that could be
options. What it prints on stderr is recognised or not, and never passed on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from ..bindings import OpSource
from ..errors import SourceError, SourceFault
from .base import Lookup, SourceReader, one_newline_less
from .command import output_of

_SCHEME: Final = "op://"
# op://vault/item/field or op://vault/item/section/field
_SEGMENTS: Final = range(3, 5)


# What its 2.x versions write on stderr, by a part that does not change.
_NOT_SIGNED_IN: Final = (b"not currently signed in", b"is not signed in", b"No accounts configured")
_NOT_CONFIRMED: Final = (b"prompt dismissed", b"authorization timeout", b"desktop app timed out")
_NOT_THERE: Final = (b"isn't an item", b"isn't a vault", b"isn't a field", b"could not find")


class OpReader(SourceReader[OpSource]):
    """Runs `op` with the environment that it was given."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._in_flight: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __repr__(self) -> str:
        return "<op source>"

    async def read(self, source: OpSource, lookup: Lookup) -> bytes:
        """The value behind the reference.

        Raises: SourceError.
        """
        _check(source, lookup)
        account = ("--account", source.account) if source.account else ()
        argv = ("op", "read", *account, "--", source.ref)
        async with self._in_flight[source.account]:
            return one_newline_less(await output_of(argv, self._env, lookup, _explain))


def _check(source: OpSource, lookup: Lookup) -> None:
    segments = source.ref.removeprefix(_SCHEME).split("/")
    is_reference = source.ref.startswith(_SCHEME) and len(segments) in _SEGMENTS
    if not is_reference or any(not part or part.startswith("-") for part in segments):
        raise lookup.fault(
            SourceFault.FAILED,
            "its 1Password reference is not of the form op://vault/item/field",
            hint="copy the reference from the 1Password app",
        )
    if source.account.startswith("-"):
        raise lookup.fault(SourceFault.FAILED, "its 1Password account begins with a dash")


def _explain(said: bytes, lookup: Lookup) -> SourceError | None:
    """Why it failed, in words of our own, where it said one of the usual things."""
    if any(part in said for part in _NOT_SIGNED_IN):
        return lookup.fault(
            SourceFault.LOCKED,
            "1Password is not signed in",
            hint="op signin; or switch the app's integration with the command line on",
        )
    if any(part in said for part in _NOT_CONFIRMED):
        return lookup.fault(
            SourceFault.LOCKED,
            "nobody confirmed it in 1Password",
            hint="unlock 1Password on your desktop, and let the agent ask again",
        )
    if any(part in said for part in _NOT_THERE):
        return lookup.fault(
            SourceFault.MISSING,
            "1Password has nothing at its reference",
            hint="copy the reference from the 1Password app",
        )
    return None
