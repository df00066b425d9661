"""Steps 6 to 11 of one request: check again, resolve, deliver, run, report (DESIGN §2).

It refuses to know how the request was allowed. Invariants: nothing is resolved before what was
approved was checked again; whatever fails before the command runs leaves nothing prepared; values
are forgotten when the command has ended.
"""

from __future__ import annotations

import asyncio
from typing import Final

from . import protocol
from .bindings import Binding, Credential
from .connection import CapsuleConnection
from .deliveries import Prepared, check_supported, prepare
from .desk import Entry
from .errors import Refusal, SourceError
from .frames import Stream
from .intake import Intake, either
from .masking import check_redactable, needles_of
from .operator_protocol import RequestState
from .output import Output
from .plan import Plan, recheck
from .protocol import EndedBy, ExecResult
from .runner.host import start
from .runner.running import Running
from .runner.spec import Ended
from .services import Services
from .trail import Trail


class Execution:
    """What becomes of an approved request on one connection."""

    def __init__(
        self, services: Services, connection: CapsuleConnection, intake: Intake, trail: Trail
    ) -> None:
        self._services: Final = services
        self._config: Final = services.config  # as it was when the request came
        self._connection: Final = connection
        self._intake: Final = intake
        self._trail: Final = trail

    async def fulfil(self, plan: Plan, entry: Entry, names: tuple[str, ...]) -> None:
        """Steps 6 to 11: check again, resolve, deliver, run, record."""
        approvals = self._services.approvals
        await self._recheck(plan)
        bindings = [plan.bindings[name] for name in names]
        check_supported(bindings)
        approvals.advance(entry, RequestState.RESOLVING)
        credentials = await self._intake.while_there(self._resolve(bindings))
        try:
            await self._recheck(plan)
            prepared = await prepare(credentials)
            try:
                await self._run(plan, entry, credentials, prepared)
            finally:
                await prepared.clean()
        finally:
            for credential in credentials:
                credential.forget()

    async def _recheck(self, plan: Plan) -> None:
        async with plan.capsule.examining:
            await asyncio.to_thread(recheck, plan)

    async def _resolve(self, bindings: list[Binding]) -> list[Credential]:
        try:
            credentials = await self._services.resolver.resolve(bindings)
        except SourceError as error:
            raise Refusal(error.code, str(error), hint=error.hint) from error
        check_redactable(credentials)
        return credentials

    async def _run(
        self, plan: Plan, entry: Entry, credentials: list[Credential], prepared: Prepared
    ) -> None:
        message, approvals = plan.message, self._services.approvals
        names = tuple(credential.binding.name for credential in credentials)
        needles = await asyncio.to_thread(needles_of, credentials)  # a long value takes long
        self._trail.mask(needles)
        approvals.mask(entry, needles)
        output = Output(
            self._connection,
            needles,
            protocol.ExecStarted(entry.id, plan.target, names),
            streams=message.stream,
            intake=self._intake,
            suspicion=self._services.suspicion,
        )
        if self._intake.gone.done():
            raise self._intake.gone.result()
        running = await start(plan.spec(prepared, self._config, self._services.environ), output)
        approvals.advance(entry, RequestState.RUNNING)
        self._services.running[entry.id] = running
        try:
            await self._trail.started(running.pid, plan.binary.path)
            output.announce()
            self._intake.run(running, credit=message.stdin_credit)
            ended = await self._watch(running)
        except BaseException:
            running.end(EndedBy.BROKER_STOPPING)  # whatever failed, nothing runs unwatched
            raise
        finally:
            self._services.running.pop(entry.id, None)
        await self._report(entry, output, ended)

    async def _watch(self, running: Running) -> Ended:
        """How the command ended, whatever ended it."""
        end = asyncio.ensure_future(running.wait())
        gone = self._intake.gone
        try:
            await either(end, gone)
            if not end.done():
                running.end(gone.result().ended_by)
            return await asyncio.shield(end)
        except asyncio.CancelledError:
            running.end(EndedBy.BROKER_STOPPING)
            return await end

    async def _report(self, entry: Entry, output: Output, ended: Ended) -> None:
        result = ExecResult(
            exit_code=ended.exit_code,
            redacted_count=output.redacted_count,
            duration_s=round(ended.duration_s, 3),
            ended_by=ended.ended_by,
            signal=ended.signal,
            stdout=output.text(Stream.STDOUT),
            stderr=output.text(Stream.STDERR),
            stdout_bytes=output.sizes[Stream.STDOUT],
            stderr_bytes=output.sizes[Stream.STDERR],
            request_id=entry.id,
        )
        self._services.approvals.finish(
            entry, RequestState.DONE, ended.ended_by.value, ended.exit_code
        )
        await self._trail.ended(
            exit_code=ended.exit_code,
            signal=ended.signal,
            ended_by=ended.ended_by.value,
            duration_s=result.duration_s,
            redacted=output.redacted_count,
        )
        self._connection.send(result)
