"""A site as an application: the API (also under /api/), its pages, style sheets and scripts."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path

from _server.answers import of_router
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Address

from . import answers, api, envelope, pages
from .assets import Assets
from .sessions import Sessions
from .site import Route, Site

UNDO = Route("/undo", "POST", "undo", pages.undo)


def make(site: Site, data_dir: Path, pack: str, wait: float = 10.0) -> Starlette:
    """The application of a site: sessions under `data_dir`, `pack` for resets that name none."""
    assets = Assets(Path(__file__).parent / "static", site.folder / "static")
    sessions = Sessions(site, data_dir, pack, wait)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        if app.state.verifier is not None:
            await app.state.verifier.close()
        sessions.close()

    routes = [Address(r.path, answers.edge(pages.endpoint(r), pages.show_fault), methods=[r.method]) for r in (*site.routes, UNDO)]
    routes += [
        Address(prefix + path, answers.edge(_api(handler, fields), answers.as_json), methods=methods)
        for prefix in ("", "/api")
        for path, methods, handler, fields in api.PATHS
    ]
    routes.append(Address("/static/{digest}/{name}", answers.edge(assets.serve, answers.as_json), methods=["GET"]))
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route}, lifespan=lifespan)
    app.state.sessions = sessions
    app.state.templates = pages.environment(site, assets)
    app.state.pages = OrderedDict()
    app.state.verifier = None
    return app


def _api(handler: api.Handler, fields: tuple[str, ...]) -> answers.Endpoint:
    accepted = frozenset(fields)

    async def answered(request: Request) -> Response:
        return await handler(request, await envelope.read(request, accepted))

    return answered


async def _no_route(request: Request, error: Exception) -> Response:
    """404 and 405 of the router: a page for a browser, else in the shape of all errors."""
    fault, headers = of_router(request, error)
    is_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    response = pages.show_fault(request, fault) if is_page else answers.as_json(request, fault)
    response.headers.update(headers)
    return response
