"""One request's lines in the record: asked, decided, started, ended, or refused.

It refuses to know what the record is made of. Every line carries who asked and what; none
carries a value.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from .audit import Audit, argv_fields
from .errors import DenialCode, Refusal
from .peer import Caller
from .redact.needles import NeedleSet
from .redact.stream import redact_parts

_log = logging.getLogger(__name__)


class Trail:
    """The record as one session writes it."""

    def __init__(self, audit: Audit, capsule: str, caller: Caller) -> None:
        self._audit = audit
        self._capsule = capsule
        self._caller = caller
        self._request_id = ""
        self._argv: tuple[bytes, ...] = ()
        self._was_asked = False
        self._binary = ""
        self._named: tuple[str, ...] = ()
        self._needles: list[NeedleSet] = []

    def begin(self, request_id: str, argv: tuple[bytes, ...]) -> None:
        """From now on lines are about this request."""
        self._request_id, self._argv = request_id, argv

    def mask(self, needles: NeedleSet) -> None:
        """An agent may name a value that it got elsewhere: later lines do not repeat it.

        They say whose it was: it is known outside, and lines written before may hold it.
        """
        self._needles.append(needles)
        before, self._argv = self._argv, redact_parts(needles, self._argv)
        found = dict.fromkeys(
            name
            for name, marker in zip(needles.names, needles.markers, strict=True)
            if marker and _count(marker, self._argv) > _count(marker, before)
        )
        self._named = tuple(dict.fromkeys((*self._named, *found)))

    async def asked(self, cwd: str, want: tuple[str, ...]) -> None:
        """The operator is about to be asked.

        Raises: Refusal(AUDIT_FAILED).
        """
        self._was_asked = True
        cwd = self._masked(cwd)
        await self._audit.record("asked", **self._facts(), cwd=cwd, want=list(want))

    async def decided(
        self, by: str, bindings: tuple[str, ...], shown: str, why: str, grant: str = ""
    ) -> None:
        """It may run; on the disk before any source is asked, when something is to be delivered.

        Raises: Refusal(AUDIT_FAILED).
        """
        self._was_asked = True
        await self._audit.record(
            "decided",
            flush=bool(bindings),
            **self._facts(),
            by=by,
            outcome="approved",
            bindings=list(bindings),
            shown=shown,
            reason=why,
            **({"grant": grant} if grant else {}),
        )

    async def started(self, pid: int, binary: str, **notes: Any) -> None:
        """It runs; `notes` is what its deliveries have to say, such as keys' fingerprints.

        Raises: Refusal(AUDIT_FAILED).
        """
        self._binary = binary
        await self._audit.record("started", **self._facts(), pid=pid, binary=binary, **notes)

    async def ended(self, **how: Any) -> None:
        """It ended; a record that fails now is logged, there is nothing left to stop."""
        try:
            await self._audit.record("ended", **self._facts(), binary=self._binary, **how)
        except Refusal:
            _log.exception("the end of %s is not on record", self._request_id)

    async def refused(self, code: DenialCode, reason: str) -> None:
        """Nothing was run; a record that fails has nothing left to stop.

        What an operator was asked about is written each time, the rest is counted.
        """
        reason = self._masked(reason)  # some repeat the directory or the program that was asked for
        try:
            if self._was_asked:
                await self._audit.record("refused", **self._facts(), code=code.value, reason=reason)
            else:
                fields = self._facts()
                del fields["capsule"]
                await self._audit.record_refusal(
                    asyncio.get_running_loop().time(),
                    self._capsule,
                    (code.value, reason, str(fields.get("argv_sha256"))),
                    **fields,
                    code=code.value,
                    reason=reason,
                )
        except Refusal:
            _log.error("a refusal (%s) is not on record", code.value)

    def _masked(self, text: str) -> str:
        for needles in self._needles:
            (raw,) = redact_parts(needles, (text.encode("utf-8", "surrogatepass"),))
            text = raw.decode("utf-8", "surrogatepass")
        return text

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"capsule": self._capsule, "pid_of_caller": self._caller.pid}
        if self._request_id:
            facts |= {"id": self._request_id, **argv_fields(self._argv)}
        if self._named:
            facts["argv_holds"] = list(self._named)
        return facts


def _count(marker: bytes, argv: tuple[bytes, ...]) -> int:
    return sum(part.count(marker) for part in argv)
