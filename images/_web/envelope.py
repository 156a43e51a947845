"""The body of an API call: every spelling of its fields, whose session it is for and who sends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from _verify.faults import did_you_mean
from starlette.requests import Request

from .faults import Fault
from .sessions import checked_name
from .store import Row

MAX_BODY = 4 * 1024 * 1024
MAX_WARNINGS = 20

# Each spelling that a public client uses, and what it means here.
SPELLINGS = {
    "sessionId": "session", "session_id": "session", "dataPack": "pack", "data_pack": "pack", "pack": "pack", "baseWeek": "base", "base_week": "base",
    "seed": "seed", "prompt": "prompt", "checks": "checks", "claims": "claims", "timeout": "timeout", "table": "table", "since": "since",
    "events": "events", "page": "page",
}  # fmt: skip


@dataclass(slots=True)
class Envelope:
    """What a request says besides its path: `fields` under their one name, the caller, and warnings."""

    fields: Row
    caller: str
    warnings: list[str] = field(default_factory=list)

    @property
    def session(self) -> str:
        """The session's name; Fault 400 when it is missing or cannot be one."""
        return checked_name(self.need("session", str))

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


def caller_of(request: Request) -> str:
    """Who asks, as the log names them."""
    headers = request.headers
    return (headers.get("x-caller") or headers.get("user-agent") or "unknown")[:200]


def _short(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:80]


def _named(kind: type | tuple[type, ...]) -> str:
    words = {str: "text", dict: "an object", list: "a list", int: "a whole number", float: "a number", bool: "true or false"}
    return " or ".join(words[k] for k in (kind if isinstance(kind, tuple) else (kind,)))


async def read(request: Request, accepted: frozenset[str]) -> Envelope:
    """The envelope of a request: its query, and its JSON body for POST; fields that are not `accepted` are named in its warnings. Fault 400, 413."""
    made = Envelope({}, caller_of(request))
    _collect(dict(request.query_params), accepted | {"session"}, made)
    if request.method == "POST":
        _collect(_object(await body(request)), accepted | {"session"}, made)
    return made


def _object(content: bytes) -> Row:
    if not content.strip():
        return {}
    try:
        given = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault(400, "InvalidRequest", f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Fault(400, "InvalidRequest", "the body must be a JSON object")
    return given


async def body(request: Request) -> bytes:
    """A request's body; Fault 413 over the limit."""
    announced = request.headers.get("content-length", "0")
    content = b""
    if not announced.isdigit() or int(announced) <= MAX_BODY:
        async for chunk in request.stream():
            content += chunk
            if len(content) > MAX_BODY:
                break
        else:
            return content
    raise Fault(413, "PayloadTooLarge", f"a body has at most {MAX_BODY} bytes", "send less at once")


def _collect(given: Row, known: frozenset[str], made: Envelope) -> None:
    fields, warnings = made.fields, made.warnings
    for spelling, value in given.items():
        name = SPELLINGS.get(spelling)
        if name not in known:
            if len(warnings) < MAX_WARNINGS:
                warnings.append(f"unknown field {spelling[:100]} was ignored{did_you_mean(spelling[:100], [s for s, n in SPELLINGS.items() if n in known])}")
        elif name in fields and None not in (fields[name], value) and fields[name] != value:
            raise Fault(400, "InvalidRequest", f"{spelling} says {_short(value)}, but another spelling of it says {_short(fields[name])}")
        elif value is not None or name not in fields:
            fields[name] = value
