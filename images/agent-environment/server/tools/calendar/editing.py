"""Making, changing, moving and removing events, one occurrence, the rest of a series or all of it; calendars and tags."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from _server import recurrence as rules
from _server.store import Row
from _server.times import stored_time, utc_text
from msgspec import Meta

from ...addresses import Recipients
from ...registry import Context, tool
from ...store import ToolError
from .guests import add_guests
from .mails import mail_guests, others
from .scheduling import conflicts
from .series import (
    Reach,
    Scope,
    Target,
    check_rights,
    checked_rule,
    drop_event,
    find,
    keep,
    move_series,
    occurrence_times,
    scope_of,
    series_of,
    set_fields,
    single_out,
    skip,
    split,
    zone_of,
    zone_or_error,
)  # fmt: skip
from .viewing import EventId, is_hidden, row_of

_ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
When = Annotated[str, Meta(pattern=_ISO)] | float
_WHEN = "ISO 8601, without an offset in the event's zone; a day (YYYY-MM-DD) for an all-day event; or Unix seconds"
Title = Annotated[str, Meta(min_length=1, max_length=500)]
Text = Annotated[str, Meta(max_length=20000)]
Short = Annotated[str, Meta(max_length=500)]
Rule = Annotated[str, Meta(max_length=500)]
Reminders = Annotated[list[Annotated[int, Meta(ge=0, le=40320)]], Meta(max_length=10)]
TagNames = Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=20)]
Notify = Annotated[bool, "mail the attendees"]


def read_when(ctx: Context, value: str | float, zone: ZoneInfo) -> str:
    """A client's time or day as it is stored; ToolError invalid."""
    try:
        stored = stored_time(value, zone) if isinstance(value, str) else utc_text(datetime.fromtimestamp(value, ctx.zone))
    except (ValueError, OverflowError, OSError) as error:
        raise ToolError("invalid", f"{value!r} is no time: {error}", "for instance 2026-03-10T14:00:00, or 2026-03-10 for an all-day event") from error
    if not "1970" <= stored[:4] <= "2099":
        raise ToolError("invalid", f"{value!r} is outside the years 1970 to 2099")
    return stored


def check_order(start: str, end: str) -> None:
    """ToolError invalid unless both are times or both days, the end after the start."""
    if len(start) != len(end):
        raise ToolError(
            "invalid",
            f"start {start} and end {end} are not both times or both days",
            "an all-day event starts and ends with days; its end is the day after its last",
        )
    if end <= start:
        raise ToolError(
            "invalid", f"the end ({end}) is not after the start ({start})", "an all-day event of one day ends on the next day" if len(end) == 10 else ""
        )


def default_calendar(ctx: Context) -> str:
    """The user's primary calendar, else their first one; ToolError not_found."""
    calendar = ctx.db.first("calendar.calendars", "owner = ? COLLATE NOCASE", (ctx.user.email,), order="is_primary DESC, id")
    if calendar is None:
        raise ToolError("not_found", "you have no calendar", "make one with calendar_create_calendar, or give calendar_id")
    return str(calendar["id"])


def writable(ctx: Context, calendar_id: str) -> str:
    """The calendar's id if the user may put events there; ToolError not_found, forbidden."""
    calendar = ctx.db.get("calendar.calendars", calendar_id)
    if calendar["is_primary"] and calendar["owner"].lower() != ctx.user.email.lower():
        raise ToolError("forbidden", f"{calendar['name']!r} is {calendar['owner']}'s own calendar", "put the event on yours and invite them")
    return calendar_id


def normal_day(start: str, end: str, all_day: bool | None, ctx: Context) -> tuple[str, str]:
    """Start and end as days for an all-day event; ToolError invalid where that is said twice and differently."""
    if all_day is False and len(start) == 10:
        raise ToolError("invalid", f"{start} is a day, not a time, and all_day is false", "give times")
    if not all_day:
        return start, end
    first, last = (ctx.local(t).date().isoformat() if len(t) > 10 else t for t in (start, end))
    return first, last


@tool("calendar", aliases=("add_calendar_event", "calendar_add_calendar_event", "calendar_create_event", "create_event"))
def add_event(
    ctx: Context,
    title: Annotated[Title, "what it is"],
    start: Annotated[When, _WHEN],
    end: Annotated[When | None, "like start; for an all-day event the day after its last. Left out: an hour, or one day"] = None,
    all_day: Annotated[bool | None, "true: whole days, the times of start and end are dropped"] = None,
    calendar_id: Annotated[str | None, "on which calendar; your primary one when left out"] = None,
    description: Annotated[Text, "more about it"] = "",
    location: Annotated[Short, "where"] = "",
    timezone: Annotated[str | None, "IANA zone in which it is planned and repeats; the calendar's when left out"] = None,
    recurrence: Annotated[Rule | None, "an RFC 5545 rule like FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8; its first occurrence is the start"] = None,
    attendees: Annotated[Recipients | None, "e-mail addresses (or names of people known here) to invite by mail"] = None,
    status: Annotated[Literal["confirmed", "tentative"], "is it certain"] = "confirmed",
    visibility: Annotated[Literal["default", "private"], "private: others see only that you are busy"] = "default",
    reminders: Annotated[Reminders | None, "minutes before the start"] = None,
    tags: Annotated[TagNames | None, "tags to put on it"] = None,
    notify: Notify = True,
) -> Row:
    """Put an event on a calendar and invite people: they get an invitation by mail. The answer names what it overlaps for you."""
    calendar = writable(ctx, calendar_id) if calendar_id is not None else default_calendar(ctx)
    named = timezone or ctx.db.get("calendar.calendars", calendar)["timezone"]
    zone = zone_or_error(named) if named else ctx.zone
    first = read_when(ctx, start, zone)
    last = read_when(ctx, end, zone) if end is not None else _default_end(first, all_day, ctx)
    first, last = normal_day(first, last, all_day, ctx)
    if len(first) == 10 and last == first and all_day and end is not None and len(str(end)) > 10:
        last = _default_end(first, True, ctx)
    check_order(first, last)
    rule = checked_rule(recurrence, rules.wall(first, zone)) if recurrence else None
    event = ctx.db.insert(
        "calendar.events", calendar_id=calendar, title=title, description=description, location=location, start=first, end=last, all_day=len(first) == 10,
        timezone=timezone, recurrence=rule, status=status, visibility=visibility, organizer=ctx.user.email, reminders=reminders or [],
        created_at=ctx.now_text, updated_at=ctx.now_text,
    )  # fmt: skip
    put_tags(ctx, event["id"], tags or [])
    mailed = add_guests(ctx, event, attendees or [], notify=notify)
    return {"event": row_of(ctx, event["id"]), "mailed": mailed, "conflicts": _clashes(ctx, event)}


def _default_end(start: str, all_day: bool | None, ctx: Context) -> str:
    day = start if len(start) == 10 else ctx.local(start).date().isoformat()
    if len(start) == 10 or all_day:
        return datetime.fromordinal(datetime.fromisoformat(day).toordinal() + 1).date().isoformat()
    return utc_text(datetime.fromtimestamp(datetime.fromisoformat(start).timestamp() + 3600, ctx.zone))


def _clashes(ctx: Context, event: Row) -> list[Row]:
    """What a timed event overlaps for the user (a series: its first occurrence)."""
    start, end = keep(ctx, event["start"]), keep(ctx, event["end"])
    return [] if len(start) == 10 else [c for c in conflicts(ctx, [ctx.user.email], start, end, event["id"]) if len(c["start"]) > 10]


def put_tags(ctx: Context, event_id: str, names: Iterable[str]) -> None:
    present = {t["name"].lower() for t in ctx.db.rows("calendar.tags", "event_id = ?", (event_id,))}
    for name in dict.fromkeys(n.strip() for n in names):
        if name.lower() not in present:
            ctx.db.insert("calendar.tags", event_id=event_id, name=name)
            present.add(name.lower())


LOUD = ("title", "start", "end", "location", "status", "timezone", "recurrence")
"""The columns whose change the guests are told of."""


def _row_for(ctx: Context, target: Target, scope: Scope) -> Row:
    """The row that a change of this scope is made in."""
    if scope == "this":
        return single_out(ctx, target)
    master, first = series_of(ctx, target)
    return split(ctx, master, first) if scope == "following" else master


@tool("calendar", idempotent=True, aliases=("update_calendar_event",))
def update_event(
    ctx: Context,
    event_id: EventId,
    title: Annotated[Title | None, "new title"] = None,
    start: Annotated[When | None, f"new start: {_WHEN}. The length stays unless end is given"] = None,
    end: Annotated[When | None, "new end"] = None,
    all_day: Annotated[bool | None, "make it all-day, or (with times) timed"] = None,
    calendar_id: Annotated[str | None, "move it to this calendar"] = None,
    description: Annotated[Text | None, "new description"] = None,
    location: Annotated[Short | None, "new place"] = None,
    timezone: Annotated[str | None, "IANA zone in which it is planned and repeats"] = None,
    recurrence: Annotated[Rule | None, "a new RFC 5545 rule for the whole series; an empty text ends the repetition"] = None,
    status: Annotated[Literal["confirmed", "tentative"] | None, "is it certain"] = None,
    visibility: Annotated[Literal["default", "private"] | None, "who sees more than busy"] = None,
    reminders: Annotated[Reminders | None, "minutes before the start"] = None,
    scope: Reach = None,
    notify: Notify = True,
) -> Row:
    """Change what is given of an event, leave the rest; attendees get a mail when time, place, title or status change."""
    target = find(ctx, event_id)
    check_rights(ctx, target.event)
    reach = scope_of(target, scope)
    if reach == "this" and recurrence is not None:
        raise ToolError("invalid", "one occurrence cannot have a rule of its own", "use scope following or all")
    if calendar_id is not None:
        writable(ctx, calendar_id)
    times = _new_times(ctx, target, start, end, all_day, timezone)
    row = _row_for(ctx, target, reach)
    before = ctx.db.get("calendar.events", row["id"])
    plain: dict[str, Any] = {
        "title": title, "calendar_id": calendar_id, "description": description, "location": location,
        "status": status, "visibility": visibility, "reminders": reminders,
    }  # fmt: skip
    row = set_fields(ctx, row, {name: value for name, value in plain.items() if value is not None})
    if times:
        row = _set_times(ctx, row, target, reach, *times, timezone or row["timezone"])
    if recurrence is not None:
        row = _set_rule(ctx, row, recurrence)
    mailed = mail_guests(ctx, "Updated", row, others(ctx, row["id"])) if notify and any(row[name] != before[name] for name in LOUD) else []
    return {"event": row_of(ctx, row["id"]), "scope": reach, "mailed": mailed, "conflicts": _clashes(ctx, row) if times else []}


def _new_times(
    ctx: Context, target: Target, start: str | float | None, end: str | float | None, all_day: bool | None, timezone: str | None
) -> tuple[str, str, ZoneInfo] | None:
    """Stored start and end that the change gives to what the target names, and the zone; None when times stay."""
    old_zone = zone_of(ctx, target.event)
    zone = zone_or_error(timezone) if timezone else old_zone
    if start is None and end is None and all_day is None and zone.key == old_zone.key:
        return None
    old_start, old_end = occurrence_times(ctx, target)
    if len(old_start) > 10 and zone.key != old_zone.key:  # the wall clock stays
        lasts = rules.length(old_start, old_end)
        old_start = rules.stored(rules.wall(old_start, old_zone), zone, all_day=False)
        old_end = utc_text(datetime.fromisoformat(old_start) + lasts)
    first = read_when(ctx, start, zone) if start is not None else old_start
    if end is not None:
        last = read_when(ctx, end, zone)
    elif len(first) == len(old_start):
        lasts = rules.length(old_start, old_end)
        last = (datetime.fromisoformat(first) + lasts).date().isoformat() if len(first) == 10 else utc_text(datetime.fromisoformat(first) + lasts)
    else:
        last = _default_end(first, len(first) == 10, ctx)
    if all_day and len(first) > 10:
        first, last = normal_day(first, _default_end(first, True, ctx), True, ctx)
    first, last = normal_day(first, last, all_day, ctx)
    check_order(first, last)
    return first, last, zone


def _set_times(ctx: Context, row: Row, target: Target, reach: Scope, first: str, last: str, zone: ZoneInfo, timezone: str | None) -> Row:
    """Give the row, one event or a series, the times that the target's occurrence shall have."""
    if row["recurrence"] is None:
        return ctx.db.update("calendar.events", row["id"], start=first, end=last, all_day=len(first) == 10, timezone=timezone, updated_at=ctx.now_text)
    old = keep(ctx, row["start"])
    if len(old) != len(first):
        raise ToolError("conflict", "a series cannot turn from times to whole days or back", "end this series and add a new event")
    if reach == "all" and (target.first or target.event["recurring_event_id"]):  # the occurrence's move is the series' move
        shift = rules.wall(first, zone) - rules.wall(occurrence_times(ctx, target)[0], zone_of(ctx, row))
        lasts = rules.length(first, last)
        first = rules.stored(rules.wall(old, zone_of(ctx, row)) + shift, zone, len(first) == 10)
        last = (datetime.fromisoformat(first) + lasts).date().isoformat() if len(first) == 10 else utc_text(datetime.fromisoformat(first) + lasts)
    return move_series(ctx, row, first, last, zone, timezone)


def _set_rule(ctx: Context, row: Row, recurrence: str) -> Row:
    """Another rule for an event or a series; the changed occurrences that it no longer gives go."""
    start = keep(ctx, row["start"])
    rule = checked_rule(recurrence, rules.wall(start, zone_of(ctx, row))) if recurrence.strip() else None
    for changed in ctx.db.rows("calendar.events", "recurring_event_id = ?", (row["id"],)):
        at = keep(ctx, changed["original_start"])
        if rule is None or at not in {s for s, _ in rules.spans(rule, start, keep(ctx, row["end"]), zone_of(ctx, row), at, at)}:
            drop_event(ctx, changed)
    return ctx.db.update("calendar.events", row["id"], recurrence=rule, exdates=row["exdates"] if rule else [], updated_at=ctx.now_text)


@tool("calendar", idempotent=True, aliases=("calendar_move_event",))
def reschedule_event(
    ctx: Context,
    event_id: EventId,
    start: Annotated[When, f"new start: {_WHEN}"],
    message: Annotated[Text, "a line to the attendees"] = "",
    scope: Reach = None,
    only_if_free: Annotated[bool, "refuse when an attendee who did not decline, or you, has something then"] = False,
    notify: Notify = True,
) -> Row:
    """Move an event to another start; its length stays, attendees get a mail. The answer names everybody's conflicts at the new time."""
    target = find(ctx, event_id)
    check_rights(ctx, target.event)
    reach = scope_of(target, scope)
    times = _new_times(ctx, target, start, None, None, None)
    if times is None:
        raise ToolError("invalid", "no new start was given")
    first, last, zone = times
    ids = (target.event["id"], target.event["recurring_event_id"])
    people = [r["email"] for r in ctx.db.rows("calendar.attendees", "event_id IN (?, ?)", ids) if r["response"] != "declined"]
    clashes = conflicts(ctx, [ctx.user.email, *people], first, last, event_id) if len(first) > 10 else []
    if only_if_free and clashes:
        who = "; ".join(f"{c['email']}: {c['title']} ({c['start']})" for c in clashes)
        raise ToolError("conflict", f"not everybody is free then: {who}", "calendar_find_meeting_time gives free slots")
    if (first, last) == occurrence_times(ctx, target):
        return {"event": row_of(ctx, event_id), "scope": reach, "mailed": [], "conflicts": clashes}
    row = _row_for(ctx, target, reach)
    row = _set_times(ctx, row, target, reach, first, last, zone, row["timezone"])
    mailed = mail_guests(ctx, "Updated", row, others(ctx, row["id"]), message) if notify else []
    return {"event": row_of(ctx, row["id"]), "scope": reach, "mailed": mailed, "conflicts": clashes}


@tool("calendar")
def copy_event(
    ctx: Context,
    event_id: EventId,
    start: Annotated[When, f"when the copy starts: {_WHEN}"],
    title: Annotated[Title | None, "another title"] = None,
    with_attendees: Annotated[bool, "invite the same people, by mail"] = False,
) -> Row:
    """A new single event like this one (length, place, description, tags), on your primary calendar, at another time."""
    target = find(ctx, event_id)
    source = row_of(ctx, event_id)
    times = _new_times(ctx, target, start, None, None, None)
    if times is None or is_hidden(source):
        raise ToolError("forbidden", "somebody else's private event cannot be copied")
    event = ctx.db.insert(
        "calendar.events", calendar_id=default_calendar(ctx), title=title or source["title"], description=source["description"], location=source["location"],
        start=times[0], end=times[1], all_day=len(times[0]) == 10, timezone=source["timezone"], visibility=source["visibility"], organizer=ctx.user.email,
        reminders=source["reminders"], created_at=ctx.now_text, updated_at=ctx.now_text,
    )  # fmt: skip
    put_tags(ctx, event["id"], source["tags"])
    mailed = add_guests(ctx, event, [a["email"] for a in source["attendees"]] if with_attendees else [], notify=True)
    return {"event": row_of(ctx, event["id"]), "mailed": mailed}


@tool("calendar", destructive=True, idempotent=True, aliases=("calendar_remove_event",))
def delete_event(
    ctx: Context,
    event_id: EventId,
    scope: Reach = None,
    message: Annotated[Text, "a line to the attendees"] = "",
    notify: Notify = True,
) -> Row:
    """Remove an event, one occurrence, or the rest of a series, with its attendees and tags; attendees of what is still to come get a cancellation by mail."""
    target = find(ctx, event_id)
    check_rights(ctx, target.event)
    reach = scope_of(target, scope)
    shown = row_of(ctx, event_id)
    master, first = series_of(ctx, target)
    holder = target.event["id"] if ctx.db.count("calendar.attendees", "event_id = ?", (target.event["id"],)) else master["id"]
    upcoming = shown["end"] > ctx.now.astimezone(ctx.zone).isoformat() or (reach != "this" and master["recurrence"] is not None)
    mailed = mail_guests(ctx, "Cancelled", shown, others(ctx, holder), message) if notify and upcoming else []
    if master["recurrence"] is None or reach == "all":
        drop_event(ctx, master)
    elif reach == "this":
        skip(ctx, master, first)
    else:
        drop_event(ctx, split(ctx, master, first))
    return {"deleted": shown, "scope": reach, "mailed": mailed}


@tool("calendar", destructive=True, idempotent=True)
def cancel_event(
    ctx: Context,
    event_id: EventId,
    scope: Reach = None,
    message: Annotated[Text, "why, to the attendees"] = "",
    notify: Notify = True,
) -> Row:
    """Call an event off but keep it on record (status cancelled); attendees get a cancellation by mail."""
    target = find(ctx, event_id)
    check_rights(ctx, target.event)
    row = _row_for(ctx, target, scope_of(target, scope))
    if row["status"] == "cancelled":
        return {"event": row_of(ctx, row["id"]), "mailed": []}
    row = set_fields(ctx, row, {"status": "cancelled"})
    mailed = mail_guests(ctx, "Cancelled", row, others(ctx, row["id"]), message) if notify else []
    return {"event": row_of(ctx, row["id"]), "mailed": mailed}
