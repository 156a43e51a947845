"""Surface C: the official MCP clients against the running server."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from tests.images.serving import Served, served

EVENT = {"title": "by MCP", "start": "2026-03-20T10:00:00", "end": "2026-03-20T11:00:00"}


def url(server: Served, query: str = "") -> str:
    return f"http://127.0.0.1:{server.port}/mcp{query}"


def with_session(address: str, use: Callable[[ClientSession], Awaitable[Any]]) -> Any:
    """What `use` returns, in a session with the full handshake."""

    async def run() -> Any:
        async with streamable_http_client(address) as (read, write, *_), ClientSession(read, write) as session:
            await session.initialize()
            return await use(session)

    return anyio.run(run)


def with_client(address: str, use: Callable[[Client], Awaitable[Any]]) -> Any:
    """What `use` returns, with the session-less default client."""

    async def run() -> Any:
        async with Client(address) as client:
            return await use(client)

    return anyio.run(run)


def events(answer: Any) -> set[str]:
    return {row["title"] for row in answer["events"]}


async def _titles(client: ClientSession | Client) -> set[str]:
    result = await client.call_tool("calendar_search_events", {"query": "by MCP"})
    (block,) = result.content
    assert isinstance(block, TextContent)
    return events(json.loads(block.text))


def test_both_clients_list_the_tools(server: Served) -> None:
    over_http = {tool["name"]: tool for tool in server.post("/list-tools").json}
    for listed in (with_session(url(server), lambda s: s.list_tools()), with_client(url(server), lambda c: c.list_tools())):
        assert {tool.name for tool in listed.tools} == over_http.keys()
        for tool in listed.tools:
            assert tool.input_schema == over_http[tool.name]["inputSchema"]
            assert tool.annotations.read_only_hint == over_http[tool.name]["annotations"]["readOnlyHint"]


def test_a_session_is_isolated_and_lasts(server: Served) -> None:
    async def use(session: ClientSession) -> set[str]:
        assert await _titles(session) == set()
        assert not (await session.call_tool("calendar_add_event", EVENT)).is_error
        return await _titles(session)

    assert with_session(url(server), use) == {"by MCP"}
    assert with_session(url(server), use) == {"by MCP"}, "a second session starts afresh"


def test_the_session_less_client_uses_the_instances_own(server: Served) -> None:
    server.post("/reset")

    async def use(client: Client) -> Any:
        return await client.call_tool("calendar_add_event", EVENT)

    result = with_client(url(server), use)
    assert not result.is_error, result
    own = server.post("/show-data", {"serverName": "calendar"})
    assert "by MCP" in events(own.json)
    assert with_client(url(server), _titles) == {"by MCP"}


@pytest.mark.parametrize("with_one", [with_session, with_client])
def test_an_assignment_is_the_same_over_every_surface(server: Served, with_one: Callable[..., Any]) -> None:
    name = f"mcp-{with_one.__name__}"
    server.call(name, "calendar_add_event", **EVENT)
    assert with_one(url(server, f"?assignmentId={name}"), _titles) == {"by MCP"}
    assert with_one(url(server, f"?assignmentId={name}-2"), _titles) == set()
    rows = server.get(f"/log?session_id={name}").json["log"]
    assert rows[-1]["tool"] == "calendar_search_events"
    assert "python" in rows[-1]["caller"].lower()


@pytest.mark.parametrize("with_one", [with_session, with_client])
def test_errors_are_results_that_a_model_can_read(server: Served, with_one: Callable[..., Any]) -> None:
    async def use(client: ClientSession | Client) -> Any:
        return [
            await client.call_tool(name, args)
            for name, args in (("email_serch", {}), ("calendar_add_event", {"titel": 1}), ("calendar_get_event", {"event_id": "x"}))
        ]

    unknown, bad, missing = with_one(url(server), use)
    assert unknown.is_error
    assert "email_search" in unknown.content[0].text
    assert bad.structured_content["error"]["type"] == "InvalidArguments"
    assert "did you mean 'title'" in bad.content[0].text
    assert missing.structured_content["error"]["type"] == "not_found"


def test_an_assignment_survives_a_kill(tmp_path: Path) -> None:
    async def add(client: Client) -> Any:
        return await client.call_tool("calendar_add_event", EVENT)

    with served(tmp_path) as first:
        with_client(url(first, "?assignmentId=lasting"), add)
        first.kill()
    with served(tmp_path) as second:
        assert with_client(url(second, "?assignmentId=lasting"), _titles) == {"by MCP"}


def test_only_enabled_tools_are_listed(server: Served) -> None:
    server.post("/reset", {"tags": {"assignmentId": "few"}, "tools": ["email_search", "email_send"]})
    listed = with_client(url(server, "?assignmentId=few"), lambda c: c.list_tools())
    assert [tool.name for tool in listed.tools] == ["email_search", "email_send"]


def test_answers_name_their_session(server: Served) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    headers = {"Accept": "application/json, text/event-stream", "Content_Type": "application/json"}
    answer = server.post("/mcp", hello, **headers)
    assert answer.status == 200
    assert answer.headers["x-session"] == answer.headers["mcp-session-id"]
    for name in ("assignmentId", "assignment_id", "sessionId", "session_id"):
        assert server.post(f"/mcp?{name}=named", hello, **headers).headers["x-session"] == "named"
    assert server.post("/mcp?assignmentId=@instance", hello, **headers).status == 400
    assert server.post("/mcp", hello, Mcp_Session_Id="0" * 32, **headers).status == 404


def test_it_still_ends_quickly(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        with_session(url(server), lambda s: s.list_tools())
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 5
