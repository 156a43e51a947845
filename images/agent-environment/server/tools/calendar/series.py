"""What an id of the calendar means, and how a series is changed in one occurrence, from one on, or as a whole."""

from __future__ import annotations

import difflib
import json
import zoneinfo
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from _server import recurrence as rules
from _server.store import Row
from _server.times import show_time, stored_time

from ...registry import Context
from ...store import ToolError
from .occurrences import instance_id, is_skipped, skipped, zone_named

Scope = Literal["this", "following", "all"]
Reach = Annotated[
    Scope | None, "for a recurring event: this occurrence, this and the following ones, or all; an occurrence's id means `this`, a series' id `all`"
]
_ROW = ("calendar_id", "title", "description", "location", "all_day", "timezone", "status", "visibility", "organizer", "reminders")


class Target(NamedTuple):
    """`event` is a row of events; `first` the stored start of the one occurrence of it that is meant, when it is a series'."""

    event: Row
    first: str | None


def checked_rule(rule: str, start: datetime) -> str:
    """A rule in its normal form, whose first occurrence `start` must be; ToolError invalid."""
    try:
        return rules.checked(rule, start)
    except rules.RuleError as error:
        raise ToolError("invalid", error.message, error.hint) from error


def keep(ctx: Context, time: str) -> str:
    """A shown (or any) time as it is stored."""
    return stored_time(time, ctx.zone)


def zone_of(ctx: Context, event: Row) -> ZoneInfo:
    """The zone in which an event repeats: its own, its calendar's, the universe's."""
    named = event["timezone"] or ctx.db.get("calendar.calendars", event["calendar_id"])["timezone"]
    return zone_named(named) if named else ctx.zone


def find(ctx: Context, id: str) -> Target:
    """The event or occurrence with this id; ToolError not_found with what is near."""
    event = ctx.db.first("calendar.events", "id = ?", (id,))
    if event is not None:
        return Target(event, None)
    master_id, at, start = id.rpartition("@")
    master = ctx.db.first("calendar.events", "id = ?", (master_id,)) if at else None
    if master is None:
        raise ctx.db.missing("calendar.events", id.partition("@")[0])
    if master["recurrence"] is None:
        raise ToolError("not_found", f"{master_id} does not repeat, so it has no occurrence at {start}", f"use the id {master_id}")
    try:
        first = keep(ctx, start)
    except ValueError as error:
        raise ToolError("invalid", f"{start!r} in the id is no ISO 8601 time", f"for instance {_near(ctx, master, ctx.now_text)}") from error
    changed = ctx.db.first("calendar.events", "recurring_event_id = ? AND original_start = ?", (master_id, first))
    if changed is not None:
        return Target(changed, None)
    if not _happens(ctx, master, first):
        raise ToolError("not_found", f"{master['title']!r} has no occurrence at {start}", f"near: {_near(ctx, master, first)}")
    return Target(master, first)


def _is_far(first: str, start: str) -> bool:
    """Whether walking a rule from `start` to `first` would take too long."""
    return abs(datetime.fromisoformat(first[:10]) - datetime.fromisoformat(start[:10])) > timedelta(days=50 * 366)


def _happens(ctx: Context, master: Row, first: str) -> bool:
    zone, start = zone_of(ctx, master), keep(ctx, master["start"])
    if len(first) != len(start) or _is_far(first, start):
        return False
    gone = skipped_in(ctx, master)
    given = any(begin == first for begin, _ in rules.spans(master["recurrence"], start, keep(ctx, master["end"]), zone, first, first))
    return given and not is_skipped(first, gone, zone)


def _near(ctx: Context, master: Row, first: str) -> str:
    zone, start = zone_of(ctx, master), keep(ctx, master["start"])
    gone = skipped_in(ctx, master)
    first = ctx.now_text if _is_far(first, start) else first
    after = rules.stored(max(rules.wall(first, zone) - timedelta(days=31), rules.wall(start, zone)), zone, all_day=False)
    starts = [s for s in rules.upcoming(master["recurrence"], start, zone, after, 70) if not is_skipped(s, gone, zone)]
    starts.sort(key=lambda s: abs(rules.wall(s, zone) - rules.wall(first, zone)))
    return ", ".join(instance_id(master["id"], s, ctx.zone) for s in sorted(starts[:3])) or "the series has ended"


def scope_of(target: Target, asked: Scope | None) -> Scope:
    """What a change reaches: what was asked for, else one occurrence where one is named, else all; ToolError when it cannot be."""
    one = target.first is not None or target.event["recurring_event_id"] is not None
    if not one and target.event["recurrence"] is None:
        return "all"
    if asked in ("this", "following") and not one:
        raise ToolError(
            "invalid", f"{target.event['id']} is a whole series; scope {asked!r} needs one occurrence", "name it: <event id>@<its start>, as the lists show it"
        )
    return asked or ("this" if one else "all")


def occurrence_times(ctx: Context, target: Target) -> tuple[str, str]:
    """Stored start and end of what the target names: of its occurrence, else of the row."""
    start, end = keep(ctx, target.event["start"]), keep(ctx, target.event["end"])
    if target.first is None:
        return start, end
    spans = rules.spans(target.event["recurrence"], start, end, zone_of(ctx, target.event), target.first, target.first)
    return next(span for span in spans if span[0] == target.first)


def series_of(ctx: Context, target: Target) -> tuple[Row, str]:
    """The series and the stored start that its rule gives to the target's occurrence."""
    if target.first is not None:
        return target.event, target.first
    if target.event["recurring_event_id"] is None:
        return target.event, keep(ctx, target.event["start"])
    return ctx.db.get("calendar.events", target.event["recurring_event_id"]), keep(ctx, target.event["original_start"])


def copy_guests(ctx: Context, source: str, to: str) -> None:
    """The attendees and tags of one event for another that has none yet."""
    if not ctx.db.count("calendar.attendees", "event_id = ?", (to,)):
        for a in ctx.db.rows("calendar.attendees", "event_id = ?", (source,)):
            ctx.db.insert("calendar.attendees", event_id=to, email=a["email"], name=a["name"], response=a["response"], optional=a["optional"])
    if not ctx.db.count("calendar.tags", "event_id = ?", (to,)):
        for tag in ctx.db.rows("calendar.tags", "event_id = ?", (source,)):
            ctx.db.insert("calendar.tags", event_id=to, name=tag["name"])


def single_out(ctx: Context, target: Target) -> Row:
    """A row for the target alone: for an occurrence of a series its own row, with the series' attendees and tags."""
    event = target.event
    if target.first is None:
        if event["recurring_event_id"]:
            copy_guests(ctx, event["recurring_event_id"], event["id"])
        return event
    start, end = occurrence_times(ctx, target)
    made = ctx.db.insert(
        "calendar.events", **{c: event[c] for c in _ROW}, start=start, end=end, recurring_event_id=event["id"], original_start=target.first,
        created_at=ctx.now_text, updated_at=ctx.now_text,
    )  # fmt: skip
    copy_guests(ctx, event["id"], made["id"])
    return made


def split(ctx: Context, master: Row, first: str) -> Row:
    """Cut a series before the occurrence at `first`: the row of what follows (the series itself when nothing is before)."""
    zone, start = zone_of(ctx, master), keep(ctx, master["start"])
    if not rules.before(master["recurrence"], start, zone, first):
        return master
    head, tail = rules.cut(master["recurrence"], start, zone, first)
    _, end = occurrence_times(ctx, Target(master, first))
    late = [day for day in master["exdates"] if keep(ctx, day) >= first]
    made = ctx.db.insert(
        "calendar.events", **{c: master[c] for c in _ROW}, start=first, end=end, recurrence=tail, exdates=late,
        created_at=ctx.now_text, updated_at=ctx.now_text,
    )  # fmt: skip
    early = [day for day in master["exdates"] if day not in late]
    ctx.db.update("calendar.events", master["id"], recurrence=head, exdates=early, updated_at=ctx.now_text)
    copy_guests(ctx, master["id"], made["id"])
    for row in ctx.db.rows("calendar.events", "recurring_event_id = ? AND original_start >= ?", (master["id"], first)):
        ctx.db.update("calendar.events", row["id"], recurring_event_id=made["id"])
    return made


def move_series(ctx: Context, master: Row, new_start: str, new_end: str, new_zone: ZoneInfo, timezone: str | None) -> Row:
    """Give a series another first start and end (stored), zone or both; what was left out or changed in it moves along."""
    zone, start = zone_of(ctx, master), keep(ctx, master["start"])
    delta = rules.wall(new_start, new_zone) - rules.wall(start, zone)
    rule = rules.shifted(master["recurrence"], (rules.wall(new_start, new_zone).date() - rules.wall(start, zone).date()).days)
    rule = checked_rule(rule, rules.wall(new_start, new_zone))

    def along(time: str) -> str:
        moment = keep(ctx, time)
        if len(moment) == 10:
            return (datetime.fromisoformat(moment).date() + timedelta(days=delta.days)).isoformat()
        return show_time(rules.stored(rules.wall(moment, zone) + delta, new_zone, all_day=False), ctx.zone)

    for row in ctx.db.rows("calendar.events", "recurring_event_id = ?", (master["id"],)):
        ctx.db.update("calendar.events", row["id"], original_start=along(row["original_start"]))
    return ctx.db.update(
        "calendar.events", master["id"], start=new_start, end=new_end, recurrence=rule, timezone=timezone,
        exdates=[along(day) for day in master["exdates"]], updated_at=ctx.now_text,
    )  # fmt: skip


def set_fields(ctx: Context, event: Row, changes: dict[str, Any]) -> Row:
    """Change plain fields of a row; occurrences of a series that had the old value get the new one too."""
    if not changes:
        return event
    for row in ctx.db.rows("calendar.events", "recurring_event_id = ?", (event["id"],)):
        same = {name: value for name, value in changes.items() if row[name] == event[name]}
        ctx.db.update("calendar.events", row["id"], **same)
    return ctx.db.update("calendar.events", event["id"], **changes, updated_at=ctx.now_text)


def zone_or_error(name: str) -> ZoneInfo:
    """The zone called `name`; ToolError invalid with near names."""
    try:
        return zone_named(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        near = difflib.get_close_matches(name, sorted(zoneinfo.available_timezones()), n=3, cutoff=0.4)
        raise ToolError(
            "invalid", f"no time zone is called {name!r}", f"near: {', '.join(near)}" if near else "use an IANA name like America/New_York"
        ) from error


def check_rights(ctx: Context, event: Row) -> None:
    """ToolError forbidden for an event that is neither the user's nor on a shared calendar."""
    calendar = ctx.db.get("calendar.calendars", event["calendar_id"])
    me = ctx.user.email.lower()
    if calendar["is_primary"] and me not in (calendar["owner"].lower(), event["organizer"].lower()):
        raise ToolError(
            "forbidden",
            f"{event['title']!r} is {event['organizer']}'s event on {calendar['owner']}'s calendar",
            "answer it with calendar_respond_to_event or write to its organizer",
        )


def drop_event(ctx: Context, event: Row) -> None:
    """Remove a row with its attendees, tags and changed occurrences."""
    ids = [event["id"], *(r["id"] for r in ctx.db.rows("calendar.events", "recurring_event_id = ?", (event["id"],)))]
    for each in reversed(ids):
        ctx.db.delete("calendar.attendees", "event_id = ?", (each,))
        ctx.db.delete("calendar.tags", "event_id = ?", (each,))
        ctx.db.delete("calendar.events", "id = ?", (each,))


def skip(ctx: Context, master: Row, first: str) -> Row:
    """Leave one occurrence out of a series, with the row that changed it."""
    changed = ctx.db.first("calendar.events", "recurring_event_id = ? AND original_start = ?", (master["id"], first))
    if changed is not None:
        drop_event(ctx, changed)
    if first not in skipped_in(ctx, master):
        exdates = sorted([*master["exdates"], show_time(first, ctx.zone)], key=lambda day: keep(ctx, day))
        return ctx.db.update("calendar.events", master["id"], exdates=exdates, updated_at=ctx.now_text)
    return master


def skipped_in(ctx: Context, master: Row) -> frozenset[str]:
    """The stored starts that a series leaves out."""
    return skipped(json.dumps(master["exdates"]), ctx.zone)
