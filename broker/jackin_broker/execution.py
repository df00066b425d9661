"""Steps 6 to 11 of one request: check again, resolve, deliver, run, report (DESIGN §2).

It refuses to know how the request was allowed. Invariants: nothing is resolved before what was
approved was checked again; whatever fails before the command runs leaves nothing prepared; values
are forgotten when the command has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from . import protocol
from .bindings import Binding, Credential, companions_of, pair
from .config import Config
from .connection import Channel
from .deliveries import Prepared, check_deliverable, prepare
from .desk import Entry
from .errors import Refusal, SourceError
from .frames import Stream
from .intake import Intake, either
from .masking import check_redactable, needles_of
from .operator_protocol import RequestState
from .output import Output
from .plan import Plan, recheck
from .protocol import EndedBy, ExecResult, Target
from .redact.needles import NeedleSet
from .runner.capsule import start_inside
from .runner.host import start
from .runner.running import Running
from .runner.spec import Ended
from .services import Services
from .trail import Trail

# A leader that is let go takes a second for its tree; longer only where a capsule's init is stuck.
GONE_LIMIT_S: Final = 10.0


class Execution:
    """What becomes of an approved request on one connection."""

    def __init__(
        self,
        services: Services,
        config: Config,
        connection: Channel,
        intake: Intake,
        trail: Trail,
    ) -> None:
        self._services: Final = services
        self._config: Final = config  # as it was when the request was examined
        self._connection: Final = connection
        self._intake: Final = intake
        self._trail: Final = trail
        self.has_begun = False

    async def fulfil(self, plan: Plan, entry: Entry, names: tuple[str, ...]) -> None:
        """Steps 6 to 11: check again, resolve, deliver, run, record."""
        approvals = self._services.approvals
        await self._recheck(plan)
        bindings = [plan.bindings[name] for name in names]
        services = self._services
        place = plan.place(self._config, services.environ, services.scratch)
        check_deliverable(bindings, place)
        approvals.advance(entry, RequestState.RESOLVING)
        wanted = [*bindings, *companions_of(bindings, plan.bindings)]
        resolving = approvals.unless_stopped(entry, self._resolve(wanted))
        credentials = await self._intake.while_there(resolving)
        try:
            await self._recheck(plan)
            lent = credentials[: len(names)]
            pair(lent, credentials[len(names) :])
            prepared = await self._intake.while_there(prepare(lent, place))
            try:
                await self._run(plan, entry, names, credentials, prepared)
            finally:
                await prepared.clean()
        finally:
            for credential in credentials:
                credential.forget()
            self._services.live.close(entry.id)

    async def _recheck(self, plan: Plan) -> None:
        async with plan.capsule.examining:
            await asyncio.to_thread(recheck, plan)

    async def _resolve(self, bindings: list[Binding]) -> list[Credential]:
        try:
            credentials = await self._services.resolver.resolve(bindings)
        except SourceError as error:
            raise Refusal(error.code, str(error), hint=error.hint) from error
        check_redactable(credentials, self._services.unredactable)
        return credentials

    async def _run(
        self,
        plan: Plan,
        entry: Entry,
        names: tuple[str, ...],
        credentials: list[Credential],
        prepared: Prepared,
    ) -> None:
        message, approvals = plan.message, self._services.approvals
        needles = await asyncio.to_thread(needles_of, credentials)  # a long value takes long
        self._trail.mask(needles)
        approvals.mask(entry, needles)
        output = self._output(plan, entry, names, needles)
        if self._intake.gone.done():
            raise self._intake.gone.result()
        approvals.check_wanted(entry)
        running = await self._start(plan, entry, prepared, output)
        self.has_begun = True
        try:
            approvals.advance(entry, RequestState.RUNNING)
            self._services.running[entry.id] = running
            if entry.is_stopped:
                running.end(EndedBy.OPERATOR)
            await self._trail.started(running.pid, plan.program, **prepared.notes)
            output.announce()
            self._intake.run(
                running,
                credit=message.stdin_credit,
                terminal=running.terminal,
                given=prepared.stdin,
            )
            ended = await self._watch(running)
        except BaseException:  # whatever failed, nothing runs unwatched or off the record
            await _take_back(running, output)
            raise
        finally:
            self._services.running.pop(entry.id, None)
        await prepared.clean()  # whoever hears of the end finds nothing of it any more
        await self._report(entry, output, ended, running.typed)

    def _output(
        self, plan: Plan, entry: Entry, names: tuple[str, ...], needles: NeedleSet
    ) -> Output:
        return Output(
            self._connection,
            needles,
            protocol.ExecStarted(entry.id, plan.target, names),
            streams=plan.message.stream,
            max_bytes=plan.allowance(self._config).output_bytes,
            intake=self._intake,
            suspicion=self._services.suspicion,
            feed=self._services.live.open(entry.id, needles),
        )

    async def _start(self, plan: Plan, entry: Entry, prepared: Prepared, output: Output) -> Running:
        spec = plan.spec(prepared, self._config, self._services.environ)
        if plan.target is Target.CAPSULE:
            return await start_inside(spec, output, plan.capsule, entry.id)
        return await start(spec, output)

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

    async def _report(
        self, entry: Entry, output: Output, ended: Ended, typed: Sequence[str]
    ) -> None:
        output.settle()
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
            truncated=output.is_truncated,
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
            **({"typed": list(typed)} if typed else {}),
            **({"truncated": True} if output.is_truncated else {}),
        )
        self._connection.send(result)


async def _take_back(running: Running, output: Output) -> None:
    """End a command that must not have been started, at once; return when its tree is gone."""
    output.drop()
    running.abort()
    with suppress(TimeoutError):
        async with asyncio.timeout(GONE_LIMIT_S):
            await running.gone()
