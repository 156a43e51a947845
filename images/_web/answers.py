"""How every answer leaves: JSON with X-Session, errors in their one shape (a page for people), foreign origins refused; the server's edge."""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from . import envelope
from .faults import Fault

Endpoint = Callable[[Request], Awaitable[Response]]
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

encode = msgspec.json.Encoder().encode
_logger = logging.getLogger("server")


def answer(value: Any, warnings: list[str] | None = None, status: int = 200) -> Response:
    """A JSON answer; warnings go into its `warnings`."""
    return Response(encode({**value, "warnings": warnings} if warnings else value), status, media_type="application/json")


def header_text(name: str) -> str:
    """A session's name as a header may carry it: visible ASCII as it is, all else percent-encoded, also spaces that a header would lose."""
    plain = name.isascii() and name.isprintable() and "%" not in name and name == name.strip()
    return name if plain else quote(name, safe="!#$&'()*+,/:;=?@[]")


def foreign_origin(request: Request) -> Fault | None:
    """Why a browser's request from another site is refused. Clients that are no browsers send no Origin."""
    origin = request.headers.get("origin")
    if origin is None:
        return None
    try:
        parts = urlsplit(origin)
        if parts.netloc == request.headers.get("host") and parts.hostname in LOOPBACK:
            return None
    except ValueError:
        pass
    return Fault(
        403, "ForeignOrigin", f"requests from the site {origin[:200]!r} are refused", "open the site under 127.0.0.1"
    )  # fmt: skip


def edge(handler: Endpoint, show: Callable[[Request, Fault], Response]) -> Endpoint:
    """`handler` as an endpoint: every failure is answered by `show`, X-Session and its version are on every answer that has one."""

    async def answered(request: Request) -> Response:
        try:
            if refused := foreign_origin(request):
                await envelope.body(request)  # unread, it would end a kept connection
                raise refused
            response = await handler(request)
        except Fault as fault:
            response = of_fault(request, fault, show)
        except (sqlite3.DatabaseError, OSError) as error:
            unavailable = Fault(503, "StorageUnavailable", f"the sessions' files cannot be used: {error}", "look at DATA_DIR: is its disk full?")
            response = of_fault(request, unavailable, show)
        except Exception:
            _logger.exception("%s %s", request.method, request.url.path)
            response = of_fault(request, Fault(500, "InternalError", "the server failed", "the log has the details under this request_id"), show)
        if name := request.scope.get("session_name"):
            response.headers["X-Session"] = header_text(name)
            if version := request.app.state.sessions.version_of(name):
                response.headers["X-Session-Version"] = version
        return response

    return answered


def of_fault(request: Request, fault: Fault, show: Callable[[Request, Fault], Response]) -> Response:
    """The answer that a fault is; from 500 on with a request_id that the log has too."""
    if fault.status >= 500:
        fault.extra = {**fault.extra, "request_id": uuid.uuid4().hex[:12]}
        if fault.type != "Unhealthy":  # asked again and again while a server comes up
            _logger.error("request %s: %d %s: %s", fault.extra["request_id"], fault.status, fault.type, fault.message)
    return show(request, fault)


def as_json(request: Request, fault: Fault) -> Response:
    """A fault for programs."""
    return answer(fault.body(), status=fault.status)
