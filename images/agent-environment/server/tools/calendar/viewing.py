"""Looking at the calendar: lists, search, one day's agenda, where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from _server import recurrence as rules
from _server.store import Row
from _server.times import utc_text
from msgspec import Meta

from ...lookup import Cursor, Limit, Name
from ...registry import Context, Day, Time, page, tool
from ...store import ToolError
from .occurrences import CONCERNS, INVITED, VISIBLE, Occurrence, complete, happening, instance_id, is_skipped
from .series import find, keep, occurrence_times, series_of, skipped_in, zone_of

EventId = Annotated[str, Meta(min_length=1, max_length=200), "an event's id, or one occurrence's: <event id>@<its start>"]
CalendarId = Annotated[Name | None, "only this calendar, by id (also a colleague's)"]
_LIKE = "(e.title LIKE ? ESCAPE '\\' OR e.description LIKE ? ESCAPE '\\' OR e.location LIKE ? ESCAPE '\\')"
_TAGGED = (
    "(e.id IN (SELECT event_id FROM calendar_tags WHERE name = ? COLLATE NOCASE) OR (e.recurring_event_id IN"
    " (SELECT event_id FROM calendar_tags WHERE name = ? COLLATE NOCASE) AND e.id NOT IN (SELECT event_id FROM calendar_tags)))"
)
_NOT_HIDDEN = f"(e.visibility != 'private' OR {CONCERNS})"


def _filters(ctx: Context, calendar_id: str | None, query: str | None, attendee: str | None, tag: str | None) -> tuple[str, list[Any]]:
    """SQL over events `e` and calendars `c`, and its parameters."""
    me = [ctx.user.email] * 4
    where, params = [VISIBLE], list(me)
    if calendar_id is not None:
        where, params = ["e.calendar_id = ?"], [ctx.db.get("calendar.calendars", calendar_id)["id"]]
    if query or attendee or tag:
        where.append(_NOT_HIDDEN)
        params += me
    for word in (query or "").split():
        where.append(_LIKE)
        params += [f"%{_escaped(word)}%"] * 3
    if attendee:
        where.append(f"(e.organizer = ? COLLATE NOCASE OR {INVITED})")
        params += [attendee] * 3
    if tag:
        where.append(_TAGGED)
        params += [tag] * 2
    return " AND ".join(where), params


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _page(ctx: Context, found: Sequence[Occurrence], limit: int, cursor: str | None) -> Row:
    answer = page(list(found), limit, cursor, "events")
    answer["events"] = complete(ctx, answer["events"])
    return answer


@tool("calendar", read_only=True, aliases=("calendar_get_events", "calendar_list_events", "get_calendar_events"))
def get_calendar_events(
    ctx: Context,
    start: Annotated[Time | None, "only what ends after this; now when left out"] = None,
    end: Annotated[Time | None, "only what starts before this; 7 days after the start when left out"] = None,
    calendar_id: CalendarId = None,
    query: Annotated[Name | None, "words that must all occur in title, description or location"] = None,
    attendee: Annotated[Name | None, "only events that this e-mail address attends or organizes"] = None,
    tag: Annotated[Name | None, "only events with this tag"] = None,
    include_cancelled: Annotated[bool, "show cancelled events too"] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """List what happens between two times, earliest first, every occurrence of a recurring event by itself.

    Shows your own calendars, shared ones (nobody's primary calendar) and what you are invited to, unless calendar_id names one.
    """
    begin = start or ctx.now_text
    until = end or utc_text(datetime.fromisoformat(begin) + timedelta(days=7))
    where, params = _filters(ctx, calendar_id, query, attendee, tag)
    return _page(ctx, happening(ctx, begin, until, where, params, cancelled=include_cancelled), limit, cursor)


@tool("calendar", read_only=True, aliases=("calendar_search", "search_calendar_events"))
def search_events(
    ctx: Context,
    query: Annotated[str, Meta(min_length=1, max_length=200), "words that must all occur in title, description or location"],
    start: Annotated[Time | None, "only what ends after this; a year ago when left out"] = None,
    end: Annotated[Time | None, "only what starts before this; a year ahead when left out"] = None,
    calendar_id: CalendarId = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Find events by words, past and future. A recurring event counts once: as its next occurrence, or its last when it is over."""
    where, params = _filters(ctx, calendar_id, query, None, None)
    begin = start or utc_text(ctx.now - timedelta(days=365))
    until = end or utc_text(ctx.now + timedelta(days=365))
    chosen: dict[str, Occurrence] = {}
    for o in happening(ctx, begin, until, where, params):
        key = o.row["id"].rpartition("@")[0] or o.row["id"]
        if key not in chosen or chosen[key].end <= ctx.now_text:
            chosen[key] = o
    return _page(ctx, sorted(chosen.values(), key=lambda o: (o.start, o.row["id"])), limit, cursor)


@tool("calendar", read_only=True)
def get_event(ctx: Context, event_id: EventId) -> Row:
    """One event whole: attendees, tags, and for a recurring one its rule and what was changed or left out."""
    target = find(ctx, event_id)
    row = row_of(ctx, event_id)
    series, _ = series_of(ctx, target)
    if series["recurrence"]:
        changed = ctx.db.rows("calendar.events", "recurring_event_id = ?", (series["id"],), order="original_start")
        names = ("id", "title", "start", "end", "status", "original_start")
        row["series"] = {
            "id": series["id"], "recurrence": series["recurrence"], "timezone": zone_of(ctx, series).key, "exdates": series["exdates"],
            "changed_occurrences": [{n: c[n] for n in names} for c in changed] if not is_hidden(row) else [],
        }  # fmt: skip
    return row


def row_of(ctx: Context, event_id: str) -> Row:
    """An event or occurrence as the lists show it, with attendees and tags."""
    target = find(ctx, event_id)
    calendar = ctx.db.get("calendar.calendars", target.event["calendar_id"])
    start, end = occurrence_times(ctx, target)
    row, series = target.event, series_of(ctx, target)[0]
    if target.first is not None:
        times = {"start": ctx.local(start).isoformat(), "end": ctx.local(end).isoformat()} if len(start) > 10 else {"start": start, "end": end}
        row = {**row, **times, "id": event_id, "recurrence": None, "exdates": [], "recurring_event_id": row["id"], "original_start": times["start"]}
    return complete(ctx, [Occurrence(start, end, row, series["id"], calendar["owner"], not calendar["is_primary"])])[0]


def is_hidden(row: Row) -> bool:
    """Whether `row_of` has masked somebody else's private event."""
    return bool(row["visibility"] == "private" and row["title"] == "Busy")


@tool("calendar", read_only=True, aliases=("calendar_get_event_instances",))
def list_occurrences(
    ctx: Context,
    event_id: EventId,
    start: Annotated[Time | None, "only occurrences at or after this; now when left out"] = None,
    limit: Annotated[int, Meta(ge=1, le=100), "how many at the most"] = 10,
) -> Row:
    """The coming occurrences of a recurring event, with those that were moved, changed or cancelled, and the dates left out."""
    series, _ = series_of(ctx, find(ctx, event_id))
    if series["recurrence"] is None:
        raise ToolError("invalid", f"{series['title']!r} does not repeat", "use calendar_get_event")
    hidden = is_hidden(row_of(ctx, series["id"]))
    zone, gone = zone_of(ctx, series), skipped_in(ctx, series)
    changed = {keep(ctx, r["original_start"]): r for r in ctx.db.rows("calendar.events", "recurring_event_id = ?", (series["id"],))}
    shown = []
    begin = max(start or ctx.now_text, utc_text(ctx.now - timedelta(days=7300)))
    for first in rules.upcoming(series["recurrence"], keep(ctx, series["start"]), zone, begin, limit + len(gone)):
        if is_skipped(first, gone, zone):
            continue
        row = changed.get(first)
        name = row["id"] if row else instance_id(series["id"], first, ctx.zone)
        original = first if len(first) == 10 else ctx.local(first).isoformat()
        shown.append(
            {
                "id": name,
                "original_start": original,
                "start": row["start"] if row else original,
                "status": row["status"] if row else series["status"],
                "changed": row is not None,
            }
        )
    title = "Busy" if hidden else series["title"]
    return {
        "event_id": series["id"],
        "title": title,
        "recurrence": series["recurrence"],
        "timezone": zone.key,
        "occurrences": shown[:limit],
        "exdates": series["exdates"],
    }


def local_day(ctx: Context, day: str | None) -> tuple[str, str, str]:
    """(day, its first instant, the next day's first instant) in the universe's zone; today when None."""
    day = str(day or ctx.today)
    midnight = datetime.fromisoformat(day)
    return day, utc_text(midnight.replace(tzinfo=ctx.zone)), utc_text((midnight + timedelta(days=1)).replace(tzinfo=ctx.zone))


def overlaps(found: Sequence[Occurrence]) -> list[tuple[Occurrence, Occurrence]]:
    """Every pair that takes place at the same time; `found` is sorted by start."""
    pairs = []
    for n, first in enumerate(found):
        for second in found[n + 1 :]:
            if second.start >= first.end:
                break
            pairs.append((first, second))
    return pairs


def mine(ctx: Context, start: str, end: str) -> list[Occurrence]:
    """The user's own timed occurrences that they have not declined: on their calendars, organized or invited to."""
    me = ctx.user.email
    found = happening(ctx, start, end, CONCERNS, [me] * 4)
    rows = complete(ctx, found)
    declined = {r["id"] for r in rows if any(a["email"].lower() == me.lower() and a["response"] == "declined" for a in r["attendees"])}
    return [o for o in found if o.row["id"] not in declined and len(o.row["start"]) > 10]


@tool("calendar", read_only=True)
def get_agenda(
    ctx: Context,
    day: Annotated[Day | None, "which day; today when left out"] = None,
    work_start: Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$"), "when the working day starts, HH:MM"] = "09:00",
    work_end: Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$"), "when the working day ends, HH:MM"] = "17:00",
) -> Row:
    """Your day: all-day events, the others in order, what overlaps, the free gaps in working hours and the minutes booked."""
    shown, start, end = local_day(ctx, day)
    found = happening(ctx, start, end)
    timed = mine(ctx, start, end)
    opens, closes = (utc_text(datetime.fromisoformat(f"{shown}T{clock}:00").replace(tzinfo=ctx.zone)) for clock in (work_start, work_end))
    gaps, at = [], opens
    for o in timed:
        if o.start > at and at < closes:
            gaps.append((at, min(o.start, closes)))
        at = max(at, o.end)
    if at < closes:
        gaps.append((at, closes))
    rows = complete(ctx, found)
    return {
        "day": shown,
        "weekday": f"{datetime.fromisoformat(shown):%A}",
        "all_day": [r for r in rows if len(r["start"]) == 10],
        "events": [r for r in rows if len(r["start"]) > 10],
        "overlaps": [[a.row["id"], b.row["id"]] for a, b in overlaps(timed)],
        "free": [{"start": ctx.local(a).isoformat(), "end": ctx.local(b).isoformat(), "minutes": _minutes(a, b)} for a, b in gaps],
        "booked_minutes": sum(_minutes(a, b) for a, b in merged([(max(o.start, start), min(o.end, end)) for o in timed])),
    }


def merged(spans: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Stretches of time joined where they touch; earliest first."""
    joined: list[tuple[str, str]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _minutes(start: str, end: str) -> int:
    return int((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()) // 60


@tool("calendar", read_only=True)
def find_overlaps(
    ctx: Context,
    start: Annotated[Time | None, "from when; now when left out"] = None,
    end: Annotated[Time | None, "until when; 14 days after the start when left out"] = None,
) -> Row:
    """Your double bookings: every two timed events of yours, not declined, that take place at the same time."""
    begin = start or ctx.now_text
    until = end or utc_text(datetime.fromisoformat(begin) + timedelta(days=14))
    pairs = overlaps(mine(ctx, begin, until))
    rows = complete(ctx, [o for pair in pairs for o in pair])
    names = ("id", "title", "start", "end", "status", "organizer")
    found = [
        {"start": ctx.local(max(a.start, b.start)).isoformat(), "end": ctx.local(min(a.end, b.end)).isoformat(),
         "minutes": _minutes(max(a.start, b.start), min(a.end, b.end)), "events": [{k: r[k] for k in names} for r in rows[2 * n : 2 * n + 2]]}
        for n, (a, b) in enumerate(pairs)
    ]  # fmt: skip
    return {"overlaps": found, "total": len(found)}


@tool("calendar", read_only=True)
def summarize_time(
    ctx: Context,
    start: Annotated[Time, "from when"],
    end: Annotated[Time, "until when"],
    by: Annotated[Literal["title", "tag", "calendar", "organizer", "day"], "what to add up"] = "title",
) -> Row:
    """How many minutes your timed, not declined events take, by title, tag, calendar, organizer or day; clipped to the range."""
    found = mine(ctx, start, end)
    sums: dict[str, list[int]] = {}
    for o, row in zip(found, complete(ctx, found), strict=True):
        keys = {
            "title": [row["title"]],
            "tag": row["tags"] or ["(no tag)"],
            "calendar": [row["calendar_id"]],
            "organizer": [row["organizer"]],
            "day": [row["start"][:10]],
        }[by]
        for key in keys:
            entry = sums.setdefault(key, [0, 0])
            entry[0] += _minutes(max(o.start, start), min(o.end, end))
            entry[1] += 1
    ordered = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    total = sum(_minutes(max(o.start, start), min(o.end, end)) for o in found)
    return {
        "by": by,
        "sums": [{by: key, "minutes": minutes, "events": count} for key, (minutes, count) in ordered],
        "total_minutes": total,
        "events": len(found),
    }


@tool("calendar", read_only=True)
def list_calendars(ctx: Context, owner: Annotated[Name | None, "only calendars of this e-mail address"] = None) -> Row:
    """Every calendar you can see, with its owner, zone and whether it is the owner's primary one."""
    rows = ctx.db.rows("calendar.calendars", "owner = ? COLLATE NOCASE", (owner,)) if owner else ctx.db.rows("calendar.calendars")
    return {"calendars": [{**r, "is_yours": r["owner"].lower() == ctx.user.email.lower()} for r in rows], "total": len(rows)}
