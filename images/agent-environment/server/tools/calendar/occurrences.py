"""Events as they happen: single ones, every repetition of a series, and occurrences that were moved away from their series.

An occurrence of a series has the id `<event id>@<start that the rule gives it>`. A changed one is a row of its own that names
the series and that start; when nobody and nothing is attached to that row, the series' attendees and tags count for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from _server import recurrence as rules
from _server.store import Row, decode
from _server.times import show_time, stored_time, utc_text

from ...registry import Context
from ...store import ToolError, table

# Rows come out of SQLite as one JSON text: what is made of it is remembered by that text, and the text is what costs time to fetch.
_EVENTS = table("calendar.events")
_COLUMNS = ("id", *_EVENTS.columns)
_SELECT = (
    "SELECT json_group_array(json_array(" + ", ".join(f'e."{c}"' for c in _COLUMNS) + ", c.timezone, c.owner, c.is_primary))"
    " FROM calendar_events e JOIN calendar_calendars c ON c.id = e.calendar_id WHERE "
)
_REACHES = 'e.start < ? AND (e.recurrence IS NOT NULL OR e."end" >= ?)'
_NOT_CANCELLED = " AND e.status != 'cancelled'"
_MOVED = "SELECT json_group_array(json_array(recurring_event_id, original_start)) FROM calendar_events WHERE recurring_event_id IS NOT NULL"
_ATTENDEES = "SELECT json_group_array(json_array(event_id, email, name, response, optional)) FROM (SELECT * FROM calendar_attendees ORDER BY id)"
_TAGS = "SELECT json_group_array(json_array(event_id, name)) FROM (SELECT * FROM calendar_tags ORDER BY name, id)"
_YEARS = timedelta(days=20 * 366)

# What a person sees without asking for one calendar: their own, those that are nobody's primary one, and what they are invited to.
INVITED = (
    "(e.id IN (SELECT event_id FROM calendar_attendees WHERE email = ? COLLATE NOCASE) OR (e.recurring_event_id IN"
    " (SELECT event_id FROM calendar_attendees WHERE email = ? COLLATE NOCASE) AND e.id NOT IN (SELECT event_id FROM calendar_attendees)))"
)
CONCERNS = f"(c.owner = ? COLLATE NOCASE OR e.organizer = ? COLLATE NOCASE OR {INVITED})"
VISIBLE = f"(c.is_primary = 0 OR {CONCERNS})"


class Occurrence(NamedTuple):
    """One happening: stored instants (an all-day one: midnights of the universe's zone), its row, and the calendar's owner."""

    start: str
    end: str
    row: Row
    master: str
    owner: str
    shared: bool


@lru_cache(maxsize=4096)
def zone_named(name: str) -> ZoneInfo:
    """A zone of the tz database that is known to exist."""
    return ZoneInfo(name)


@lru_cache(maxsize=16384)
def bounds(start: str, end: str, zone: ZoneInfo) -> tuple[str, str]:
    """The stored instants between which an event takes place; days are those of `zone`."""
    if len(start) > 10:
        return start, end
    first = datetime.fromisoformat(start)
    return utc_text(first.replace(tzinfo=zone)), utc_text((first + rules.length(start, end)).replace(tzinfo=zone))


@lru_cache(maxsize=4096)
def skipped(exdates: str, zone: ZoneInfo) -> frozenset[str]:
    """The stored starts (or days) that a series leaves out."""
    return frozenset(stored_time(text, zone) for text in json.loads(exdates))


def check_window(ctx: Context, start: str, end: str) -> None:
    """ToolError invalid for an empty stretch of time, or one far from the clock (a rule without end would be walked that far)."""
    if end <= start:
        raise ToolError("invalid", "the end is not after the start", "give an end that is later than the start")
    if start < utc_text(ctx.now - _YEARS) or end > utc_text(ctx.now + _YEARS):
        raise ToolError("invalid", "the calendar can be seen 20 years back and 20 years ahead", f"now is {ctx.now.astimezone(ctx.zone).isoformat()}")


def happening(
    ctx: Context, start: str, end: str, where: str = VISIBLE, params: Sequence[Any] | None = None, *, cancelled: bool = False
) -> Sequence[Occurrence]:
    """Every occurrence that overlaps the stored instants [start, end) of the events that `where` selects, earliest first.

    `where` is SQL over events `e` and their calendars `c`.
    """
    check_window(ctx, start, end)
    params = [ctx.user.email] * 4 if params is None else params
    sql = f"{_SELECT}{_REACHES} AND {where}{'' if cancelled else _NOT_CANCELLED}"
    return _happening(_text(ctx, sql, (_day_after(end), _day_before(start), *params)), _text(ctx, _MOVED), ctx.zone, start, end)


def _text(ctx: Context, sql: str, params: Sequence[Any] = ()) -> str:
    """What a query for one JSON text gives."""
    return ctx.db.text(sql, params)


@lru_cache(maxsize=256)
def _happening(events: str, moved: str, zone: ZoneInfo, start: str, end: str) -> tuple[Occurrence, ...]:
    changed: dict[str, set[str]] = {}
    for series, original in json.loads(moved):
        changed.setdefault(series, set()).add(original)
    found = []
    for *values, named, owner, primary in json.loads(events):
        raw = dict(zip(_COLUMNS, values, strict=True))
        row = decode(_EVENTS, raw, zone)
        own_zone = zone_named(row["timezone"] or named) if row["timezone"] or named else zone
        for first, last, shown in _times(raw, row, own_zone, zone, changed.get(raw["id"], set()), (start, end)):
            begin, finish = bounds(first, last, zone)
            if begin < end and finish > start:
                found.append(Occurrence(begin, finish, shown, row["recurring_event_id"] or row["id"], owner, not primary))
    return tuple(sorted(found, key=_by_time))


def _times(raw: Row, row: Row, own_zone: ZoneInfo, zone: ZoneInfo, changed: set[str], window: tuple[str, str]) -> Iterator[tuple[str, str, Row]]:
    """Stored start and end, and row, of every occurrence of one row of events that can touch the window."""
    if raw["recurrence"] is None:
        yield raw["start"], raw["end"], row
        return
    gone = changed | skipped(raw["exdates"], zone)
    for first, last in rules.spans(raw["recurrence"], raw["start"], raw["end"], own_zone, *window):
        if not is_skipped(first, gone, own_zone):
            yield first, last, _repeated(row, first, last, zone)


def _by_time(occurrence: Occurrence) -> tuple[str, str, str]:
    return occurrence.start, occurrence.end, occurrence.row["id"]


@lru_cache(maxsize=1024)
def _day_after(stored: str) -> str:
    return utc_text(datetime.fromisoformat(stored) + timedelta(days=1))


@lru_cache(maxsize=1024)
def _day_before(stored: str) -> str:
    return utc_text(datetime.fromisoformat(stored) - timedelta(days=1))[:10]


def is_skipped(first: str, gone: Iterable[str], zone: ZoneInfo) -> bool:
    """Whether an occurrence is left out, by its start or by its day."""
    return first in gone or (len(first) > 10 and rules.wall(first, zone).date().isoformat() in gone)


def instance_id(event_id: str, first: str, zone: ZoneInfo) -> str:
    """The id of the occurrence that the rule starts at `first` (stored)."""
    return f"{event_id}@{show_time(first, zone)}"


def _repeated(row: Row, first: str, last: str, zone: ZoneInfo) -> Row:
    """The row of one occurrence of a series."""
    begin = show_time(first, zone)
    return {
        **row, "id": f"{row['id']}@{begin}", "start": begin, "end": show_time(last, zone), "recurrence": None, "exdates": [],
        "recurring_event_id": row["id"], "original_start": begin,
    }  # fmt: skip


def attendees_of(ctx: Context) -> dict[str, list[Row]]:
    """{event id: [{email, name, response, optional}]}; not to be changed in place."""
    return _attendees(_text(ctx, _ATTENDEES))


@lru_cache(maxsize=256)
def _attendees(text: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for event_id, email, name, response, optional in json.loads(text):
        found.setdefault(event_id, []).append({"email": email, "name": name, "response": response, "optional": bool(optional)})
    return found


def tags_of(ctx: Context) -> dict[str, list[str]]:
    """{event id: [tag names]}; not to be changed in place."""
    return _tags(_text(ctx, _TAGS))


@lru_cache(maxsize=256)
def _tags(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for event_id, name in json.loads(text):
        found.setdefault(event_id, []).append(name)
    return found


def complete(ctx: Context, occurrences: Sequence[Occurrence]) -> list[Row]:
    """The rows of these occurrences with `attendees` and `tags`; other people's private events show their time only."""
    attendees, tags, me = attendees_of(ctx), tags_of(ctx), ctx.user.email.lower()
    rows = []
    for o in occurrences:
        people = attendees.get(o.row["id"]) or attendees.get(o.master) or []
        row = {**o.row, "attendees": people, "tags": tags.get(o.row["id"]) or tags.get(o.master) or []}
        if row["visibility"] == "private" and me not in (o.owner.lower(), row["organizer"].lower()) and all(p["email"].lower() != me for p in people):
            row.update(title="Busy", description="", location="", attendees=[], tags=[], reminders=[])
        rows.append(row)
    return rows
