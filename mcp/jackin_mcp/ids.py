"""Requests that wait for their answer, by id: one that reuses such an id is refused, and not run.

The specification has ids used once in a session; the SDK would run both, and a cancel or an answer
could then mean either. It refuses to know methods. Invariant: the refusal carries no id, for that
one belongs to the request that came first.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Protocol

from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

# As much of an id as is repeated: what is a whole number or a word anywhere else.
_SHOWN_CHARS: Final = 100


class Incoming(Protocol):
    """What the SDK reads from."""

    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...
    async def __anext__(self) -> SessionMessage | Exception: ...


class Outgoing(Protocol):
    """What the SDK writes to."""

    async def send(self, item: SessionMessage, /) -> None: ...
    async def aclose(self) -> None: ...


class Answers:
    """The outgoing stream, which frees the id of each request that it answers."""

    def __init__(self, stream: Outgoing) -> None:
        self._stream = stream
        self.waiting: Final[set[RequestId]] = set()

    async def send(self, item: SessionMessage, /) -> None:
        """Pass a message on."""
        said = item.message
        if isinstance(said, (JSONRPCResponse, JSONRPCError)) and said.id is not None:
            self.waiting.discard(coerce_request_id(said.id))
        await self._stream.send(item)

    async def aclose(self) -> None:
        """Nothing more is sent."""
        await self._stream.aclose()

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class Requests:
    """The incoming stream, without requests whose id waits for its answer already."""

    def __init__(self, stream: Incoming, answers: Answers) -> None:
        self._stream = stream
        self._answers = answers

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent; the SDK looks for it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        while not await self._is_first(item := await self._stream.receive()):
            pass
        return item

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not await self._is_first(item := await self._stream.__anext__()):
            pass
        return item

    async def aclose(self) -> None:
        """Nothing more is read."""
        await self._stream.aclose()

    async def __aenter__(self) -> Requests:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _is_first(self, item: SessionMessage | Exception) -> bool:
        """Whether it may go on; a request that may not has been answered."""
        if isinstance(item, Exception):
            return True
        waiting = self._answers.waiting
        match item.message:
            case JSONRPCRequest(id=number):
                if coerce_request_id(number) in waiting:
                    await self._answers.send(SessionMessage(_refusal(number)))
                    return False
                waiting.add(coerce_request_id(number))
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": given}):
                if isinstance(given, (int, str)):  # it gets no answer any more
                    waiting.discard(coerce_request_id(given))
            case _:
                pass
        return True


def _refusal(number: RequestId) -> JSONRPCError:
    shown = repr(number)[:_SHOWN_CHARS]
    words = f"request {shown} is not answered yet, and its id was used again: this one was not run"
    return JSONRPCError(
        jsonrpc="2.0", id=None, error=ErrorData(code=INVALID_REQUEST, message=words)
    )
