"""Revoking all while an answer is being written to the record ends that answer too (DESIGN §6)."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from jackin_broker import config
from jackin_broker.audit import Audit
from jackin_broker.audit_files import Field
from jackin_broker.desk import Decision
from jackin_broker.grants.basis import Basis
from jackin_broker.grants.book import GrantBook
from jackin_broker.grants.granting import Granting, Keeping, Kept
from jackin_broker.operator_protocol import GrantKind, GrantTerm
from jackin_broker.policy import Shape

if TYPE_CHECKING:
    from jackin_broker.services import Services

SHAPE = Shape(
    capsule="web",
    argv=(b"gh", b"pr", b"list"),
    cwd=b"/",
    is_cwd_writable=False,
    available=frozenset(),
    files=(),
    binary_sha256="0" * 64,
)
RULE = """\
[[rules]]
id = "r-1"
action = "allow"
expires = 2027-02-28
capsule = "web"
argv = ["gh", "pr", "list"]
"""


class Interrupted(Audit):
    """A record whose disk is so slow that somebody revokes everything while it writes."""

    granting: Granting | None = None

    async def record(self, event: str, *, flush: bool = False, **facts: Field) -> None:
        await super().record(event, flush=flush, **facts)
        if event == "granted" and self.granting is not None:
            await self.granting.revoke_all(kill=False)


@pytest.mark.parametrize("is_interrupted", [False, True])
@pytest.mark.parametrize("kind", [GrantKind.MINUTES, GrantKind.ALWAYS])
def test_what_is_granted_while_all_is_revoked_is_revoked_too(
    tmp_path: Path, kind: GrantKind, is_interrupted: bool
) -> None:
    async def granted() -> tuple[Kept, int, int]:
        file = tmp_path / "config.toml"
        file.touch(mode=0o600)
        file.write_text('schema = 1\n[capsules.web]\nkind = "none"\nhost_binaries = ["gh"]\n')
        record = Interrupted(tmp_path / "audit.jsonl")
        book = GrantBook(tmp_path / "grants.json", is_kept=False)
        fake = SimpleNamespace(config=config.load(file), audit=record, grants=book)
        granting = Granting(cast("Services", fake), file, tmp_path / "lock")
        record.granting = granting if is_interrupted else None
        basis = Basis(SHAPE, "s1", "r-1", date(2026, 12, 1), {})
        decision = Decision("id", "digest", approve=True, grant=GrantTerm(kind, 15))
        kept = await granting.keep(Keeping(decision, basis, RULE))
        return kept, len(book.live()), len(fake.config.rules)

    kept, grants, rules = asyncio.run(granted())
    assert bool(kept.grant_id) is not is_interrupted
    assert ("revoked" in kept.reason) is is_interrupted
    assert grants + rules == (0 if is_interrupted else 1)
