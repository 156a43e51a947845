"""How answers leave: JSON, errors in their one shape, foreign origins refused."""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from .envelope import body, headers_of
from .faults import Fault

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

encode = msgspec.json.Encoder().encode
logger = logging.getLogger("server")


def as_json(content: bytes, status: int = 200) -> Response:
    """An answer whose JSON is there already."""
    return Response(content, status, media_type="application/json")


def answer(value: dict[str, Any], warnings: list[str] | None = None, status: int = 200) -> Response:
    """A JSON answer; warnings go into its `warnings`."""
    return as_json(encode({**value, "warnings": warnings} if warnings else value), status)


def header_text(name: str) -> str:
    """A session's name as a header may carry it: visible ASCII as it is, all else percent-encoded, also spaces that a header would lose."""
    plain = name.isascii() and name.isprintable() and "%" not in name and name == name.strip()
    return name if plain else quote(name, safe="!#$&'()*+,/:;=?@[]")


def foreign_origin(request: Request) -> Fault | None:
    """Why a browser's request from another site is refused. Clients that are no browsers send no Origin."""
    headers = headers_of(request)
    origin = headers.get("origin")
    if origin is None:
        return None
    try:
        parts = urlsplit(origin)
        if parts.netloc == headers.get("host") and parts.hostname in LOOPBACK:
            return None
    except ValueError:
        pass
    return Fault(403, "ForeignOrigin", f"requests from the site {origin[:200]!r} are refused", "open it under 127.0.0.1, or send no Origin header")


async def answered(request: Request, handle: Callable[[], Awaitable[Response]], show: Callable[[Fault], Response]) -> Response:
    """What `handle` answers; `show` makes the answer of every failure, one that nobody expected leaves its traceback in the log."""
    try:
        if refused := foreign_origin(request):
            await body(request)  # unread, it would end a kept connection
            raise refused
        return await handle()
    except Fault as fault:
        return show(fault)
    except (sqlite3.DatabaseError, OSError) as error:
        return show(Fault(503, "StorageUnavailable", f"the sessions' files cannot be used: {error}", "look at DATA_DIR: is its disk full?"))
    except Exception:
        logger.exception("%s %s", request.method, request.url.path)
        return show(Fault(500, "InternalError", "the server failed", "the log has the details under this request_id"))


def of_fault(fault: Fault) -> Response:
    """The answer that a fault is; from 500 on with a request_id that the log has too."""
    if fault.status < 500:
        return as_json(encode(fault.body()), fault.status)
    request_id = noted(fault)
    response = as_json(encode({**fault.body(), "request_id": request_id}), fault.status)
    response.headers["X-Request-Id"] = request_id
    return response


def noted(fault: Fault) -> str:
    """A new request_id, under which the log has the fault."""
    request_id = uuid.uuid4().hex[:12]
    if fault.type != "Unhealthy":  # asked again and again while a server comes up
        logger.error("request %s: %d %s: %s", request_id, fault.status, fault.type, fault.message)
    return request_id


def of_router(request: Request, error: Exception) -> tuple[Fault, dict[str, str]]:
    """The router's 404 or 405 as a fault, and the headers that its answer has."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type only
    kind = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "HttpError")
    fault = Fault(error.status_code, kind, f"{request.method} {request.url.path}: {error.detail}", "GET /openapi.json lists the API's paths")
    return fault, dict(error.headers or {})
