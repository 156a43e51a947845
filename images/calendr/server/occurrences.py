"""What happens when: events and the occurrences of series between two days, as the signed-in person sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from _server import recurrence
from _server.faults import Fault
from _server.store import Row
from _server.times import stored_time, utc_text
from _web.pages import Page
from _web.store import Db

from .who import BUSY, Who, who


@dataclass(frozen=True, slots=True)
class Occurrence:
    """`event` is the row: a single event, a series, or a changed occurrence. `day` is what the rule gives (series only). Times are in the viewer's zone."""

    event: Row
    ref: str
    start: datetime
    end: datetime
    all_day: bool
    day: date | None = None

    @property
    def first_day(self) -> date:
        return self.start.date()

    @property
    def last_day(self) -> date:
        """The last day it touches."""
        return max(self.start.date(), (self.end - timedelta(microseconds=1)).date())

    @property
    def is_series(self) -> bool:
        return bool(self.event["recurrence"]) or self.event["recurring_event_id"] is not None


@dataclass(frozen=True, slots=True)
class Seen:
    """An occurrence as the viewer sees it: what may be known of it, its color, its guests and the viewer's own answer."""

    what: Occurrence
    title: str
    color: str
    hidden: bool
    can_edit: bool
    response: str | None
    guests: list[Row]

    @property
    def ref(self) -> str:
        return self.what.ref

    @property
    def faded(self) -> bool:
        """Shown lighter: declined."""
        return self.response == "declined"

    @property
    def unanswered(self) -> bool:
        return self.response == "needs_action"


def zone_of(event: Row, db: Db) -> ZoneInfo:
    """The zone in which an event repeats."""
    return ZoneInfo(event["timezone"]) if event["timezone"] else db.zone


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """When a day begins."""
    return datetime.combine(day, time(), zone)


def moments(start: str, end: str, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Stored (or shown) start and end in a viewer's zone; days are days there too."""
    if len(start) == 10:
        first, after = date.fromisoformat(start), date.fromisoformat(end)
        return midnight(first, zone), midnight(max(after, first + timedelta(days=1)), zone)
    return datetime.fromisoformat(start).astimezone(zone), datetime.fromisoformat(end).astimezone(zone)


def series_day(original: str, zone: ZoneInfo) -> date:
    """The day of the series' zone that an occurrence's first start falls on."""
    return recurrence.wall(original, zone).date()


def all_events(db: Db) -> list[Row]:
    """Every event's row."""
    return db.remembered("events", lambda: db.rows("events"))


def guests_of(db: Db) -> dict[str, list[Row]]:
    """Guests by event."""
    return db.remembered("guests", lambda: _by_event(db.rows("guests")))


def _by_event(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["event_id"], []).append(row)
    return found


def _moved(db: Db) -> dict[str, set[date]]:
    """The days of each series that are rows of their own."""

    def make() -> dict[str, set[date]]:
        rows = {e["id"]: e for e in all_events(db)}
        found: dict[str, set[date]] = {}
        for event in rows.values():
            series = rows.get(event["recurring_event_id"] or "")
            if series is not None and event["original_start"]:
                found.setdefault(series["id"], set()).add(series_day(event["original_start"], zone_of(series, db)))
        return found

    return db.remembered("moved", make)


def expand(db: Db, events: Iterable[Row], first: date, after: date, zone: ZoneInfo) -> Iterator[Occurrence]:
    """Every occurrence of these events that touches the days from `first` up to `after`."""
    begin, finish = midnight(first, zone), midnight(after, zone)
    window = utc_text(begin), utc_text(finish)
    for event in events:
        if event["recurrence"]:
            found: Iterable[Occurrence] = _repeated(db, event, zone, window)
        else:
            found = [Occurrence(event, event["id"], *moments(event["start"], event["end"], zone), event["all_day"])]
        yield from (o for o in found if o.start < finish and (o.end > begin or o.start == o.end >= begin))


def _repeated(db: Db, event: Row, zone: ZoneInfo, window: tuple[str, str]) -> Iterator[Occurrence]:
    own = zone_of(event, db)
    gone = _moved(db).get(event["id"], set()) | {date.fromisoformat(d[:10]) for d in event["exdates"]}
    start, end = stored_time(event["start"], db.zone), stored_time(event["end"], db.zone)
    for begins, ends in recurrence.spans(event["recurrence"], start, end, own, *window):
        day = series_day(begins, own)
        if day not in gone:
            yield Occurrence(event, f"{event['id']}_{day.isoformat()}", *moments(begins, ends, zone), event["all_day"], day)


def find(page: Page, ref: str) -> Occurrence:
    """What a REF of an address names; a series' own id is its first occurrence. Fault 404."""
    event_id, _, day = ref.partition("_")
    viewer = who(page)
    event = page.db.get("events", event_id)
    if not event["recurrence"]:
        return Occurrence(event, event_id, *moments(event["start"], event["end"], viewer.zone), event["all_day"])
    own = zone_of(event, page.db)
    start = series_day(stored_time(event["start"], page.db.zone), own)
    try:
        wanted = date.fromisoformat(day) if day else None
    except ValueError:
        wanted = start - timedelta(days=1)
    span = (wanted - timedelta(days=2), wanted + timedelta(days=3)) if wanted else (start - timedelta(days=1), start + timedelta(days=400))
    for found in expand(page.db, [event], *span, viewer.zone):
        if wanted is None or found.day == wanted:
            return found
    raise Fault(404, "NotFound", f"“{event['title']}” has no occurrence on {day}.", "It may have been moved or deleted.")


def seen(page: Page, what: Occurrence) -> Seen | None:
    """An occurrence as the viewer sees it; None when they may not know of it."""
    return _seen(who(page), what, guests_of(page.db).get(what.event["id"], []))


def _seen(viewer: Who, what: Occurrence, guests: list[Row]) -> Seen | None:
    event = what.event
    role = viewer.roles.get(event["calendar_id"])
    mine = next((g for g in guests if g["email"].lower() == viewer.me["email"].lower()), None)
    if role is None and mine is None:
        return None
    known = mine is not None or event["organizer_id"] == viewer.me["id"] or (role != BUSY and (event["visibility"] != "private" or role == "owner"))
    calendar = viewer.calendars.get(event["calendar_id"]) or viewer.primary
    color = event["color"] or calendar["color"]
    title = (event["title"] or "(no title)") if known else "Busy"
    response = mine["response"] if mine and event["organizer_id"] != viewer.me["id"] else None
    return Seen(what, title, color, not known, known and viewer.can_edit(event["calendar_id"]), response, guests if known else [])


def between(page: Page, first: date, after: date, *, shown_only: bool = True, among: frozenset[str] | None = None) -> list[Seen]:
    """What the viewer sees from `first` up to `after`, by time; with `shown_only` in the calendars that are switched on, of the events `among` these ids."""
    key = ("between", first, after, shown_only, among)
    return page.db.remembered(key, lambda: _between(page, first, after, shown_only, among))


def _between(page: Page, first: date, after: date, shown_only: bool, among: frozenset[str] | None) -> list[Seen]:
    viewer, guests = who(page), guests_of(page.db)
    my_events = {event for event, rows in guests.items() if any(g["email"].lower() == viewer.me["email"].lower() for g in rows)}

    def wanted(event: Row) -> bool:
        if among is not None and event["id"] not in among:
            return False
        calendar = viewer.calendars.get(event["calendar_id"]) or (viewer.primary if event["id"] in my_events else None)
        return calendar is not None and (calendar["is_visible"] or not shown_only)

    found = []
    for what in expand(page.db, [e for e in all_events(page.db) if wanted(e)], first, after, viewer.zone):
        as_seen = _seen(viewer, what, guests.get(what.event["id"], []))
        if as_seen and (viewer.settings["show_declined"] or not as_seen.faded or not shown_only):
            found.append(as_seen)
    return sorted(found, key=lambda s: (s.what.start, not s.what.all_day, -(s.what.end - s.what.start).total_seconds(), s.what.ref))


def busy(page: Page, email: str, first: date, after: date) -> list[tuple[datetime, datetime, str]]:
    """When a person is taken: (start, end, what may be known of it), by time. Everybody in the house may know when, not what."""
    viewer, guests = who(page), guests_of(page.db)
    person = viewer.by_email.get(email.lower())

    def takes(event: Row) -> bool:
        answer = next((g["response"] for g in guests.get(event["id"], []) if g["email"].lower() == email.lower()), None)
        # Who organizes comes, in whatever calendar it stands.
        organizes = person is not None and event["organizer_id"] == person["id"]
        return event["show_as"] == "busy" and answer != "declined" and (answer is not None or organizes)

    found = []
    for what in expand(page.db, [e for e in all_events(page.db) if takes(e)], first, after, viewer.zone):
        as_seen = _seen(viewer, what, guests.get(what.event["id"], []))
        found.append((what.start, what.end, as_seen.title if as_seen else "Busy"))
    return sorted(found)
