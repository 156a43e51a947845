"""Calendars themselves and the tags on events."""

from __future__ import annotations

from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...registry import Context, tool
from ...store import ToolError
from .editing import TagNames, put_tags
from .series import check_rights, find, single_out, zone_or_error
from .viewing import EventId, row_of


@tool("calendar", idempotent=True, aliases=("calendar_add_tag", "calendar_tag_event"))
def add_tags(ctx: Context, event_id: EventId, tags: Annotated[TagNames, "names of tags"]) -> Row:
    """Tag an event, or one occurrence; tags it has already (in any case) stay as they are."""
    target = find(ctx, event_id)
    check_rights(ctx, target.event)
    row = single_out(ctx, target)
    put_tags(ctx, row["id"], tags)
    return {"event": row_of(ctx, row["id"])}


@tool("calendar", destructive=True, idempotent=True, aliases=("calendar_remove_tag",))
def remove_tags(ctx: Context, event_id: EventId, tags: Annotated[TagNames, "names of tags"]) -> Row:
    """Take tags off an event, or off one occurrence."""
    target = find(ctx, event_id)
    check_rights(ctx, target.event)
    present = row_of(ctx, event_id)["tags"]
    for name in tags:
        if name.lower() not in {t.lower() for t in present}:
            raise ToolError("not_found", f"{target.event['title']!r} has no tag {name!r}", f"its tags: {', '.join(present) or 'none'}")
    row = single_out(ctx, target)
    for name in tags:
        ctx.db.delete("calendar.tags", "event_id = ? AND name = ? COLLATE NOCASE", (row["id"], name))
    return {"event": row_of(ctx, row["id"])}


@tool("calendar", read_only=True)
def list_tags(ctx: Context) -> Row:
    """Every tag in use, with how many events carry it."""
    sql = "SELECT name, COUNT(*) FROM calendar_tags GROUP BY name COLLATE NOCASE ORDER BY name"
    return {"tags": [{"name": name, "events": count} for name, count in ctx.db.connection.execute(sql)]}


@tool("calendar")
def create_calendar(
    ctx: Context,
    name: Annotated[str, Meta(min_length=1, max_length=200), "what it is called"],
    timezone: Annotated[str | None, "IANA zone of its events; the universe's when left out"] = None,
    color: Annotated[str, Meta(pattern=r"^#[0-9a-fA-F]{6}$"), "a color, #rrggbb"] = "#3f6fd8",
) -> Row:
    """Make another calendar of yours."""
    if ctx.db.count("calendar.calendars", "owner = ? COLLATE NOCASE AND name = ? COLLATE NOCASE", (ctx.user.email, name)):
        raise ToolError("conflict", f"you have a calendar called {name!r} already")
    zone = zone_or_error(timezone).key if timezone else None
    return {"calendar": ctx.db.insert("calendar.calendars", name=name, owner=ctx.user.email, color=color, timezone=zone)}


@tool("calendar", destructive=True, idempotent=True)
def delete_calendar(ctx: Context, calendar_id: Annotated[str, "one of your calendars, without events"]) -> Row:
    """Remove an empty calendar of yours; refused while it has events, and for your primary one."""
    calendar = ctx.db.get("calendar.calendars", calendar_id)
    if calendar["owner"].lower() != ctx.user.email.lower() or calendar["is_primary"]:
        raise ToolError("forbidden", f"{calendar['name']!r} is a primary calendar or {calendar['owner']}'s")
    events = ctx.db.rows("calendar.events", "calendar_id = ?", (calendar_id,), order="start, id")
    if events:
        raise ToolError(
            "conflict",
            f"{calendar['name']!r} has {len(events)} events: {', '.join(e['id'] for e in events[:5])}",
            "move them by calendar_update_event with calendar_id, or delete them, first",
        )
    ctx.db.delete("calendar.calendars", "id = ?", (calendar_id,))
    return {"deleted": calendar}
