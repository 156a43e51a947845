"""GET /openapi.json: the API's paths, each with its fields under their first spelling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .envelope import SPELLINGS, spelled

if TYPE_CHECKING:
    from .site import Site

TEXT: dict[str, Any] = {"type": "string"}
TYPES: dict[str, dict[str, Any]] = {
    "base": {"type": "string", "format": "date"},
    "seed": {"type": "integer"},
    "since": {"type": "integer"},
    "checks": {"type": "array", "items": {"type": "object"}},
    "claims": {"type": "array", "items": TEXT},
    "events": {"type": "array", "items": {"type": "object"}},
    "timeout": {"type": "number"},
}
ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error", "detail"],
    "properties": {
        "error": {"type": "object", "required": ["type", "message", "hint"], "properties": {"type": TEXT, "message": TEXT, "hint": TEXT}},
        "detail": TEXT,
    },
}


def document(site: Site, paths: Iterable[tuple[str, list[str], str, tuple[str, ...]]]) -> dict[str, Any]:
    """The OpenAPI document of paths given as (path, methods, summary, fields)."""
    about = "Every path also answers under /api. Pages are at /?session_id=ID."
    return {
        "openapi": "3.1.0",
        "info": {"title": site.name, "version": site.version, "description": about},
        "paths": {path: {method.lower(): _operation(method, summary, fields) for method in methods} for path, methods, summary, fields in paths},
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(method: str, summary: str, fields: tuple[str, ...]) -> dict[str, Any]:
    error = {"description": "an error", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    operation: dict[str, Any] = {"summary": summary, "responses": {"200": {"description": summary}, "default": error}}
    if method == "GET":
        operation["parameters"] = [{"name": "session_id", "in": "query", "schema": TEXT}]
        operation["parameters"] += [{"name": spelled(name), "in": "query", "schema": TYPES.get(name, TEXT)} for name in fields]
        return operation
    properties = {spelled(name): _property(name) for name in ("session", *fields)}
    operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object", "properties": properties}}}}
    return operation


def _property(name: str) -> dict[str, Any]:
    others = [spelling for spelling, meant in SPELLINGS.items() if meant == name][1:]
    return {**TYPES.get(name, TEXT), **({"description": f"also spelled {', '.join(others)}"} if others else {})}
