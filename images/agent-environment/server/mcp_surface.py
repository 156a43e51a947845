"""Standard MCP at /mcp by the official SDK, which is imported at the first call: it takes longer than the rest of the start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from _server.answers import foreign_origin, header_text
from _server.answers import of_fault as answer_of
from _server.envelope import MAX_CALLER
from _server.faults import Fault
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from . import __version__, surface_tools
from .calls import Caller, Outcome
from .envelope import session_of
from .sessions import OWN_KEY, Key

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

SESSION_HEADER = "mcp-session-id"


class McpSurface:
    """The ASGI application at /mcp. A session's key is ?assignmentId= (or another spelling of it), else its Mcp-Session-Id, else the instance's own."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._lock = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            if refused := foreign_origin(request):
                raise refused
            key = _key(request)
        except Fault as fault:
            await answer_of(fault)(scope, receive, send)
            return
        manager = await self._started()
        await manager.handle_request(scope, receive, lambda message: send(_with_session(message, key)))

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._lock:
            if self._manager is None:
                made = await asyncio.to_thread(_manager, self._caller)
                ready = asyncio.Event()
                # The manager's task group must be entered and left by one task, so a task of its own holds it open.
                self._task = asyncio.create_task(self._hold(made, ready))
                await ready.wait()
                self._manager = made
            return self._manager

    async def _hold(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        async with manager.run():
            ready.set()
            await self._stop.wait()

    async def close(self) -> None:
        """End every MCP session."""
        self._stop.set()
        if self._task is not None:
            await self._task


def _key(request: Request) -> Key:
    named = session_of(request)
    if named != OWN_KEY:
        return named
    session = request.headers.get(SESSION_HEADER)
    return Key("mcp", session) if session else OWN_KEY


def _with_session(message: Message, key: Key) -> Message:
    """The first message of an answer, with X-Session; the answer to `initialize` names the new session."""
    if message["type"] == "http.response.start":
        headers = list(message.get("headers", []))
        given = dict(headers).get(SESSION_HEADER.encode())
        name = given.decode() if given and key == OWN_KEY else key.name
        message = {**message, "headers": [*headers, (b"x-session", header_text(name).encode())]}
    return message


def _manager(caller: Caller) -> StreamableHTTPSessionManager:
    from mcp.server.lowlevel.server import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

    async def list_tools(context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        key, who = _asker(context)
        async with caller.sessions.use(key, who, "list-tools") as session:
            return ListToolsResult(tools=[Tool.model_validate(surface_tools.described(tool)) for tool in surface_tools.listed(session.tools)])

    async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        key, who = _asker(context)
        try:
            outcome = await caller.call(key, who, params.name, params.arguments or {})
        except Fault as fault:
            outcome = Outcome(fault=fault)
        if outcome.fault is None:
            return CallToolResult(content=[TextContent(text=outcome.text.decode())])
        failed = surface_tools.failed(outcome)
        return CallToolResult(content=[TextContent(text=failed["content"][0]["text"])], structured_content={"error": failed["error"]}, is_error=True)

    server: Server[Any] = Server("agent-environment", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)
    return StreamableHTTPSessionManager(server, json_response=True, session_idle_timeout=None)


def _asker(context: ServerRequestContext[Any, Any]) -> tuple[Key, str]:
    request = context.request
    assert isinstance(request, Request)  # noqa: S101 - what the SDK's HTTP transport attaches
    headers = request.headers
    return _key(request), (headers.get("x-caller") or headers.get("user-agent") or "mcp")[:MAX_CALLER]
