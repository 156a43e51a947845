"""GET /openapi.json: the API's paths, each with its fields under their first spelling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .envelope import spelled

TEXT: dict[str, Any] = {"type": "string"}
TYPES: dict[str, dict[str, Any]] = {
    "seed": {"type": "integer"},
    "since": {"type": "integer"},
    "checks": {"type": "array", "items": {"type": "object"}},
    "claims": {"type": "array", "items": TEXT},
    "timeout": {"type": "number"},
}
ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error", "detail"],
    "properties": {
        "error": {"type": "object", "required": ["type", "message", "hint"], "properties": {"type": TEXT, "message": TEXT, "hint": TEXT}},
        "detail": TEXT,
        "request_id": TEXT,
    },
}


@dataclass(frozen=True)
class Api:
    """An API: `types` of its own fields, the field that names the session in a query and in a body."""

    title: str
    version: str
    about: str
    spellings: dict[str, str]
    types: dict[str, dict[str, Any]]
    in_query: str = "session"
    in_body: str = "session"

    def document(self, paths: Iterable[tuple[str, list[str], str, tuple[str, ...]]]) -> dict[str, Any]:
        """The OpenAPI document of paths given as (path, methods, summary, fields)."""
        return {
            "openapi": "3.1.0",
            "info": {"title": self.title, "version": self.version, "description": self.about},
            "paths": {path: {method.lower(): self._operation(method, summary, fields) for method in methods} for path, methods, summary, fields in paths},
            "components": {"schemas": {"Error": ERROR}},
        }

    def _operation(self, method: str, summary: str, fields: tuple[str, ...]) -> dict[str, Any]:
        error = {"description": "an error", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
        operation: dict[str, Any] = {"summary": summary, "responses": {"200": {"description": summary}, "default": error}}
        if method == "GET":
            names = (self.in_query, *fields)
            operation["parameters"] = [{"name": spelled(self.spellings, name), "in": "query", "schema": self._type(name)} for name in names]
            return operation
        properties = {spelled(self.spellings, name): self._property(name) for name in (self.in_body, *fields)}
        operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object", "properties": properties}}}}
        return operation

    def _type(self, name: str) -> dict[str, Any]:
        return self.types.get(name) or TYPES.get(name, TEXT)

    def _property(self, name: str) -> dict[str, Any]:
        others = [spelling for spelling, meant in self.spellings.items() if meant == name][1:]
        return {**self._type(name), **({"description": f"also spelled {', '.join(others)}"} if others else {})}
