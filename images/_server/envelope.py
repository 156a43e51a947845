"""The body of a request: every spelling of its fields, and each field of the type it must have."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import msgspec
from _verify.faults import did_you_mean
from starlette.requests import Request

from .faults import Fault
from .numbers import whole
from .store import Row

MAX_BODY = 4 * 1024 * 1024
MAX_CALLER = 200
MAX_WARNINGS = 20

_decode = msgspec.json.Decoder().decode


class Fields:
    """What a request says under one name a field. `spellings` are all that public clients use, each with the name it means here."""

    __slots__ = ("fields", "spellings", "warnings")

    def __init__(self, spellings: dict[str, str]) -> None:
        self.spellings = spellings
        self.fields: Row = {}
        self.warnings: list[str] = []

    def get(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A field of this type, or the default when it is left out or null; Fault 400 for another type."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Fault(400, "InvalidRequest", f"{spelled(self.spellings, name)!r} must be {_named(kind)}, not {short(value)}")
        return value

    def need(self, name: str, kind: type) -> Any:
        """A field that must be there; Fault 400 otherwise."""
        value = self.get(name, kind)
        if value is None:
            known = [s for s, n in self.spellings.items() if n == name]
            raise Fault(400, "InvalidRequest", f"{known[0]!r} is missing", f"spellings: {', '.join(known)}")
        return value

    def since(self) -> int:
        """The number of a row of the log, 0 when it is left out; Fault 400."""
        value = str(self.fields.get("since") or 0)
        found = whole(value, 2**63 - 1)
        if found is None:
            raise Fault(400, "InvalidRequest", "'since' must be the number of a row of the log")
        return found

    def collect(self, given: Row, prefix: str, known: frozenset[str]) -> None:
        """Take fields; those that are not `known` are named in `warnings`. Fault 400 where two spellings of one differ."""
        fields, warnings = self.fields, self.warnings
        for spelling, value in given.items():
            name = self.spellings.get(spelling)
            if name not in known:
                if len(warnings) < MAX_WARNINGS:
                    candidates = [s for s, n in self.spellings.items() if n in known]
                    warnings.append(f"unknown field {prefix}{spelling[:100]} was ignored{did_you_mean(spelling[:100], candidates)}")
            elif name in fields and fields[name] is not None and value is not None and fields[name] != value:
                raise Fault(400, "InvalidRequest", f"{prefix}{spelling} says {short(value)}, but another spelling of it says {short(fields[name])}")
            elif value is not None or name not in fields:
                fields[name] = value

    def collect_query(self, request: Request, known: frozenset[str]) -> None:
        """Take the query's fields. Fault 400 where one is not UTF-8: replaced letters could make two sessions one."""
        if not request.scope["query_string"]:
            return
        try:
            found = parse_qsl(request.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict")
        except ValueError as error:
            raise Fault(400, "InvalidRequest", f"the query cannot be read: {error}") from None
        for name, value in found:
            self.collect({name: value}, "?", known)


def spelled(spellings: dict[str, str], name: str) -> str:
    """A field's first spelling."""
    return next((s for s, n in spellings.items() if n == name), name)


def short(value: Any) -> str:
    """A value in a message."""
    return msgspec.json.encode(value).decode()[:80]


def _named(kind: type | tuple[type, ...]) -> str:
    words = {str: "text", dict: "an object", list: "a list", int: "a whole number", float: "a number", bool: "true or false"}
    return " or ".join(words[k] for k in (kind if isinstance(kind, tuple) else (kind,)))


def headers_of(request: Request) -> dict[str, str]:
    """The request's headers by their lower-case names; of one sent twice the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}


async def document(request: Request) -> Row:
    """The JSON object that a request's body is, {} for an empty one; Fault 400, 413."""
    content = b"" if request.method in ("GET", "HEAD") else await body(request)
    if not content.strip():
        return {}
    try:
        given = _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault(400, "InvalidRequest", f"the body is not JSON: {error}") from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise Fault(400, "InvalidRequest", "the body must be a JSON object")
    return given


async def body(request: Request) -> bytes:
    """A request's body; Fault 413 over the limit."""
    announced = headers_of(request).get("content-length")
    content = b""
    if announced is None or whole(announced, MAX_BODY) is not None:
        async for chunk in request.stream():
            content = content + chunk if content else chunk
            if len(content) > MAX_BODY:
                break
        else:
            return content
    raise Fault(413, "PayloadTooLarge", f"a body has at most {MAX_BODY} bytes", "send less at once")
