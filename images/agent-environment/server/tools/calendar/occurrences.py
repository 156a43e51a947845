"""Events as they happen: single ones, every repetition of a series, and occurrences that were moved away from their series.

An occurrence of a series has the id `<event id>@<start that the rule gives it>`. A changed one is a row of its own that names
the series and that start; when nobody and nothing is attached to that row, the series' attendees and tags count for it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ...registry import Context
from ...store import Row, ToolError, decode, show_time, stored_time, table, utc_text
from . import rules

_EVENTS = table("calendar.events")
_SELECT = (
    "SELECT e.*, c.timezone AS _zone, c.owner AS _owner, c.is_primary AS _primary"
    " FROM calendar_events e JOIN calendar_calendars c ON c.id = e.calendar_id WHERE "
)
_REACHES = 'e.start < ? AND (e.recurrence IS NOT NULL OR e."end" >= ?)'
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
def _shown(raw: sqlite3.Row, zone: ZoneInfo) -> tuple[Row, ZoneInfo, str, bool]:
    """(row as shown, the event's zone, the calendar's owner, whether the calendar is shared); never to be changed in place."""
    row = decode(_EVENTS, raw, zone)
    named, owner, primary = row.pop("_zone"), row.pop("_owner"), row.pop("_primary")
    return row, zone_named(row["timezone"] or named) if row["timezone"] or named else zone, owner, not primary


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


def happening(ctx: Context, start: str, end: str, where: str = VISIBLE, params: Sequence[Any] | None = None, *, cancelled: bool = False) -> list[Occurrence]:
    """Every occurrence that overlaps the stored instants [start, end) of the events that `where` selects, earliest first.

    `where` is SQL over events `e` and their calendars `c`.
    """
    check_window(ctx, start, end)
    params = [ctx.user.email] * 4 if params is None else params
    sql = f"{_SELECT}{_REACHES} AND {where}{'' if cancelled else _NOT_CANCELLED}"
    found: list[Occurrence] = []
    moved: dict[str, set[str]] | None = None
    for raw in ctx.db.connection.execute(sql, (_day_after(end), _day_before(start), *params)):
        row, zone, owner, shared = _shown(raw, ctx.zone)
        if raw["recurrence"] is None:
            begin, finish = bounds(raw["start"], raw["end"], ctx.zone)
            if begin < end and finish > start:
                found.append(Occurrence(begin, finish, row, row["recurring_event_id"] or row["id"], owner, shared))
            continue
        if moved is None:
            moved = _moved(ctx)
        gone = moved.get(raw["id"], set()) | skipped(raw["exdates"], ctx.zone)
        for first, last in rules.spans(raw["recurrence"], raw["start"], raw["end"], zone, start, end):
            begin, finish = bounds(first, last, ctx.zone)
            if begin < end and finish > start and not (gone and is_skipped(first, gone, zone)):
                found.append(Occurrence(begin, finish, _repeated(row, first, last, ctx.zone), row["id"], owner, shared))
    found.sort(key=_by_time)
    return found


_NOT_CANCELLED = " AND e.status != 'cancelled'"


def _by_time(occurrence: Occurrence) -> tuple[str, str, str]:
    return occurrence.start, occurrence.end, occurrence.row["id"]


@lru_cache(maxsize=1024)
def _day_after(stored: str) -> str:
    return utc_text(datetime.fromisoformat(stored) + timedelta(days=1))


@lru_cache(maxsize=1024)
def _day_before(stored: str) -> str:
    return utc_text(datetime.fromisoformat(stored) - timedelta(days=1))[:10]


def _moved(ctx: Context) -> dict[str, set[str]]:
    """Per series, the starts of the occurrences that have a row of their own."""
    found: dict[str, set[str]] = {}
    for row in ctx.db.connection.execute("SELECT recurring_event_id, original_start FROM calendar_events WHERE recurring_event_id IS NOT NULL"):
        found.setdefault(row[0], set()).add(row[1])
    return found


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


def attendees_of(ctx: Context, ids: Iterable[str]) -> dict[str, list[Row]]:
    """{event id: [{email, name, response, optional}]} for rows of `events`."""
    wanted = tuple(dict.fromkeys(ids))
    marks = ",".join("?" * len(wanted))
    cursor = ctx.db.connection.cursor()
    cursor.row_factory = None
    found: dict[str, list[Row]] = {}
    sql = f"SELECT event_id, email, name, response, optional FROM calendar_attendees WHERE event_id IN ({marks}) ORDER BY id"
    for event_id, email, name, response, optional in cursor.execute(sql, wanted):
        found.setdefault(event_id, []).append({"email": email, "name": name, "response": response, "optional": bool(optional)})
    return found


def tags_of(ctx: Context, ids: Iterable[str]) -> dict[str, list[str]]:
    """{event id: [tag names]}."""
    wanted = tuple(dict.fromkeys(ids))
    found: dict[str, list[str]] = {}
    sql = f"SELECT event_id, name FROM calendar_tags WHERE event_id IN ({','.join('?' * len(wanted))}) ORDER BY name, id"
    for event_id, name in ctx.db.connection.execute(sql, wanted):
        found.setdefault(event_id, []).append(name)
    return found


def complete(ctx: Context, occurrences: Sequence[Occurrence]) -> list[Row]:
    """The rows of these occurrences with `attendees` and `tags`; other people's private events show their time only."""
    ids = [i for o in occurrences for i in (o.row["id"], o.master)]
    attendees, tags, me = attendees_of(ctx, ids), tags_of(ctx, ids), ctx.user.email.lower()
    rows = []
    for o in occurrences:
        people = attendees.get(o.row["id"]) or attendees.get(o.master) or []
        row = {**o.row, "attendees": people, "tags": tags.get(o.row["id"]) or tags.get(o.master) or []}
        if row["visibility"] == "private" and me not in (o.owner.lower(), row["organizer"].lower()) and all(p["email"].lower() != me for p in people):
            row.update(title="Busy", description="", location="", attendees=[], tags=[], reminders=[])
        rows.append(row)
    return rows
