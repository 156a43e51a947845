"""How every answer leaves: with X-Session and the session's version, a failure as JSON or as a page; the server's edge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from _server.answers import answered, header_text, of_fault
from _server.faults import Fault
from starlette.requests import Request
from starlette.responses import Response

from .sessions import reset_call

Endpoint = Callable[[Request], Awaitable[Response]]


def origin(request: Request) -> str:
    """Where this server is, as the request names it."""
    return f"http://{request.headers.get('host', '127.0.0.1:3000')}"


def as_json(request: Request, fault: Fault) -> Response:
    """A fault for programs; where a session is missing, with the call that makes it."""
    if fault.type == "SessionNotFound":
        fault.hint = f"{fault.hint}: {reset_call(str(fault.extra['sessionId']), origin(request))}"
    return of_fault(fault)


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
