"""The MCP server: tools and resources of the official SDK over an agent's link to the broker.

The low-level server, because it says that its lists change. It refuses to know frames and
processes. Invariants: a call that is cancelled withdraws its request; a result or a refusal is
never a fault of the protocol; nothing is asked of the client, for not every client can be asked.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    TextResourceContents,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from jackin_broker.client import Facts, Link
from jackin_broker.errors import BrokerUnreachable, DenialCode, ProtocolError, Refusal
from jackin_broker.protocol import AskResult, Error, ExecDenied

from . import arguments
from .arguments import WrongArguments
from .ledger import Ledger
from .request import Denied, Request
from .results import (
    STREAMS,
    check_result,
    denied_result,
    progress_words,
    result_of,
    transcript_of,
    uri_of,
)
from .tools import CHECK, EXEC, WAIT, tools_for
from .transcript import Budget

Context = ServerRequestContext[Any, Any]

# A client that resets its limit at each progress message has at least 60 s; a third of the
# quarter minute that was promised keeps one late message harmless.
PROGRESS_S: Final = 5.0
# Where the answer is due sooner, so is the progress.
_PROGRESS_SHARE: Final = 3
INSTRUCTIONS: Final = (
    "jackin_exec runs one command outside this sandbox with credentials that you never see. A "
    "person decides each time, or a rule of theirs. A denial is final until somebody changes "
    "something: do not repeat it, do not try variations, ask."
)


class McpServer:
    """One agent's server. `run` serves its streams; everything else is called from them."""

    def __init__(self, link: Link, facts: Facts, version: str) -> None:
        self._link = link
        self._facts = facts
        self._ledger = Ledger()
        self._budget = Budget()
        self._bus = InMemorySubscriptionBus()
        self._session: ServerSession | None = None  # of a client that did the handshake
        self._tasks: set[asyncio.Task[None]] = set()
        self._announced: set[str] = set()  # requests whose output is listed
        link.changed = self._facts_changed
        self.sdk: Final[Server[Any]] = Server(
            "jackin-exec",
            version=version,
            title="jackin-exec",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.sdk.add_notification_handler(
            "notifications/initialized", NotificationParams, self._initialized
        )

    def options(self) -> InitializationOptions:
        """What the server says of itself in the handshake."""
        return self.sdk.create_initialization_options(
            NotificationOptions(tools_changed=True, resources_changed=True)
        )

    # --- lists --------------------------------------------------------------------------

    async def _initialized(self, ctx: Context, params: NotificationParams) -> None:
        self._session = ctx.session

    async def _list_tools(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=tools_for(self._facts))

    def _facts_changed(self, facts: Facts) -> None:
        self._facts = facts
        self._later(self._say_tools_changed())

    async def _say_tools_changed(self) -> None:
        await self._bus.publish(ToolsListChanged())
        if self._session is not None:
            await self._session.send_tool_list_changed()

    async def _say_resources_changed(self) -> None:
        await self._bus.publish(ResourcesListChanged())
        if self._session is not None:
            await self._session.send_resource_list_changed()

    def _later(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- tools --------------------------------------------------------------------------

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        calls = {EXEC: self._exec, WAIT: self._wait, CHECK: self._check}
        call = calls.get(params.name)
        if call is None or not tools_for(self._facts):
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name[:100]}")
        try:
            return await call(ctx, params.arguments)
        except WrongArguments as error:
            return _refused(DenialCode.BAD_REQUEST, str(error), "correct the arguments")
        except Refusal as refusal:
            return _refused(refusal.code, str(refusal), refusal.hint)
        except (BrokerUnreachable, ProtocolError) as error:
            return _refused(DenialCode.BROKER_STOPPING, str(error), error.hint)

    async def _exec(self, ctx: Context, given: dict[str, Any] | None) -> CallToolResult:
        message, stdin = arguments.exec_command(given, self._facts.cwd)
        connection = await self._link.connect()
        request = Request(connection, message, stdin, self._budget)
        return await self._result(ctx, request)

    async def _wait(self, ctx: Context, given: dict[str, Any] | None) -> CallToolResult:
        request = self._ledger.get(arguments.request_id(given))
        if request is None:
            return _refused(
                DenialCode.BAD_REQUEST,
                "no request of this session has that id",
                "results are kept for the session that asked, the newest of them only",
            )
        return await self._result(ctx, request)

    async def _check(self, ctx: Context, given: dict[str, Any] | None) -> CallToolResult:
        connection = await self._link.connect()
        try:
            await connection.send(arguments.ask(given, self._facts.cwd))
            said = await connection.receive()
        finally:
            connection.close()
        match said:
            case AskResult():
                return check_result(said)
            case ExecDenied() | Error():
                return denied_result(Denied(said.code, said.reason))
            case _:
                raise BrokerUnreachable("the broker answered something else")

    async def _result(self, ctx: Context, request: Request) -> CallToolResult:
        """The result, or pending where the client would not wait any longer."""
        try:
            await self._stay(ctx, request)
        except BaseException:  # cancelled, or the client is gone: so is what it asked for
            request.withdraw()
            raise
        self._ledger.keep(request)
        if request.is_settled and request.id not in self._announced and _long(request):
            self._announced.add(request.id)
            self._later(self._say_resources_changed())
        return result_of(request, ctx.protocol_version)

    async def _stay(self, ctx: Context, request: Request) -> None:
        loop = asyncio.get_running_loop()
        reports = ctx.meta is not None and "progress_token" in ctx.meta
        pending_s = self._facts.pending_s
        step_s = min(PROGRESS_S, pending_s / _PROGRESS_SHARE)
        began = loop.time()
        while not request.is_settled:
            moved, passed_s = request.moved, loop.time() - began
            if reports:
                await ctx.session.report_progress(passed_s, message=progress_words(request))
            elif passed_s >= pending_s:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(step_s if reports else pending_s - passed_s):
                    await moved.wait()

    # --- resources ----------------------------------------------------------------------

    async def _list_resources(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        found = [
            Resource(
                uri=uri_of(request, name),
                name=f"{name} of request {request.id}",
                mime_type="text/plain",
                size=transcript_of(request, name).size,
            )
            for request in self._ledger
            if request.is_settled
            for name in _long(request)
        ]
        return ListResourcesResult(resources=found)

    async def _read_resource(
        self, ctx: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        uri = str(params.uri)
        for request in self._ledger:
            for name in STREAMS:
                if request.is_settled and uri == uri_of(request, name):
                    return ReadResourceResult(
                        contents=[_contents(uri, transcript_of(request, name).whole())]
                    )
        raise MCPError(_not_found(ctx), "Resource not found", {"uri": uri[:200]})


def _long(request: Request) -> list[str]:
    return [name for name in STREAMS if transcript_of(request, name).is_long]


def _contents(uri: str, data: bytes) -> TextResourceContents | BlobResourceContents:
    try:
        return TextResourceContents(uri=uri, mime_type="text/plain", text=data.decode())
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return BlobResourceContents(uri=uri, mime_type="application/octet-stream", blob=blob)


def _not_found(ctx: Context) -> int:
    """-32002 until 2025-11-25, invalid params since. Source: the specification's resources page."""
    return -32002 if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else INVALID_PARAMS


def _refused(code: DenialCode, reason: str, hint: str) -> CallToolResult:
    return denied_result(Denied(code.value, reason, hint))
