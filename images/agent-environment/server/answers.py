"""How every answer leaves: JSON with X-Session, errors in their one shape; the server's edge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import quote

from _server import answers as shared
from _server.answers import as_json, encode, header_text, of_fault
from starlette.requests import Request
from starlette.responses import Response

from . import envelope
from .envelope import Envelope
from .sessions import OWN

Handler = Callable[[Request, Envelope], Awaitable[Response]]


def answer(value: Any, warnings: list[str], status: int = 200) -> Response:
    """A JSON answer; warnings go into an object's `warnings`, or beside a bare list into the header X-Warnings."""
    if isinstance(value, dict):
        return shared.answer(value, warnings, status)
    response = as_json(encode(value), status)
    if warnings:
        response.headers["X-Warnings"] = quote("; ".join(warnings), safe=" ;,?()'.")
    return response


def edge(handler: Handler, accepted: Iterable[str]) -> Callable[[Request], Awaitable[Response]]:
    """`handler` as an endpoint: it gets the request's envelope, every failure is answered, X-Session is on every answer."""
    fields = frozenset(accepted)

    async def answered(request: Request) -> Response:
        async def handle() -> Response:
            return await handler(request, await envelope.read(request, fields))

        response = await shared.answered(request, handle, of_fault)
        response.raw_headers.append((b"x-session", header_text(request.scope.get("session_name", OWN)).encode()))
        return response

    return answered


async def no_route(request: Request, error: Exception) -> Response:
    """404 and 405 of the router, in our shape."""
    fault, headers = shared.of_router(request, error)
    response = of_fault(fault)
    response.headers.update({**headers, "X-Session": OWN})
    return response
