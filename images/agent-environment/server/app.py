"""The server's paths, each also under /api/."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from . import answers, surface_control, surface_tools, surface_verify, tools, universe
from .calls import Caller
from .mcp_surface import McpSurface
from .sessions import Sessions

POST, GET, BOTH = ["POST"], ["GET"], ["GET", "POST"]
PATHS = (
    ("/health", GET, surface_control.health),
    ("/reset", POST, surface_control.reset),
    ("/list-tools", BOTH, surface_tools.list_tools),
    ("/call-tool", POST, surface_tools.call_tool),
    ("/call-tools", POST, surface_tools.call_tools),
    ("/enabled-servers", BOTH, surface_tools.enabled_servers),
    ("/show-data", POST, surface_control.show_data),
    ("/state", BOTH, surface_control.state),
    ("/verifier", POST, surface_verify.verifier),
    ("/log", BOTH, surface_control.log),
)


def make(data_dir: Path, default: str, universes: Path = universe.FOLDER) -> Starlette:
    """The application: sessions under `data_dir`, new ones in universe `default`."""
    tools.load()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await mcp.close()
        if app.state.verifier is not None:
            await app.state.verifier.close()
        caller.sessions.close()

    caller = Caller(Sessions(data_dir, default, universes))
    mcp = McpSurface(caller)
    # The busiest paths first: the router tries one after the other.
    ordered = sorted(PATHS, key=lambda path: not path[0].startswith("/call"))
    routes = [Route(prefix + path, answers.edge(endpoint), methods=methods) for prefix in ("", "/api") for path, methods, endpoint in ordered]
    routes += [Route(prefix + "/mcp", mcp) for prefix in ("", "/api")]
    app = Starlette(routes=routes, exception_handlers={HTTPException: answers.no_route}, lifespan=lifespan)
    app.state.caller = caller
    app.state.verifier = None
    return app
