"""How every answer leaves: with X-Session and the session's version, a failure as JSON or as a page; the server's edge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from _server.answers import answered, header_text
from _server.faults import Fault
from starlette.requests import Request
from starlette.responses import Response

Endpoint = Callable[[Request], Awaitable[Response]]


def edge(handler: Endpoint, show: Callable[[Request, Fault], Response]) -> Endpoint:
    """`handler` as an endpoint: every failure is answered by `show`, X-Session and its version are on every answer that has one."""

    async def endpoint(request: Request) -> Response:
        response = await answered(request, lambda: handler(request), lambda fault: show(request, fault))
        if name := request.scope.get("session_name"):
            response.headers["X-Session"] = header_text(name)
            if version := request.app.state.sessions.version_of(name):
                response.headers["X-Session-Version"] = version
        return response

    return endpoint
