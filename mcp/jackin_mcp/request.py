"""One command that was asked for: how far it is, what it wrote, how it ended.

It refuses to know MCP. Invariants: the connection to the broker lives as long as the request and
no longer, so that dropping one withdraws the other; a request settles exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from enum import Enum

from jackin_broker.client import Connection, DataFrame, DenialCode, Stream
from jackin_broker.errors import BrokerUnreachable, PeerProtocolError, ProtocolError, Refusal
from jackin_broker.protocol import (
    Cancel,
    Error,
    ExecCommand,
    ExecDenied,
    ExecPending,
    ExecResult,
    ExecStarted,
    StdinEof,
    StdinKind,
    ToCapsule,
)

from .transcript import Budget, Transcript


class State(str, Enum):
    """How far a request is."""

    ASKED = "asked"
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class Denied:
    """Nothing was run; or, with `has_run`, it is not known how it ended."""

    code: str
    reason: str
    hint: str = ""
    has_run: bool = False


class Request:
    """One request. Made in a running loop; it goes on by itself until it settles."""

    def __init__(
        self, connection: Connection, message: ExecCommand, stdin: bytes, budget: Budget
    ) -> None:
        self.id = ""
        self.state = State.ASKED
        self.pending: ExecPending | None = None
        self.bindings: tuple[str, ...] = ()
        self.outcome: ExecResult | Denied | None = None
        self.stdout = Transcript(budget)
        self.stderr = Transcript(budget)
        self.since = time.monotonic()  # of the present state
        self.moved = asyncio.Event()  # set at the next change of state; then there is a new one
        self._connection = connection
        self._task = asyncio.get_running_loop().create_task(self._follow(message, stdin))

    @property
    def is_settled(self) -> bool:
        """Whether there is a result."""
        return self.outcome is not None

    def withdraw(self) -> None:
        """Close its prompt, or end its command."""
        self._task.cancel()

    def forget(self) -> None:
        """Drop what it wrote."""
        self.stdout.forget()
        self.stderr.forget()

    async def _follow(self, message: ExecCommand, stdin: bytes) -> None:
        try:
            await self._connection.send(message, stdin)
            if message.stdin is StdinKind.CLOSED:
                await self._connection.send(StdinEof())
            while not self.is_settled:
                said = await self._connection.receive()
                if isinstance(said, DataFrame):
                    (self.stdout if said.stream is Stream.STDOUT else self.stderr).add(said.data)
                else:
                    self._obey(said)
        except asyncio.CancelledError:
            self._settle(Denied(DenialCode.CALLER_GONE.value, "the request was taken back"))
            with contextlib.suppress(BrokerUnreachable):
                await self._connection.send(Cancel())
        except Refusal as refusal:
            self._settle(Denied(refusal.code.value, str(refusal), refusal.hint))
        except (BrokerUnreachable, ProtocolError) as error:
            self._lose(error)
        finally:
            self._connection.close()

    def _lose(self, error: BrokerUnreachable | ProtocolError) -> None:
        has_run = self.state is State.RUNNING
        is_ours = isinstance(error, ProtocolError) and not isinstance(error, PeerProtocolError)
        code = DenialCode.BAD_REQUEST if is_ours else DenialCode.BROKER_STOPPING
        self._settle(Denied(code.value, str(error), error.hint, has_run))

    def _obey(self, said: ToCapsule) -> None:
        match said:
            case ExecPending():
                self.id, self.pending = self.id or said.request_id, said
                self._move(State.WAITING)
            case ExecStarted():
                self.id, self.bindings = self.id or said.request_id, said.bindings
                self._move(State.RUNNING)
            case ExecResult():
                self.id = self.id or said.request_id
                self._settle(said)
            case ExecDenied() | Error():
                hint = said.hint if isinstance(said, ExecDenied) else ""
                has_run = self.state is State.RUNNING
                self._settle(Denied(said.code, said.reason, hint, has_run))
            case _:
                pass  # stopped, or credit for a stdin that was sent whole

    def _move(self, state: State) -> None:
        self.state, self.since = state, time.monotonic()
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    def _settle(self, outcome: ExecResult | Denied) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self._move(State.ENDED)
