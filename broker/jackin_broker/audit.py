"""The record: one line of JSON a transition, names and digests, never a value.

Each line carries the SHA-256 of the line before it, so damage shows (rewriting by the operator's
own uid does not: SECURITY.md says so). `record(…, flush=True)` returns only when the line is on
the disk; what cannot be written is `audit_failed`, and then nothing runs. A file that is long or
old enough is closed and a new one begun; closed ones are deleted when all in them is older than
`keep_days`, and a line vouches for what is gone. `audit_files.py` reads them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Final

from .audit_files import CHAIN_START, Damage, Field, Line, read, verify
from .audit_writer import KEEP_DAYS, RecordWriter
from .errors import DenialCode, Refusal
from .rate import TokenBucket

__all__ = ("CHAIN_START", "Audit", "Damage", "Line", "argv_fields", "read", "verify")

# Long arguments are cut in the record; the digest beside them covers all of them.
ARGUMENT_MAX_CHARS: Final = 400
ARGUMENTS_MAX_COUNT: Final = 64
# As JSON, where one character may take twelve bytes: an agent chooses the arguments of every
# line, and neither a line nor the disk may be its to fill.
ARGV_MAX_BYTES: Final = 8 * 1024
# A refusal that repeats within this time is counted, not written again.
REPEAT_WINDOW_S: Final = 60.0
# Refusals that nobody was asked about: so many lines at once and a second, for each capsule;
# an agent that varies its arguments cannot fill the disk (80 MB a day at the very most). What
# is left out is counted.
REFUSAL_BURST: Final = 60
REFUSALS_PER_S: Final = 0.1
# Distinct refusals that are remembered for counting; beyond it the oldest is forgotten.
REPEATS_MAX: Final = 256

_SEPARATOR: Final = ", "


def argv_fields(argv: tuple[bytes, ...]) -> dict[str, Field]:
    """An argument vector for the record: clipped texts and the digest of all of it."""
    digest = hashlib.sha256(b"\0".join(argv)).hexdigest()
    shown: list[str] = []
    left = ARGV_MAX_BYTES
    for arg in argv[:ARGUMENTS_MAX_COUNT]:
        text = arg[: 4 * ARGUMENT_MAX_CHARS].decode("utf-8", "backslashreplace")
        text = text[:ARGUMENT_MAX_CHARS]
        left -= len(json.dumps(text)) + len(_SEPARATOR)
        if left < 0:
            break
        shown.append(text)
    return {"argv": shown, "argc": len(argv), "argv_sha256": digest}


class Audit:
    """The open record, as the broker writes it; `writer` has the files."""

    def __init__(self, path: Path, *, keep_days: int = KEEP_DAYS) -> None:
        """Raises: ConfigError."""
        self.path: Final = path
        self.writer: Final = RecordWriter(path, keep_days=keep_days)
        self._lock = asyncio.Lock()
        self._repeats: dict[tuple[str, ...], tuple[float, int]] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._left_out: dict[str, int] = {}

    async def record(self, event: str, *, flush: bool = False, **fields: Field) -> None:
        """Append one line; with `flush`, return only once it is on the disk.

        Raises: Refusal(AUDIT_FAILED).
        """
        await self._record(event, flush, fields)

    async def _record(self, event: str, flush: bool, fields: dict[str, Field]) -> None:
        async with self._lock:
            try:
                self.writer.append(event, fields)
                if flush:
                    await asyncio.to_thread(self.writer.sync)
            except OSError as error:
                raise Refusal(
                    DenialCode.AUDIT_FAILED,
                    f"the audit record cannot be written: {error.strerror}",
                    hint="the operator should look at: jackin-broker doctor",
                ) from error

    async def record_refusal(
        self, now: float, capsule: str, key: tuple[str, ...], **fields: Field
    ) -> None:
        """Append a refusal that no operator was asked about, or count it.

        The same `key` within REPEAT_WINDOW_S is counted, not repeated; a capsule beyond
        REFUSAL_BURST as well. The next line that is written carries the counts.
        """
        key = (capsule, *key)
        written_at, count = self._repeats.get(key, (now - 2 * REPEAT_WINDOW_S, 0))
        if now - written_at < REPEAT_WINDOW_S:
            self._repeats[key] = (written_at, count + 1)
            return
        bucket = self._buckets.setdefault(capsule, TokenBucket(REFUSAL_BURST, REFUSALS_PER_S))
        if not bucket.take(now):
            self._left_out[capsule] = self._left_out.get(capsule, 0) + 1
            return
        self._repeats.pop(key, None)
        while len(self._repeats) >= REPEATS_MAX:
            del self._repeats[next(iter(self._repeats))]
        self._repeats[key] = (now, 0)
        if count:
            fields["repeated"] = count
        if left_out := self._left_out.pop(capsule, 0):
            fields["left_out"] = left_out
        await self._record("refused", False, {"capsule": capsule, **fields})

    def close(self) -> None:
        """Release the file and its lock."""
        self.writer.close()
