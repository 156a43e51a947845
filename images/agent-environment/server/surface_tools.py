"""Tools over HTTP: /list-tools, /call-tool (quick start), /call-tools (API reference), /enabled-servers."""

from __future__ import annotations

import functools
from typing import Any

from _server.answers import as_json, encode
from starlette.requests import Request
from starlette.responses import Response

from .answers import answer
from .calls import Caller, Outcome
from .envelope import Envelope
from .registry import TOOLS, Tool
from .tables import SERVERS


def described(tool: Tool) -> dict[str, Any]:
    """A tool as MCP lists it."""
    hints = {"readOnlyHint": tool.read_only, "destructiveHint": tool.destructive, "idempotentHint": tool.idempotent, "openWorldHint": False}
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.schema, "annotations": hints}


def listed(enabled: frozenset[str] | None) -> list[Tool]:
    """The tools a session may call, server by server."""
    return [tool for server in SERVERS for tool in _by_server()[server] if enabled is None or tool.name in enabled]


@functools.cache
def _by_server() -> dict[str, list[Tool]]:
    return {server: sorted((t for t in TOOLS.values() if t.server == server), key=lambda t: t.name) for server in SERVERS}


async def list_tools(request: Request, asked: Envelope) -> Response:
    """The tools as a bare list, or as {"tools": [...]} for a body with tags or image."""
    caller: Caller = request.app.state.caller
    async with caller.sessions.use(asked.key, asked.caller, "list-tools") as session:
        tools = [described(tool) for tool in listed(session.tools)]
    return answer({"tools": tools} if asked.fields.keys() & {"tags", "image"} else tools, asked.warnings)


async def call_tool(request: Request, asked: Envelope) -> Response:
    """Call a tool: a bare list of content blocks, or an error with its own status."""
    outcome = await _called(request, asked)
    if outcome.fault:
        raise outcome.fault
    if not asked.warnings:
        return as_json(b"[" + _block(outcome.text) + b"]")
    return answer([{"type": "text", "text": outcome.text.decode()}], asked.warnings)


async def call_tools(request: Request, asked: Envelope) -> Response:
    """Call a tool: {content, isError}, and {error: {type, message, hint}} beside it for a call that failed."""
    outcome = await _called(request, asked)
    if outcome.fault:
        return answer(failed(outcome), asked.warnings)
    if not asked.warnings:
        return as_json(b'{"content":[' + _block(outcome.text) + b'],"isError":false}')
    return answer({"content": [{"type": "text", "text": outcome.text.decode()}], "isError": False}, asked.warnings)


def failed(outcome: Outcome) -> dict[str, Any]:
    """The answer to a call that failed."""
    assert outcome.fault  # noqa: S101 - asked for failures only
    fault = outcome.fault
    text = f"{fault.message}\n{fault.hint}" if fault.hint else fault.message
    return {"content": [{"type": "text", "text": text}], "isError": True, "error": fault.error()}


async def enabled_servers(request: Request, asked: Envelope) -> Response:
    """{"servers": [[name, "OK"]], "total", "online", "offline"}."""
    states = [[server, "OK" if _by_server()[server] else "no tools"] for server in SERVERS]
    online = sum(state == "OK" for _, state in states)
    return answer({"servers": states, "total": len(states), "online": online, "offline": len(states) - online}, asked.warnings)


async def _called(request: Request, asked: Envelope) -> Outcome:
    name, args = asked.need("tool", str), asked.get("args", dict, {})
    caller: Caller = request.app.state.caller
    return await caller.call(asked.key, asked.caller, name, args)


def _block(text: bytes) -> bytes:
    return b'{"type":"text","text":' + encode(text.decode()) + b"}"
