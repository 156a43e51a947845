"""How every answer leaves: JSON with X-Session, errors in their one shape, foreign origins refused; the server's edge."""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from . import envelope
from .envelope import Envelope
from .faults import Fault
from .sessions import OWN

Handler = Callable[[Request, Envelope], Awaitable[Response]]
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

encode = msgspec.json.Encoder().encode
_logger = logging.getLogger("server")


def answer(value: Any, warnings: list[str], status: int = 200) -> Response:
    """A JSON answer; warnings go into an object's `warnings`, or beside a bare list into the header X-Warnings."""
    if not warnings:
        return as_json(encode(value), status)
    if isinstance(value, dict):
        return as_json(encode({**value, "warnings": warnings}), status)
    response = as_json(encode(value), status)
    response.headers["X-Warnings"] = quote("; ".join(warnings), safe=" ;,?()'.")
    return response


def as_json(content: bytes, status: int = 200) -> Response:
    """An answer whose JSON is there already."""
    return Response(content, status, media_type="application/json")


def header_text(name: str) -> str:
    """A session's name as a header may carry it: visible ASCII as it is, all else percent-encoded, also spaces that a header would lose."""
    plain = name.isascii() and name.isprintable() and "%" not in name and name == name.strip()
    return name if plain else quote(name, safe="!#$&'()*+,/:;=?@[]")


def foreign_origin(request: Request) -> Fault | None:
    """Why a browser's request from another site is refused. Clients that are no browsers send no Origin."""
    headers = envelope.headers_of(request)
    origin = headers.get("origin")
    if origin is None:
        return None
    try:
        parts = urlsplit(origin)
        if parts.netloc == headers.get("host") and parts.hostname in LOOPBACK:
            return None
    except ValueError:
        pass
    return Fault(403, "ForeignOrigin", f"requests from the site {origin[:200]!r} are refused", "send no Origin header")


def edge(handler: Handler, accepted: Iterable[str]) -> Callable[[Request], Awaitable[Response]]:
    """`handler` as an endpoint: it gets the request's envelope, every failure is answered, X-Session is on every answer."""
    fields = frozenset(accepted)

    async def answered(request: Request) -> Response:
        try:
            if refused := foreign_origin(request):
                raise refused
            response = await handler(request, await envelope.read(request, fields))
        except Fault as fault:
            response = of_fault(fault)
        except (sqlite3.DatabaseError, OSError) as error:
            response = of_fault(Fault(503, "StorageUnavailable", f"the sessions' files cannot be used: {error}", "look at DATA_DIR: is its disk full?"))
        except Exception:
            _logger.exception("%s %s", request.method, request.url.path)
            response = of_fault(Fault(500, "InternalError", "the server failed", "the log has the details under this request_id"))
        response.raw_headers.append((b"x-session", header_text(request.scope.get("session_name", OWN)).encode()))
        return response

    return answered


def of_fault(fault: Fault) -> Response:
    """The answer that a fault is."""
    if fault.status < 500:
        return as_json(encode(fault.body()), fault.status)
    request_id = uuid.uuid4().hex[:12]
    if fault.type != "Unhealthy":  # asked again and again while a server comes up
        _logger.error("request %s: %d %s: %s", request_id, fault.status, fault.type, fault.message)
    response = as_json(encode({**fault.body(), "request_id": request_id}), fault.status)
    response.headers["X-Request-Id"] = request_id
    return response


async def no_route(request: Request, error: Exception) -> Response:
    """404 and 405 of the router, in our shape."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type only
    kind = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "HttpError")
    response = of_fault(Fault(error.status_code, kind, f"{request.method} {request.url.path}: {error.detail}", "GET /openapi.json lists the paths"))
    response.headers.update(error.headers or {})
    response.headers["X-Session"] = OWN
    return response
