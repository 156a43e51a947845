"""The body of a request: every spelling of its fields, whom it is for and who sends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from .faults import Fault, did_you_mean
from .sessions import OWN_KEY, Key, assignment
from .store import Row

MAX_BODY = 4 * 1024 * 1024
MAX_CALLER = 200
MAX_WARNINGS = 20

# Each spelling that a public client uses, and what it means here.
SPELLINGS = {
    "tags": "tags", "image": "image", "assignmentId": "session", "assignment_id": "session", "sessionId": "session", "session_id": "session",
    "userId": "user", "user_id": "user", "toolName": "tool", "tool_name": "tool", "toolArguments": "args", "toolArgs": "args",
    "tool_args": "args", "tool_arguments": "args", "use_cache": "use_cache", "useCache": "use_cache", "serverName": "server",
    "server_name": "server", "server": "server", "table": "table", "options": "options", "universe_id": "universe", "universeId": "universe",
    "universe": "universe", "seed": "seed", "tools": "tools", "enabled_tools": "tools", "checks": "checks", "claims": "claims",
    "timeout": "timeout", "since": "since",
}  # fmt: skip
EVERYWHERE = frozenset({"tags", "image", "session", "user"})
IN_TAGS = frozenset({"session", "user"})

_decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Envelope:
    """What a request says besides its path: `fields` under their one name, the session's key, the caller, and warnings."""

    fields: Row
    key: Key
    caller: str
    warnings: list[str] = field(default_factory=list)

    def get(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A field of this type, or the default when it is left out or null; Fault 400 for another type."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Fault(400, "InvalidRequest", f"{spelled(name)!r} must be {_named(kind)}, not {_short(value)}")
        return value

    def need(self, name: str, kind: type) -> Any:
        """A field that must be there; Fault 400 otherwise."""
        value = self.get(name, kind)
        if value is None:
            raise Fault(400, "InvalidRequest", f"{spelled(name)!r} is missing", f"spellings: {', '.join(s for s, n in SPELLINGS.items() if n == name)}")
        return value


def spelled(name: str) -> str:
    """A field's first spelling."""
    return next((s for s, n in SPELLINGS.items() if n == name), name)


def _short(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:80]


def _named(kind: type | tuple[type, ...]) -> str:
    words = {str: "text", dict: "an object", list: "a list", int: "a whole number", float: "a number", bool: "true or false"}
    return " or ".join(words[k] for k in (kind if isinstance(kind, tuple) else (kind,)))


async def read(request: Request, accepted: frozenset[str]) -> Envelope:
    """The envelope of a request: its query, and its body unless it is a GET; fields that are not `accepted` are named in its warnings. Fault 400, 413."""
    content = b"" if request.method in ("GET", "HEAD") else await _body(request)
    given: Any = {}
    if content.strip():
        try:
            given = _decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Fault(400, "InvalidRequest", f"the body is not JSON: {error}") from None
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise Fault(400, "InvalidRequest", "the body must be a JSON object")
    return _envelope(request, given, accepted)


def session_of(request: Request) -> Key:
    """The session that a request's query names, in any spelling, else the instance's own; Fault 400."""
    fields: Row = {}
    for name, value in _query(request):
        _collect({name: value}, "?", EVERYWHERE, fields, [])
    return assignment(fields["session"]) if "session" in fields else OWN_KEY


def _query(request: Request) -> list[tuple[str, str]]:
    """The query's fields. Fault 400 where one is not UTF-8: replaced letters could make two sessions one."""
    try:
        return parse_qsl(request.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise Fault(400, "InvalidRequest", f"the query cannot be read: {error}") from None


def headers_of(request: Request) -> dict[str, str]:
    """The request's headers by their lower-case names; of one sent twice the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}


async def _body(request: Request) -> bytes:
    announced = headers_of(request).get("content-length", "0")
    if announced.isdigit() and int(announced) > MAX_BODY:
        raise _too_large()
    content = b""
    async for chunk in request.stream():
        content = content + chunk if content else chunk
        if len(content) > MAX_BODY:
            raise _too_large()
    return content


def _too_large() -> Fault:
    return Fault(413, "PayloadTooLarge", f"a body has at most {MAX_BODY} bytes", "send less at once")


def _envelope(request: Request, given: Row, accepted: frozenset[str]) -> Envelope:
    warnings: list[str] = []
    fields: Row = {}
    for spelling, value in _query(request) if request.scope["query_string"] else ():
        _collect({spelling: value}, "?", EVERYWHERE | accepted, fields, warnings)
    _collect(given, "", EVERYWHERE | accepted, fields, warnings)
    tags = fields.get("tags")
    if tags is not None:
        if not isinstance(tags, dict):
            raise Fault(400, "InvalidRequest", "'tags' must be an object, {\"assignmentId\": text}")
        _collect(tags, "tags.", IN_TAGS, fields, warnings)
    name = fields.get("session")
    if name is None:
        key = OWN_KEY
    elif isinstance(name, str):
        key = assignment(name)
    else:
        raise Fault(400, "InvalidRequest", f"'tags.assignmentId' must be text, not {_short(name)}")
    # Remembered here so that the answer, also an error's, can say whose it was.
    request.scope["session_name"] = key.name
    user = fields.get("user")
    headers = headers_of(request)
    caller = headers.get("x-caller") or (user if isinstance(user, str) else None) or headers.get("user-agent") or "unknown"
    return Envelope(fields, key, caller[:MAX_CALLER], warnings)


def _collect(given: Row, prefix: str, known: frozenset[str], fields: Row, warnings: list[str]) -> None:
    for spelling, value in given.items():
        name = SPELLINGS.get(spelling)
        if name not in known:
            if len(warnings) < MAX_WARNINGS:
                candidates = [s for s, n in SPELLINGS.items() if n in known]
                warnings.append(f"unknown field {prefix}{spelling[:100]} was ignored{did_you_mean(spelling[:100], candidates)}")
        elif name in fields and fields[name] is not None and value is not None and fields[name] != value:
            raise Fault(400, "InvalidRequest", f"{prefix}{spelling} says {_short(value)}, but another spelling of it says {_short(fields[name])}")
        elif value is not None or name not in fields:
            fields[name] = value
