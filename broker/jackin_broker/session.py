"""One connection from the capsule: the steps of DESIGN §2, read from top to bottom.

The way is one way: each step hands its result to the next. A failure before the command starts is
a denial and runs nothing; anything unexpected there is `internal_error`, logged with its cause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import msgspec

from . import policy, protocol
from .capsules import Capsule
from .connection import Channel
from .desk import Entry
from .errors import DenialCode, PeerProtocolError, Refusal
from .examine import Asked, examine, inquiry_of
from .execution import Execution
from .grants.basis import basis_of, shape_of
from .grants.offers import offers_of
from .inside import look
from .intake import CallerGone, Intake
from .operator_protocol import FINAL_STATES, RequestState
from .peer import Caller
from .plan import Plan
from .policy import Verdict
from .protocol import (
    EXIT_NOT_RUN,
    Ask,
    Error,
    ExecCommand,
    ExecDenied,
    Mcp,
    Outcome,
)
from .runner.spec import SpawnFailed
from .services import Services
from .trail import Trail
from .views import view_of

_log = logging.getLogger(__name__)

# A caller that connects and says nothing holds a place among its capsule's connections.
FIRST_MESSAGE_S: Final = 10.0
# A megabyte of stdin through a socket takes milliseconds; only a stuck caller needs longer.
CLOSED_STDIN_S: Final = 10.0

T = TypeVar("T")


class McpServing(Protocol):
    """Who serves a connection that asked to be an MCP client's stdio."""

    async def serve(
        self,
        message: Mcp,
        capsule: Capsule,
        connection: Channel,
        caller: Caller,
        intake: Intake,
    ) -> None:
        """Return when the client went away; raises Refusal, CallerGone."""


class Session:
    """One connection, one request; or an MCP client's, where `mcp` serves those."""

    def __init__(
        self,
        services: Services,
        capsule: Capsule,
        connection: Channel,
        caller: Caller,
        mcp: McpServing | None = None,
    ) -> None:
        self._services = services
        self._config = services.config
        self._capsule = capsule
        self._connection = connection
        self._caller = caller
        self._mcp = mcp
        self._intake = Intake(connection, caller)
        self._trail = Trail(services.audit, capsule.name, caller)
        self._argv: tuple[bytes, ...] = ()
        self._request_id = ""
        self._why = ""
        self._execution: Execution | None = None

    async def run(self) -> None:
        """Serve the connection to its end; raises nothing but cancellation."""
        try:
            await self._serve()
        except Refusal as refusal:
            await self._deny(refusal)
        except CallerGone as gone:
            if gone.error is not None:
                await self._end_broken(gone.error)
            else:
                await self._deny(Refusal(DenialCode.CALLER_GONE, gone.words))
        except PeerProtocolError as error:
            await self._end_broken(error)
        except asyncio.CancelledError:
            await self._deny(Refusal(DenialCode.BROKER_STOPPING, "the broker is stopping"))
        except Exception:  # whatever it was, nothing may run: a denial with its cause in the log
            _log.exception("request %s failed", self._request_id or "?")
            has_begun = self._execution is not None and self._execution.has_begun
            done = "what had begun was ended" if has_begun else "nothing was run"
            await self._deny(
                Refusal(
                    DenialCode.INTERNAL_ERROR,
                    f"the broker failed, {done}",
                    hint="the operator finds the cause in the log: jackin-broker doctor",
                )
            )
        finally:
            self._intake.close()
            await self._connection.close()

    async def _serve(self) -> None:
        first = await _within(
            FIRST_MESSAGE_S, self._intake.first_message(), "no message came after connecting"
        )
        match first:
            case ExecCommand():
                await self._execute(first)
            case Ask():
                self._connection.send(await self._answer_ask(first))
            case Mcp() if self._mcp is not None:
                await self._mcp.serve(
                    first, self._capsule, self._connection, self._caller, self._intake
                )
            case _:
                raise PeerProtocolError("the first message must be ExecCommand, Ask or Mcp")

    # --- the steps ----------------------------------------------------------------------

    async def _execute(self, message: ExecCommand) -> None:
        self._request_id = self._services.approvals.desk.new_id()
        self._argv = tuple(
            protocol.bytes_from_text(part) for part in (message.command, *message.args)
        )
        self._trail.begin(self._request_id, self._argv)
        await asyncio.to_thread(self._mask_known)
        stdin = await _within(
            CLOSED_STDIN_S,
            self._intake.while_there(self._intake.closed_stdin(message.stdin)),
            "a stdin that was declared closed did not end",
        )
        plan = await self._examined(message, self._argv, stdin)
        try:
            entry, verdict = await self._enter_or_look(plan)
            try:
                bindings = await self._decide(plan, entry, verdict)
                place = (self._services, self._config, self._connection)
                self._execution = Execution(*place, self._intake, self._trail)
                await self._execution.fulfil(plan, entry, bindings)
            except BaseException as error:
                self._finish_unrun(entry, error)
                raise
        finally:
            plan.close()

    def _mask_known(self) -> None:
        """Keep values that are known without asking out of the record; long arguments take long."""
        self._trail.mask(self._services.known_needles())

    async def _examined(
        self, message: ExecCommand, argv: tuple[bytes, ...], stdin: bytes = b""
    ) -> Plan:
        """The plan. One at a time a capsule: what an agent asks may take long to look at."""
        cwd = protocol.bytes_from_text(message.cwd)
        await self._intake.while_there(look(argv[0], cwd, self._capsule))
        async with self._capsule.examining:
            if self._intake.gone.done():
                raise self._intake.gone.result()
            # Of this moment: a caller could hold a connection open over a reload.
            self._config = self._services.config
            asked = Asked(
                message,
                argv,
                stdin,
                self._capsule,
                self._config,
                self._services.hidden,
                self._services.suspicion.suspended,
                self._caller.is_bridged,
            )
            job = asyncio.ensure_future(asyncio.to_thread(examine, asked))
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:  # the thread goes on, and opens a directory
                job.add_done_callback(_let_go)
                raise

    async def _enter_or_look(self, plan: Plan) -> tuple[Entry, Verdict]:
        """The desk's entry; where nobody is attached, after a look for who could be."""
        try:
            return self._enter(plan)
        except Refusal as refusal:
            is_alone = refusal.code is DenialCode.NO_OPERATOR
            find = self._services.approvals.find_operator
            if not is_alone or not await self._intake.while_there(find()):
                raise
        return self._enter(plan)

    def _enter(self, plan: Plan) -> tuple[Entry, Verdict]:
        """The desk's entry, approved already where a rule or a grant allows it."""
        services, today = self._services, _today()
        # Of this moment too: guesses may have come while this one waited to be looked at.
        plan.suspended = services.suspicion.suspended
        basis = basis_of(plan, shape_of(plan), today.date())
        permit = services.grants.permit(basis)
        # The rules of this moment: one that was taken out allows nothing any more.
        verdict = policy.decide(basis.shape, services.config.rules, today=today, permit=permit)
        view = view_of(plan, self._request_id, self._caller, services.unredactable)
        if verdict.outcome is Outcome.DENY:
            raise Refusal(
                verdict.code or DenialCode.RULE_DENIED,
                verdict.reason,
                hint="a rule of the operator forbids this; do not repeat the request",
            )
        self._why = verdict.reason
        approvals = services.approvals
        if verdict.outcome is Outcome.ALLOW:
            by = "grant" if verdict.grant_id else "rule"
            return approvals.admit(view, verdict.bindings, by=by), verdict
        precedents = approvals.precedents
        denied_before = precedents.denied_before(view)
        asked = msgspec.structs.replace(
            view,
            differences=precedents.differences(view),
            denied_before=denied_before,
            offers=offers_of(basis, denied_before=denied_before),
        )
        return approvals.ask(asked, basis), verdict

    async def _decide(self, plan: Plan, entry: Entry, verdict: Verdict) -> tuple[str, ...]:
        """The bindings that this command gets: a rule's, or those that the operator ticked."""
        if verdict.outcome is Outcome.ALLOW:
            await self._services.grants.note_use(verdict)
            await self._trail.decided(
                entry.decided_by, verdict.bindings, entry.digest, self._why, verdict.grant_id
            )
            return verdict.bindings
        approvals = self._services.approvals
        await self._trail.asked(plan.cwd_text, plan.message.want)
        self._connection.send(
            protocol.ExecPending(
                entry.id, approvals.desk.position(entry), self._config.limits.approve_s
            )
        )
        decision = await self._intake.while_there(approvals.answer(entry))
        # Only what was shown with the warning: guesses may have come while this one waited.
        self._services.suspicion.trust_again(plan.suspended.intersection(decision.bindings))
        await self._trail.decided("operator", decision.bindings, entry.digest, self._why)
        return decision.bindings

    # --- Ask ----------------------------------------------------------------------------

    async def _answer_ask(self, message: Ask) -> protocol.AskResult:
        argv = tuple(protocol.bytes_from_text(part) for part in (message.command, *message.args))
        approvals = self._services.approvals
        try:
            approvals.desk.charge_inquiry(self._capsule.name, approvals.now())
            plan = await self._examined(inquiry_of(message), argv)
        except Refusal as refusal:
            return protocol.AskResult(Outcome.DENY, refusal.code.value, str(refusal))
        plan.close()
        # By rules alone: whether there is a grant is nothing that the caller may find out.
        verdict = policy.decide(shape_of(plan), self._services.config.rules, today=_today())
        code = verdict.code.value if verdict.code else ""
        return protocol.AskResult(verdict.outcome, code, verdict.reason)

    # --- leaving ------------------------------------------------------------------------

    def _finish_unrun(self, entry: Entry, error: BaseException) -> None:
        """Take a request that failed on its way off the desk."""
        if entry.state in FINAL_STATES:  # answered, and the caller went away at that moment
            self._services.approvals.finish(entry, entry.state, entry.state.value)
            return
        if entry.state is RequestState.RUNNING:
            self._services.approvals.finish(entry, RequestState.DONE, "internal_error")
            return
        match error:
            case Refusal():
                code, state = error.code, RequestState.DENIED
            case CallerGone():
                code, state = DenialCode.CALLER_GONE, RequestState.CANCELLED
            case asyncio.CancelledError():
                code, state = DenialCode.BROKER_STOPPING, RequestState.CANCELLED
            case _:
                code, state = DenialCode.INTERNAL_ERROR, RequestState.DENIED
        by_operator = entry.is_stopped and state is RequestState.DENIED
        outcome = protocol.EndedBy.OPERATOR.value if by_operator else code.value
        self._services.approvals.finish(entry, state, outcome)

    async def _end_broken(self, error: PeerProtocolError) -> None:
        await self._trail.refused(DenialCode.BAD_REQUEST, str(error))
        self._connection.send(Error(DenialCode.BAD_REQUEST.value, str(error)))

    async def _deny(self, refusal: Refusal) -> None:
        await self._trail.refused(refusal.code, str(refusal))
        exit_code = refusal.exit_code if isinstance(refusal, SpawnFailed) else EXIT_NOT_RUN
        self._connection.send(ExecDenied(refusal.code.value, str(refusal), refusal.hint, exit_code))


def _let_go(job: asyncio.Future[Plan]) -> None:
    """Close a plan that nobody waits for any more."""
    if not job.cancelled() and job.exception() is None:
        job.result().close()


def _today() -> datetime:
    """Now, with its offset, so that rules may end at a time of day."""
    return datetime.now().astimezone()


async def _within(limit_s: float, work: Coroutine[Any, Any, T], late: str) -> T:
    """The result of `work`.

    Raises: PeerProtocolError with the words `late` when it takes longer.
    """
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError as error:
        raise PeerProtocolError(f"{late} within {limit_s:g} seconds") from error
