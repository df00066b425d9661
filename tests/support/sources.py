"""Resolving in tests: a resolver over an environment of the test's own, and what it raises.

It refuses to know which source is under test.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from jackin_broker.bindings import Binding, Credential
from jackin_broker.errors import SourceError
from jackin_broker.sources.resolver import Resolver
from jackin_broker.vault import Vault

# What a loaded machine needs for any source that works; only a hang takes longer.
ENOUGH_S = 20.0
# For what must never answer: long enough to be reached, short enough to be waited for.
SOON_S = 1.0


def make_resolver(
    environ: Mapping[str, str],
    *,
    keyring: str = "vault",
    vault: Vault | None = None,
    timeout_s: float = ENOUGH_S,
    consumed: frozenset[str] = frozenset(),
) -> Resolver:
    """A resolver; without a vault of the test's own there is none."""
    return Resolver(
        environ=environ,
        keyring_kind=keyring,
        vault=vault or Vault(Path("/nonexistent/vault.age")),
        timeout_s=timeout_s,
        consumed=consumed,
    )


async def resolve_and_close(resolver: Resolver, bindings: Sequence[Binding]) -> list[Credential]:
    """What the bindings resolve to; the resolver is closed after."""
    try:
        return await resolver.resolve(bindings)
    finally:
        await resolver.close()


def values(resolver: Resolver, *bindings: Binding) -> list[bytes]:
    """The values of the bindings; the resolver is closed after."""
    found = asyncio.run(resolve_and_close(resolver, bindings))
    return [credential.reveal() for credential in found]


def refusal(resolver: Resolver, *bindings: Binding) -> SourceError:
    """What resolving these raises; the resolver is closed after."""
    with pytest.raises(SourceError) as refused:
        asyncio.run(resolve_and_close(resolver, bindings))
    return refused.value


def told(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    """All that a log could come to hold of this failure: every cause and context, too."""
    logging.getLogger("test").error("it failed", exc_info=error)
    texts = [caplog.text, *traceback.format_exception(error)]
    seen: BaseException | None = error
    while seen is not None:
        texts += [repr(seen), str(seen), repr(vars(seen))]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)
