"""The HTTP doorway of one capsule: who may come in, how much they may send, and what they get.

The seed's protocol at `/exec` (`http_exec.py`), a plain form beside it (`http_plain.py`), nothing
else. Requests become sessions like those of broker.sock. It refuses to know policy.
Invariants: without the token every answer is the same 401 and names nothing; one that was taken
back begins nothing, and sees the calls that it began to their end; a name in `Host` that
is none of ours is refused, so that no web page reaches it by DNS; there is no CORS; a body is
bounded in size and in time; a caller that disconnects ends its command.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..capsules import Capsule
from ..errors import DenialCode, PeerProtocolError, Refusal
from ..peer import bridge_caller
from ..services import Services
from ..session import Session
from . import http_exec, http_plain
from .http_answers import (
    BodyTooLarge,
    failed,
    plain_answer,
    refusal_response,
    unauthorised,
    wrong_host,
)
from .http_channel import HttpChannel, Outlet
from .http_hosts import is_our_host
from .http_plain import STATUS_S, PlainChannel
from .http_server import EmbeddedServer
from .http_stream import OutletResponse, until_gone
from .tcp import CurrentKey, wrong_token

_log = logging.getLogger(__name__)

# A body of the largest size over a line of 4 Mbit/s; one byte a second is no client of ours.
BODY_S: Final = 30.0
# All bodies of a capsule that are being read or held as stdin: eight of the largest.
BODIES_MAX_BYTES: Final = 8 * http_exec.BODY_MAX_BYTES
_TOKEN_HEADERS: Final = ("x-construct-exec-token", "x-jackin-exec-token")
_BEARER: Final = "bearer "
# Under which name a request carries the key that it came in with.
_KEY: Final = "jackin.key"


class HttpDoorway:
    """One capsule's HTTP port. `current_key` is None while nobody may come in."""

    def __init__(
        self,
        services: Services,
        capsule: Capsule,
        listener: socket.socket,
        current_key: CurrentKey,
        host: str,
    ) -> None:
        self._services = services
        self.capsule: Final = capsule
        self._current_key = current_key
        self._host = host
        self._sessions: set[asyncio.Task[None]] = set()
        self._calls: dict[str, PlainChannel] = {}
        self._body_bytes = 0
        self._reading_form = asyncio.Lock()
        self._server = EmbeddedServer(self)
        self._app = Starlette(
            routes=[
                Route("/exec", self._exec, methods=["POST"]),
                Route("/plain", self._plain, methods=["POST"]),
                Route("/plain/{id}", self._cancel, methods=["DELETE"]),
                Route("/plain/{id}/stdin", self._stdin, methods=["POST", "PUT"]),
                Route("/plain/{id}/status", self._status, methods=["GET"]),
                Route("/plain/{id}/{name}", self._output, methods=["GET"]),
            ]
        )
        # A redirect would repeat a `Host` of the caller's choice.
        self._app.router.redirect_slashes = False
        self._server.open(listener)

    def stop_listening(self) -> None:
        """Let nobody in any more; what runs goes on."""
        self._server.stop_listening()

    async def drained(self) -> None:
        """Return when nobody is in any more."""
        while self._sessions:
            await asyncio.wait(self._sessions)

    async def close(self) -> None:
        """Stop listening and end every session, each with its own last word."""
        self.stop_listening()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        await self._server.close()

    # --- who may come in ----------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as uvicorn hands it over."""
        request = Request(scope, receive)
        try:
            response: Any = await self._checked(request)
            if response is None:
                await self._app(scope, receive, send)
                return
        except ClientDisconnect:
            return
        except Exception:  # a fault of ours is a refusal, with its cause in the log
            _log.exception("a request to capsule %s failed", self.capsule.name)
            response = failed()
        await response(scope, receive, send)

    async def _checked(self, request: Request) -> Response | None:
        """Why it may not come in, None where it may."""
        if not is_our_host(request.headers.get("host", ""), self._host):
            return wrong_host()
        key, token = self._current_key(), _token_of(request).encode("utf-8", "replace")
        if key is not None and key.matches(token):
            request.scope[_KEY] = key
        elif not self._is_own_call(request.url.path, token):
            await self._record_refusal()
            return unauthorised()
        return None

    def _is_own_call(self, path: str, token: bytes) -> bool:
        """Whether it is about a call that this token began, before it was taken back."""
        _, _, rest = path.partition("/plain/")
        call = self._calls.get(rest.partition("/")[0])
        return call is not None and call.key.matches(token)

    async def _record_refusal(self) -> None:
        """Counted, not repeated: who has no token must not fill the disk."""
        words = "a caller of the bridge had no valid token"
        code = DenialCode.PEER_REFUSED.value
        try:
            await self._services.audit.record_refusal(
                asyncio.get_running_loop().time(),
                self.capsule.name,
                (code, words),
                code=code,
                reason=words,
            )
        except Refusal:
            _log.exception("a refused caller of %s is not on record", self.capsule.name)

    # --- the seed's protocol ------------------------------------------------------------

    async def _exec(self, request: Request) -> Any:
        try:
            self._check_budget()
            body = await self._body(request, http_exec.BODY_MAX_BYTES)
            channel = http_exec.JsonChannel(*http_exec.read_body(body))
        except (PeerProtocolError, BodyTooLarge, Refusal, TimeoutError) as error:
            return refusal_response(error)
        return _Exchange(self, channel, channel.lines)

    def start(self, channel: HttpChannel, request: Request) -> asyncio.Task[None]:
        """A session on this channel, until the broker stops it.

        Raises: Refusal(TOO_MANY_PENDING, PEER_REFUSED): while its body arrived others came in, or
        its token was taken back.
        """
        self._check_budget()
        if self._current_key() != request.scope[_KEY]:
            raise wrong_token()
        client = request.client
        # One request a caller, and it has begun.
        caller = bridge_caller(client.host if client is not None else "?", lambda: True)
        self.capsule.callers.add(caller)
        session = Session(self._services, self.capsule, channel, caller)
        task = asyncio.get_running_loop().create_task(session.run())
        self._sessions.add(task)
        self._body_bytes += channel.held_bytes

        def ended(task: asyncio.Task[None]) -> None:
            self._body_bytes -= channel.held_bytes
            self._sessions.discard(task)
            self.capsule.callers.discard(caller)

        task.add_done_callback(ended)
        return task

    # --- the plain form -----------------------------------------------------------------

    async def _plain(self, request: Request) -> Response:
        try:
            self._check_budget()
            body = await self._body(request, http_plain.FORM_MAX_BYTES)
            # The largest takes a moment: nobody else waits for it, and it is one at a time.
            async with self._reading_form:
                said = await asyncio.to_thread(http_plain.read_form, body)
            channel = PlainChannel(said, request.scope[_KEY])
            session = self.start(channel, request)
        except (PeerProtocolError, BodyTooLarge, Refusal, TimeoutError) as error:
            return refusal_response(error)
        self._calls[channel.id] = channel
        session.add_done_callback(lambda _: self._forget_later(channel))
        return plain_answer(f"{channel.id}\n")

    def _forget_later(self, channel: PlainChannel) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(STATUS_S, self._calls.pop, channel.id, None)

    def _call(self, request: Request) -> PlainChannel | None:
        return self._calls.get(request.path_params["id"])

    async def _stdin(self, request: Request) -> Response:
        channel = self._call(request)
        if channel is None:
            return _nothing_there()
        try:
            channel.take_stdin()
        except PeerProtocolError as error:
            return refusal_response(error)
        try:
            async for piece in request.stream():
                await channel.put_stdin(piece)
        except ClientDisconnect:
            channel.peer_gone()
            raise
        channel.close_stdin()
        return plain_answer("")

    async def _cancel(self, request: Request) -> Response:
        channel = self._call(request)
        if channel is None:
            return _nothing_there()
        channel.peer_gone()
        return plain_answer("")

    async def _output(self, request: Request) -> Any:
        channel, name = self._call(request), request.path_params["name"]
        if channel is None or name not in ("stdout", "stderr"):
            return _nothing_there()
        try:
            outlet = channel.outlet(name)
        except PeerProtocolError as error:
            return refusal_response(error)
        return OutletResponse(channel, outlet)

    async def _status(self, request: Request) -> Response:
        channel = self._call(request)
        if channel is None:
            return _nothing_there()
        watcher = asyncio.ensure_future(until_gone(request.receive))
        try:
            await asyncio.wait((watcher, channel.status), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watcher.cancel()
        if not channel.status.done():
            channel.peer_gone()
            return plain_answer("")
        return plain_answer(f"{channel.status.result()}\n")

    # --- limits -------------------------------------------------------------------------

    def _check_budget(self) -> None:
        """One budget of sessions for a capsule, whatever door they come through.

        Raises: Refusal(TOO_MANY_PENDING).
        """
        limit = self._services.config.limits.connections_per_capsule
        if len(self.capsule.callers) >= limit:
            raise Refusal(
                DenialCode.TOO_MANY_PENDING,
                f"capsule {self.capsule.name} has too many connections",
                hint="wait for the commands that run",
            )

    async def _body(self, request: Request, limit: int) -> bytes:
        """The whole body.

        Raises: BodyTooLarge, TimeoutError, ClientDisconnect, Refusal(TOO_MANY_PENDING).
        """
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                async for piece in request.stream():
                    body += piece
                    self._body_bytes += len(piece)
                    if len(body) > limit:
                        raise BodyTooLarge(f"the body is longer than {limit} bytes")
                    if self._body_bytes > BODIES_MAX_BYTES:
                        raise Refusal(
                            DenialCode.TOO_MANY_PENDING,
                            "too much is being sent at the same time",
                            hint="wait for the commands that run",
                        )
        finally:
            self._body_bytes -= len(body)
        return bytes(body)


class _Exchange(OutletResponse):
    """`POST /exec`: the session, and its verdict before the first byte."""

    def __init__(self, door: HttpDoorway, channel: HttpChannel, outlet: Outlet) -> None:
        super().__init__(channel, outlet, http_exec.MEDIA_TYPE)
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            session = self._door.start(self._channel, Request(scope))
        except Refusal as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        watcher = asyncio.ensure_future(self.watch(receive))
        try:
            verdict = await self._channel.verdict
            if verdict is None:
                await self.send_all(send)
            else:
                await refusal_response(verdict)(scope, receive, send)
        finally:
            self._channel.peer_gone()  # whatever failed, nothing runs for nobody
            watcher.cancel()
            await asyncio.gather(watcher, session, return_exceptions=True)


def _token_of(request: Request) -> str:
    """The token in a request's head, from the seed's header, ours, or `Authorization: Bearer`."""
    for name in _TOKEN_HEADERS:
        if token := request.headers.get(name):
            return token.strip()
    authorization = request.headers.get("authorization", "")
    if authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip()
    return ""


def _nothing_there() -> Response:
    return plain_answer("there is no such call\n", 404)
