"""How a tool is declared: a typed function becomes a name, a JSON Schema, a strict argument reader and MCP annotations.

    @tool("calendar", read_only=True, aliases=("calendar_get_events",))
    def get_calendar_events(ctx: Context, start: Annotated[Time | None, "only events that end after this"] = None) -> Row: ...

The function's docstring is the tool's description, the text in `Annotated` that of a parameter. `Time` accepts ISO 8601
or Unix seconds and arrives as stored text (`2026-03-10T14:00:00Z`); `Day` is YYYY-MM-DD.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from _server.store import Row
from _server.times import stored_time, utc_text

from .store import Db, ToolError


class Time(str):
    """An instant in its stored form; a client sends ISO 8601 text or Unix seconds."""


class Day(str):
    """A calendar day, YYYY-MM-DD."""


@dataclass(frozen=True, slots=True)
class User:
    """The person on whose behalf tools act."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Context:
    """What a tool may touch: its session's rows, the frozen clock, the zone and the acting user."""

    db: Db
    now: datetime
    zone: ZoneInfo
    user: User

    @property
    def now_text(self) -> str:
        """The frozen clock in its stored form."""
        return utc_text(self.now)

    @property
    def today(self) -> str:
        """The frozen clock's day in the universe's zone."""
        return self.now.astimezone(self.zone).date().isoformat()

    def local(self, stored: str) -> datetime:
        """A stored instant (or day, as its midnight) as an aware datetime in the universe's zone."""
        moment = datetime.fromisoformat(stored)
        return moment.replace(tzinfo=self.zone) if moment.tzinfo is None else moment.astimezone(self.zone)


Function = Callable[..., Any]


@dataclass(frozen=True)
class Tool:
    """One tool: what clients see of it and the function behind it."""

    name: str
    server: str
    description: str
    function: Function
    read_only: bool
    destructive: bool
    idempotent: bool
    aliases: tuple[str, ...]

    @functools.cached_property
    def parameters(self) -> type[msgspec.Struct]:
        """The strict reader of the tool's arguments."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        fields: list[Any] = []
        for parameter in list(inspect.signature(self.function).parameters.values())[1:]:
            kind = _described(hints[parameter.name])
            fields.append((parameter.name, kind) if parameter.default is parameter.empty else (parameter.name, kind, parameter.default))
        return msgspec.defstruct(self.name, fields, kw_only=True, forbid_unknown_fields=True)

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, self-contained."""
        (reference,), components = msgspec.json.schema_components([self.parameters], schema_hook=_schema_hook)
        schema = components.pop(reference["$ref"].rsplit("/", 1)[1]) if "$ref" in reference else dict(reference)
        if components:
            schema["$defs"] = components
        schema.pop("title", None)
        return schema

    def read(self, args: dict[str, Any], zone: ZoneInfo) -> dict[str, Any]:
        """`args` converted to the function's types; msgspec.ValidationError at the first fault."""
        struct = msgspec.convert(args, self.parameters, dec_hook=functools.partial(_read_custom, zone))
        return {name: getattr(struct, name) for name in struct.__struct_fields__}


TOOLS: dict[str, Tool] = {}
ALIASES: dict[str, str] = {}


def tool(
    server: str, *, read_only: bool = False, destructive: bool = False, idempotent: bool = False, aliases: Iterable[str] = ()
) -> Callable[[Function], Function]:
    """Register a function as the tool `<server>_<function name>`; the flags are MCP's annotations."""

    def register(function: Function) -> Function:
        name = f"{server}_{function.__name__}"
        made = Tool(name, server, inspect.getdoc(function) or "", function, read_only, destructive, idempotent or read_only, tuple(aliases))
        for alias in (name, *made.aliases):
            if alias in TOOLS or alias in ALIASES:
                raise ValueError(f"two tools are called {alias}")
        TOOLS[name] = made
        ALIASES.update(dict.fromkeys(made.aliases, name))
        return function

    return register


def page(items: list[Any], limit: int, cursor: str | None, key: str) -> Row:
    """One page of a list: {key: items, total, next_cursor}; ToolError for a cursor that no answer gave."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and int(cursor) <= len(items)):
        raise ToolError("bad_cursor", f"no page starts at cursor {cursor!r}", "use the next_cursor of an earlier answer")
    start = int(cursor or 0)
    end = start + limit
    return {key: items[start:end], "total": len(items), "next_cursor": str(end) if end < len(items) else None}


def _described(hint: Any) -> Any:
    """`Annotated[T, "text"]` as msgspec wants it."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint
    inner, *notes = typing.get_args(hint)
    metas = [msgspec.Meta(description=n) if isinstance(n, str) else n for n in notes]
    return typing.Annotated[inner, *metas]  # type: ignore[valid-type, unused-ignore]


def _schema_hook(kind: type) -> dict[str, Any]:
    if kind is Time:
        return {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}]}
    if kind is Day:
        return {"type": "string", "format": "date", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
    raise NotImplementedError


def _read_custom(zone: ZoneInfo, kind: type, value: Any) -> Any:
    if kind is Day and isinstance(value, str):
        return Day(date.fromisoformat(value).isoformat())
    if kind is Time and isinstance(value, str):
        return Time(_instant(value, zone))
    if kind is Time and isinstance(value, int | float) and not isinstance(value, bool):
        return Time(_unix(value))
    raise ValueError(f"expected {'ISO 8601 or Unix seconds' if kind is Time else 'YYYY-MM-DD'}, got {value!r}")


def _unix(seconds: float) -> str:
    try:
        return utc_text(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, OSError) as error:
        raise ValueError(f"no time: {seconds!r}") from error


def _instant(text: str, zone: ZoneInfo) -> str:
    stored = stored_time(text, zone)
    if len(stored) > 10:
        return stored
    return utc_text(datetime.fromisoformat(stored).replace(tzinfo=zone))
