"""Who is free when: free/busy by e-mail address, free slots for several people, conflicts of a time."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

from _server.store import Row
from _server.times import utc_text
from msgspec import Meta

from ...lookup import Name
from ...registry import Context, Time, tool
from ...store import ToolError
from .occurrences import CONCERNS, Occurrence, complete, happening
from .series import find, occurrence_times
from .viewing import merged

Emails = Annotated[list[str], Meta(min_length=1, max_length=50), "e-mail addresses"]
Clock = Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
People = Annotated[list[str], Meta(max_length=50)]


class Busy(NamedTuple):
    """A stretch of somebody's time: stored instants, `busy` or `tentative`, and the row behind it."""

    start: str
    end: str
    status: str
    event: Row


def busy(ctx: Context, email: str, start: str, end: str, *, all_day: bool = True) -> list[Busy]:
    """What takes a person's time: events on their calendars or theirs, and those they accepted (or may attend: tentative)."""
    found = happening(ctx, start, end, CONCERNS, [email] * 4)
    times = []
    for o, row in zip(found, complete(ctx, _unhidden(found)), strict=True):
        status = _status(o, row, email.lower())
        if status and (all_day or len(row["start"]) > 10):
            times.append(Busy(o.start, o.end, status, _for_others(ctx, o, row)))
    return times


def _unhidden(found: Sequence[Occurrence]) -> list[Occurrence]:
    """The same with every event public, so that attendees can be read; what is shown is masked by _for_others."""
    return [o._replace(row={**o.row, "visibility": "default"}) for o in found]


def _for_others(ctx: Context, o: Occurrence, row: Row) -> Row:
    """{id, title, start, end} of an event; other people's private ones have the title Busy."""
    seen = {o.owner.lower(), row["organizer"].lower(), *(a["email"].lower() for a in row["attendees"])}
    hidden = o.row["visibility"] == "private" and ctx.user.email.lower() not in seen
    return {"id": row["id"], "title": "Busy" if hidden else row["title"], "start": row["start"], "end": row["end"]}


def _status(o: Occurrence, row: Row, email: str) -> str | None:
    response = next((a["response"] for a in row["attendees"] if a["email"].lower() == email), None)
    belongs = email in (o.owner.lower(), row["organizer"].lower())
    if response == "declined" or (response == "needsAction" and not belongs):
        return None
    return "tentative" if response == "tentative" or row["status"] == "tentative" else "busy"


def _shown(ctx: Context, start: str, end: str) -> Row:
    return {"start": ctx.local(start).isoformat(), "end": ctx.local(end).isoformat()}


@tool("calendar", read_only=True, aliases=("calendar_query_free_busy",))
def get_free_busy(
    ctx: Context,
    emails: Emails,
    start: Annotated[Time, "from when"],
    end: Annotated[Time, "until when"],
) -> Row:
    """Per person: when they are busy or tentative, and when they are free, between two times.

    Counted: every event on a calendar they own or that they organize, and invitations they accepted; not what they declined or did not answer.
    """
    owners = {r["owner"].lower() for r in ctx.db.rows("calendar.calendars")}
    people = []
    for email in dict.fromkeys(emails):
        times = busy(ctx, email, start, end)
        person: Row = {
            "email": email,
            "has_calendar": email.lower() in owners,
            "busy": [{**_shown(ctx, b.start, b.end), "status": b.status, "event_id": b.event["id"], "title": b.event["title"]} for b in times],
            "free": [_shown(ctx, a, b) for a, b in gaps([(b.start, b.end) for b in times], start, end)],
        }
        if not person["has_calendar"]:
            near = difflib.get_close_matches(email.lower(), sorted(owners), n=3, cutoff=0.7)
            person["note"] = "no calendar of theirs is known here" + (f"; near: {', '.join(near)}" if near else "")
        people.append(person)
    return {"start": ctx.local(start).isoformat(), "end": ctx.local(end).isoformat(), "people": people}


def gaps(spans: list[tuple[str, str]], start: str, end: str) -> list[tuple[str, str]]:
    """What `spans` leave free between two stored instants."""
    free, at = [], start
    for begin, finish in merged(spans):
        if begin > at:
            free.append((at, min(begin, end)))
        at = max(at, finish)
    return [*free, (at, end)] if at < end else free


@tool("calendar", read_only=True, aliases=("calendar_suggest_time", "calendar_find_free_slots"))
def find_meeting_time(
    ctx: Context,
    attendees: Emails,
    duration_minutes: Annotated[int, Meta(ge=5, le=720), "how long the meeting takes"],
    start: Annotated[Time | None, "not before this; now when left out"] = None,
    end: Annotated[Time | None, "over by this; 7 days after the start when left out"] = None,
    work_start: Annotated[Clock, "earliest time of day, HH:MM in your zone"] = "09:00",
    work_end: Annotated[Clock, "latest time of day to end, HH:MM in your zone"] = "17:00",
    include_me: Annotated[bool, "you must be free too"] = True,
    weekends: Annotated[bool, "allow Saturday and Sunday"] = False,
    tentative_is_free: Annotated[bool, "ignore what people attend only tentatively"] = False,
    ignore_all_day: Annotated[bool, "ignore all-day events"] = False,
    step_minutes: Annotated[int, Meta(ge=5, le=120), "try a start every so many minutes of the hour"] = 30,
    limit: Annotated[int, Meta(ge=1, le=50), "how many slots at the most"] = 5,
) -> Row:
    """The earliest slots in working hours in which everybody is free; when there is none, whose time stands in the way most."""
    begin = start or ctx.now_text
    until = end or utc_text(datetime.fromisoformat(begin) + timedelta(days=7))
    if datetime.fromisoformat(until) - datetime.fromisoformat(begin) > timedelta(days=92):
        raise ToolError("invalid", "free slots can be looked for in 92 days at once", "give a nearer end")
    emails = list(dict.fromkeys([*(attendees), *([ctx.user.email] if include_me else [])]))
    taken = {e: _taken(ctx, e, begin, until, tentative_is_free, not ignore_all_day) for e in emails}
    slots: list[Row] = []
    blocked = dict.fromkeys(emails, 0)
    for first, last in _starts(ctx, begin, until, duration_minutes, step_minutes, (work_start, work_end), weekends):
        blockers = [e for e in emails if any(a < last and b > first for a, b in taken[e])]
        for email in blockers:
            blocked[email] += 1
        if not blockers:
            slots.append(_shown(ctx, first, last))
        if len(slots) == limit:
            break
    answer: Row = {"slots": slots, "attendees": emails, "duration_minutes": duration_minutes}
    if not slots:
        answer["blocked_by"] = [{"email": e, "slots": n} for e, n in sorted(blocked.items(), key=lambda i: (-i[1], i[0])) if n]
    return answer


def _taken(ctx: Context, email: str, start: str, end: str, tentative_is_free: bool, all_day: bool) -> list[tuple[str, str]]:
    times = busy(ctx, email, start, end, all_day=all_day)
    return merged([(b.start, b.end) for b in times if b.status == "busy" or not tentative_is_free])


def _starts(ctx: Context, begin: str, until: str, minutes: int, step: int, hours: tuple[str, str], weekends: bool) -> Iterable[tuple[str, str]]:
    """Stored (start, end) of every slot to try: on the step's minutes of each working day."""
    day, last_day = ctx.local(begin).date(), ctx.local(until).date()
    while day <= last_day:
        if weekends or day.weekday() < 5:
            opens, closes = (datetime.fromisoformat(f"{day}T{clock}:00") for clock in hours)
            at = opens
            while at + timedelta(minutes=minutes) <= closes:
                start = at.replace(tzinfo=ctx.zone)
                pair = utc_text(start), utc_text(at.replace(tzinfo=ctx.zone) + timedelta(minutes=minutes))
                if pair[0] >= begin and pair[1] <= until:
                    yield pair
                at += timedelta(minutes=step)
        day += timedelta(days=1)


def conflicts(ctx: Context, emails: Iterable[str], start: str, end: str, ignore: str | None = None) -> list[Row]:
    """What those people already have in a stretch of time: {email, event_id, title, start, end, status}."""
    found = []
    for email in dict.fromkeys(emails):
        for b in busy(ctx, email, start, end):
            if ignore is None or b.event["id"].partition("@")[0] != ignore.partition("@")[0]:
                found.append({"email": email, "event_id": b.event["id"], **{k: b.event[k] for k in ("title", "start", "end")}, "status": b.status})
    return found


@tool("calendar", read_only=True)
def check_conflicts(
    ctx: Context,
    event_id: Annotated[Name | None, "an event or occurrence: its time, its attendees"] = None,
    start: Annotated[Time | None, "start of a planned time (instead of, or moving, event_id)"] = None,
    end: Annotated[Time | None, "end of a planned time"] = None,
    attendees: Annotated[People | None, "e-mail addresses to look at; the event's attendees, else you, when left out"] = None,
) -> Row:
    """What stands against a time: everything that you or those people already have then. The event itself does not count."""
    people = attendees
    if event_id is not None:
        target = find(ctx, event_id)
        begin, finish = (ctx.local(time) for time in occurrence_times(ctx, target))
        rows = ctx.db.rows("calendar.attendees", "event_id IN (?, ?)", (target.event["id"], target.event["recurring_event_id"]))
        people = people or [target.event["organizer"], *(r["email"] for r in rows if r["response"] != "declined")]
        start, end = _moved(start, end, begin, finish)
    if start is None or end is None:
        raise ToolError("invalid", "which time is meant is not clear", "give event_id, or start and end")
    found = conflicts(ctx, people or [ctx.user.email], start, end, event_id)
    return {**_shown(ctx, start, end), "attendees": list(dict.fromkeys(people or [ctx.user.email])), "conflicts": found, "is_free": not found}


def _moved(start: Time | None, end: Time | None, begin: datetime, finish: datetime) -> tuple[Time, Time]:
    """The planned time of an event that has one: what was not given stays, the length too."""
    first = start or Time(utc_text(begin))
    return first, end or Time(utc_text(datetime.fromisoformat(first) + (finish - begin)))
