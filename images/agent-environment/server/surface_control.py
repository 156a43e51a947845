"""Control over HTTP: /health, /reset, /show-data, /state, /log."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from _server.answers import encode
from _server.faults import Fault
from _server.store import Row
from _verify.faults import near
from starlette.requests import Request
from starlette.responses import Response

from . import __version__
from .answers import answer
from .calls import Caller, unknown_tool
from .envelope import SPELLINGS, Envelope
from .registry import ALIASES, TOOLS
from .sessions import Session, Sessions
from .tables import SERVERS


def _sessions(request: Request) -> Sessions:
    caller: Caller = request.app.state.caller
    return caller.sessions


async def health(request: Request, asked: Envelope) -> Response:
    """200 when every part is there: tools for each server, the default universe, a writable data folder; else 503 with the reasons."""
    sessions = _sessions(request)
    reasons = [f"server {s} has no tools" for s in SERVERS if not any(t.server == s for t in TOOLS.values())]
    if not os.access(sessions.folder, os.W_OK):
        reasons.append(f"DATA_DIR {sessions.data_dir} is not writable")
    else:
        try:
            await asyncio.to_thread(sessions.template, sessions.default)
        except Fault as fault:
            reasons.append(f"UNIVERSE_ID: {fault.message}; {fault.hint}")
    if reasons:
        raise Fault(503, "Unhealthy", "; ".join(reasons), reasons=reasons)
    return answer({"status": "ok", "version": __version__, "universe_id": sessions.default}, asked.warnings)


async def reset(request: Request, asked: Envelope) -> Response:
    """Put a session back to a universe's first state; {message, universe_id, servers: {server: {table: rows}}}."""
    options = asked.get("options", dict, {})
    chosen = _universe_option(asked, options)
    universe_id = asked.get("universe", str) or chosen
    tools = _tool_names(asked.get("tools", list))
    seed = asked.fields.get("seed", options.get("seed"))
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise Fault(400, "InvalidRequest", "'seed' must be a whole number")
    args = {"universe_id": universe_id, "tools": tools, "seed": seed, "options": options}
    args = {name: value for name, value in args.items() if value not in (None, {})}
    session = await _sessions(request).reset(asked.key, asked.caller, universe_id, tools, args)
    message = f"session {asked.key.name!r} is at the start of universe {session.universe_id!r}"
    return answer({"message": message, "universe_id": session.universe_id, "servers": session.counts}, asked.warnings)


def _universe_option(asked: Envelope, options: Row) -> str | None:
    spellings = [spelling for spelling, name in SPELLINGS.items() if name == "universe"]
    for name in sorted(options.keys() - {*spellings, "seed"}):
        asked.warnings.append(f"unknown option options.{name[:100]} was ignored")
    value = next((options[s] for s in spellings if options.get(s) is not None), None)
    if value is not None and not isinstance(value, str):
        raise Fault(400, "InvalidRequest", "'options.universe_id' must be text")
    return value


def _tool_names(names: list[Any] | None) -> list[str] | None:
    if names is None:
        return None
    for name in names:
        if not isinstance(name, str):
            raise Fault(400, "InvalidRequest", "'tools' must be a list of tool names")
        if name not in TOOLS and name not in ALIASES:
            raise unknown_tool(name)
    return sorted({ALIASES.get(name, name) for name in names})


async def show_data(request: Request, asked: Envelope) -> Response:
    """{table: [rows]} of one server."""
    asked.need("server", str)
    return await _data(request, asked, "show-data")


async def state(request: Request, asked: Envelope) -> Response:
    """{table: [rows]} of one server, or {server: {table: [rows]}} of all."""
    return await _data(request, asked, "state")


async def _data(request: Request, asked: Envelope, call: str) -> Response:
    server, table = asked.get("server", str), asked.get("table", str)
    chosen = _chosen(server, table)
    async with _sessions(request).use(asked.key, asked.caller, call) as session:
        data = await session.in_thread(_read, session, asked.caller, call, chosen)
    return answer(data[server] if server else data, asked.warnings)


def _chosen(server: str | None, table: str | None) -> list[tuple[str, str]]:
    """The tables asked for as (server, table); Fault 404 with those there are."""
    if server is not None and server not in SERVERS:
        raise Fault(404, "UnknownServer", f"no server {server!r}", f"servers: {', '.join(SERVERS)}", near=near(server, SERVERS))
    if table is not None and server is None:
        raise Fault(400, "InvalidRequest", "'table' needs 'serverName' beside it")
    if server is not None and table is not None and table not in SERVERS[server]:
        raise Fault(404, "UnknownTable", f"server {server!r} has no table {table!r}", f"tables: {', '.join(SERVERS[server])}")
    return [(s, t) for s, tables in SERVERS.items() for t in tables if server in (None, s) and table in (None, t)]


def _read(session: Session, caller: str, call: str, chosen: list[tuple[str, str]]) -> dict[str, dict[str, list[Row]]]:
    data = rows(session, chosen)
    servers = sorted({server for server, _ in chosen})
    session.record(caller, call, None, encode({"servers": servers}).decode(), True, b"null")
    return data


def rows(session: Session, chosen: list[tuple[str, str]]) -> dict[str, dict[str, list[Row]]]:
    """{server: {table: rows}} of some tables as they stand together; the session's lock must be held."""
    db = session.open().db
    data: dict[str, dict[str, list[Row]]] = {}
    for server, table in chosen:
        data.setdefault(server, {})[table] = db.rows(f"{server}.{table}")
    return data


async def log(request: Request, asked: Envelope) -> Response:
    """{session, universe_id, log: [{n, at, caller, call, tool, args, ok, result}]}, oldest first; `since` leaves out numbers up to it."""
    since = asked.since()
    async with _sessions(request).use(asked.key, asked.caller, "log") as session:
        found = await session.in_thread(session.log, since)
    return answer({"session": asked.key.name, "universe_id": session.universe_id, "log": found}, asked.warnings)
