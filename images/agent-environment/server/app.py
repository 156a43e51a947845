"""The server's paths, each also under /api/."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from . import __version__, answers, surface_control, surface_tools, surface_verify, tools, universe
from .answers import Handler
from .calls import Caller
from .envelope import SPELLINGS, Envelope
from .mcp_surface import McpSurface
from .sessions import Sessions


async def openapi(request: Request, asked: Envelope) -> Response:
    """This description of the paths."""
    from _server.openapi import TEXT, Api

    types: dict[str, dict[str, Any]] = {
        "tags": {"type": "object", "properties": {"assignmentId": TEXT, "userId": TEXT}},
        "args": {"type": "object"},
        "options": {"type": "object", "properties": {"universe_id": TEXT, "seed": {"type": "integer"}}},
        "tools": {"type": "array", "items": TEXT},
        "use_cache": {"type": "boolean"},
    }
    about = "Every path also answers under /api; MCP clients connect to /mcp."
    described = Api("agent-environment", __version__, about, SPELLINGS, types, in_body="tags")
    return answers.answer(described.document((path, methods, (handler.__doc__ or "").strip(), fields) for path, methods, handler, fields in PATHS), [])


POST, GET, BOTH = ["POST"], ["GET"], ["GET", "POST"]
# Path, methods, handler, fields beside tags and image.
PATHS: list[tuple[str, list[str], Handler, tuple[str, ...]]] = [
    ("/call-tools", POST, surface_tools.call_tools, ("tool", "args", "use_cache")),
    ("/call-tool", POST, surface_tools.call_tool, ("tool", "args", "use_cache")),
    ("/list-tools", BOTH, surface_tools.list_tools, ()),
    ("/enabled-servers", BOTH, surface_tools.enabled_servers, ()),
    ("/reset", POST, surface_control.reset, ("options", "universe", "tools", "seed")),
    ("/verifier", POST, surface_verify.verifier, ("checks", "claims", "timeout")),
    ("/show-data", POST, surface_control.show_data, ("server", "table")),
    ("/state", BOTH, surface_control.state, ("server", "table")),
    ("/log", BOTH, surface_control.log, ("since",)),
    ("/health", GET, surface_control.health, ()),
    ("/openapi.json", GET, openapi, ()),
]


def make(data_dir: Path, default: str, universes: Path = universe.FOLDER) -> Front:
    """The application: sessions under `data_dir`, new ones in universe `default`."""
    tools.load()
    caller = Caller(Sessions(data_dir, default, universes))
    mcp = McpSurface(caller)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await mcp.close()
        if app.state.verifier is not None:
            await app.state.verifier.close()
        caller.sessions.close()

    endpoints = {path: answers.edge(handler, fields) for path, _, handler, fields in PATHS}
    routes = [
        route
        for prefix in ("", "/api")
        for route in (*(Route(prefix + path, endpoints[path], methods=methods) for path, methods, _, _ in PATHS), Route(f"{prefix}/mcp", mcp))
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: answers.no_route}, lifespan=lifespan)
    app.state.caller = caller
    app.state.verifier = None
    return Front(app, {prefix + path: endpoints[path] for prefix in ("", "/api") for path in ("/call-tool", "/call-tools")})


class Front:
    """Tool calls go straight to their endpoint, spared the middleware and the search for a route; all else goes through Starlette."""

    def __init__(self, app: Starlette, direct: dict[str, Callable[[Request], Awaitable[Response]]]) -> None:
        self._app = app
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._direct.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if endpoint is None:
            await self._app(scope, receive, send)
        else:
            scope["app"] = self._app
            response = await endpoint(Request(scope, receive))
            await response(scope, receive, send)
