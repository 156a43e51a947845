"""The other pages: calendars and sharing, people, find a time, search, trash, reminders, notices, settings, keyboard."""

from __future__ import annotations

import re
import zoneinfo
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from _web.faults import Fault
from _web.pages import Page
from _web.store import Row
from starlette.responses import Response

from . import changes
from .layout import Ids
from .occurrences import Seen, between, busy, midnight
from .shell import day_of, today
from .tables import COLORS, TABLES
from .texts import before
from .who import OWNER, who

ROLES = {"busy": "See only busy times", "viewer": "See all details", "editor": "Make changes"}
LENGTHS = (15, 30, 45, 60, 90, 120)
MOST_FOUND = 100


def calendars(page: Page) -> Response:
    """All calendars that the viewer sees."""
    rows = page.db.rows("events", order="start")
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["calendar_id"]] = counts.get(row["calendar_id"], 0) + 1
    return page.render("calendars.html", counts=counts, roles=ROLES)


def new_calendar(page: Page) -> Response:
    """The form of a new calendar."""
    return _calendar_form(page, None, {"name": "", "color": "teal", "description": ""}, {})


def calendar(page: Page) -> Response:
    """A calendar: name, color, with whom it is shared."""
    row = _calendar(page, may_change=False)
    return _calendar_form(page, row, row, {})


def _calendar(page: Page, may_change: bool = True) -> Row:
    viewer = who(page)
    row = viewer.calendars.get(page.path("id"))
    if row is None:
        raise Fault(404, "NotFound", f"There is no {page.path('id')} in calendars.", "It may have been deleted, or is not shared with you.")
    if may_change and viewer.roles[row["id"]] != OWNER:
        raise Fault(403, "NotAllowed", f"“{row['name']}” belongs to {viewer.people[row['owner_id']]['name']}.")
    return row


def _calendar_form(page: Page, row: Row | None, values: Row, errors: dict[str, str]) -> Response:
    viewer = who(page)
    shares = page.db.rows("shares", "calendar_id = ?", (row["id"],)) if row else []
    shared = {s["person_id"] for s in shares}
    candidates = [p for p in viewer.people.values() if p["id"] not in shared and p["id"] != viewer.me["id"]]
    is_own = row is None or viewer.roles[row["id"]] == OWNER
    return page.render(
        "calendar.html",
        422 if errors else 200,
        row=row,
        values=values,
        errors=errors,
        shares=shares,
        candidates=candidates,
        roles=ROLES,
        colors=COLORS,
        is_own=is_own,
        last_own=sum(1 for r in viewer.roles.values() if r == OWNER) < 2,
    )


def _calendar_values(page: Page) -> tuple[Row, dict[str, str]]:
    form = page.form
    values = {"name": form.get("name"), "color": form.get("color"), "description": form.get("description")}
    errors = {}
    if not 0 < len(values["name"]) <= 100:
        errors["name"] = "Give the calendar a name of at most 100 characters."
    if values["color"] not in COLORS:
        errors["color"] = "Choose a color."
    return values, errors


def create_calendar(page: Page) -> Response:
    """Make a calendar."""
    values, errors = _calendar_values(page)
    if errors:
        return _calendar_form(page, None, values, errors)
    made = page.db.insert("calendars", **values, owner_id=who(page).me["id"])
    return page.done(f"Created the calendar “{made['name']}”", f"/calendars/{made['id']}")


def save_calendar(page: Page) -> Response:
    """Change a calendar's name, color and description."""
    row = _calendar(page)
    values, errors = _calendar_values(page)
    if errors:
        return _calendar_form(page, row, values, errors)
    page.db.update("calendars", row["id"], **values)
    return page.done(f"Saved the calendar “{values['name']}”", f"/calendars/{row['id']}")


def ask_delete_calendar(page: Page) -> Response:
    """Ask before a calendar is deleted."""
    row = _calendar(page)
    count = len(page.db.rows("events", "calendar_id = ?", (row["id"],)))
    return page.render("calendar_delete.html", row=row, count=count)


def delete_calendar(page: Page) -> Response:
    """Delete a calendar; its events go to the trash."""
    row = _calendar(page)
    if row["is_primary"]:
        raise Fault(409, "Needed", f"“{row['name']}” is your main calendar and stays.")
    for event in page.db.rows("events", "calendar_id = ? AND recurring_event_id IS NULL", (row["id"],)):
        changes.to_trash(page, event)
    changes.remove_rows(page.db, page.db.rows("events", "calendar_id = ?", (row["id"],)))
    page.db.delete("shares", "calendar_id = ?", (row["id"],))
    page.db.delete("calendars", "id = ?", (row["id"],))
    return page.done(f"Deleted the calendar “{row['name']}”", "/calendars")


def toggle_calendar(page: Page) -> Response:
    """Show or hide a calendar."""
    row = _calendar(page, may_change=False)
    shown = not row["is_visible"]
    page.db.update("calendars", row["id"], is_visible=shown)
    return page.done(f"{'Showing' if shown else 'Hiding'} “{row['name']}”", page.back("/"))


def share(page: Page) -> Response:
    """Share a calendar with a person, or change in what role."""
    row = _calendar(page)
    person = who(page).people.get(page.form.get("person"))
    role = page.form.get("role")
    if person is None or role not in ROLES or person["id"] == row["owner_id"]:
        return _calendar_form(page, row, row, {"share": "Choose a person and what they may do."})
    there = page.db.first("shares", "calendar_id = ? AND person_id = ?", (row["id"], person["id"]))
    if there:
        page.db.update("shares", there["id"], role=role)
    else:
        page.db.insert("shares", calendar_id=row["id"], person_id=person["id"], role=role)
    return page.done(f"Shared “{row['name']}” with {person['name']}", f"/calendars/{row['id']}")


def unshare(page: Page) -> Response:
    """No longer share a calendar with a person."""
    row = _calendar(page)
    there = page.db.first("shares", "calendar_id = ? AND id = ?", (row["id"], page.form.get("share")))
    if there is None:
        raise Fault(404, "NotFound", "It is not shared with that person.")
    page.db.delete("shares", "id = ?", (there["id"],))
    return page.done(f"No longer shared with {who(page).people[there['person_id']]['name']}", f"/calendars/{row['id']}")


def people(page: Page) -> Response:
    """Everybody, and who is in a meeting now."""
    return page.render("people.html", taken={p["id"]: _now_busy(page, p["email"]) for p in who(page).people.values()})


def _now_busy(page: Page, email: str) -> datetime | None:
    """Until when a person is busy now."""
    now, day = page.session.now, today(page)
    return max((end for start, end, _ in busy(page, email, day, day + timedelta(days=1)) if start <= now < end), default=None)


def person(page: Page) -> Response:
    """A person: what is known, when they are busy this week, what is shared."""
    viewer = who(page)
    row = viewer.people.get(page.path("id"))
    if row is None:
        raise Fault(404, "NotFound", f"There is no {page.path('id')} in people.")
    first = today(page)
    days = [first + timedelta(days=n) for n in range(7)]
    times = busy(page, row["email"], days[0], days[-1] + timedelta(days=1))
    by_day = [(d, [t for t in times if t[0].date() <= d <= (t[1] - timedelta(seconds=1)).date()]) for d in days]
    zone = ZoneInfo(row["timezone"]) if row["timezone"] else page.db.zone
    shared = [c for c in viewer.calendars.values() if c["owner_id"] == row["id"]]
    return page.render(
        "person.html", row=row, by_day=by_day, local=page.session.now.astimezone(zone), zone=zone, shared=shared, until=_now_busy(page, row["email"])
    )


def find_time(page: Page) -> Response:
    """When several people are free in working hours."""
    viewer, query = who(page), page.query
    asked = [g.strip() for text in query.all("guests") for g in re.split(r"[,;\n]", text) if g.strip()]
    by_name = {p["name"].lower(): p["email"] for p in viewer.people.values()}
    emails = list(dict.fromkeys([by_name.get(g.lower(), g) for g in asked]))
    minutes = int(query.get("minutes")) if query.get("minutes").isdigit() and int(query.get("minutes")[:4]) in LENGTHS else 30
    first = max(day_of(query.get("from")) or today(page), today(page))
    count = min(max(int(query.get("days")) if query.get("days").isdigit() else 5, 1), 14)
    everybody = list(dict.fromkeys([viewer.me["email"], *emails]))
    taken = {e: busy(page, e, first, first + timedelta(days=count)) for e in everybody}
    days = [first + timedelta(days=n) for n in range(count)]
    slots = [(d, _slots(page, d, minutes, taken)) for d in days if d.weekday() < 5]
    return page.render(
        "find_time.html",
        emails=emails,
        everybody=everybody,
        minutes=minutes,
        first=first,
        count=count,
        lengths=LENGTHS,
        slots=slots,
        lines=_lines(page, first, everybody, taken),
        hours=list(range(24)),
        span=_hours(page),
    )


def _hours(page: Page) -> tuple[int, int]:
    """The hours that a day's line shows: the working hours and one more at each end."""
    settings = who(page).settings
    return max(int(settings["day_start"][:2]) - 1, 0), min(int(settings["day_end"][:2]) + 2, 24)


def _slots(page: Page, day: date, minutes: int, taken: dict[str, list[tuple[datetime, datetime, str]]]) -> list[tuple[datetime, datetime]]:
    """Times of a day when nobody is taken: one after the other, from the first quarter hour on."""
    viewer = who(page)
    begin, close = (midnight(day, viewer.zone).replace(hour=int(t[:2]), minute=int(t[3:])) for t in (viewer.settings["day_start"], viewer.settings["day_end"]))
    found: list[tuple[datetime, datetime]] = []
    while begin + timedelta(minutes=minutes) <= close and len(found) < 8:
        end = begin + timedelta(minutes=minutes)
        if begin >= page.session.now and not any(start < end and finish > begin for times in taken.values() for start, finish, _ in times):
            found.append((begin, end))
            begin = end
        else:
            begin += timedelta(minutes=15)
    return found


def _lines(page: Page, day: date, emails: list[str], taken: dict[str, list[tuple[datetime, datetime, str]]]) -> list[dict[str, Any]]:
    """For each person the busy parts of a day in percent of the hours shown."""
    viewer = who(page)
    low, high = _hours(page)
    start = midnight(day, viewer.zone) + timedelta(hours=low)
    length = timedelta(hours=high - low)
    lines = []
    for email in emails:
        parts = []
        for begin, end, title in taken[email]:
            left, right = (max(0.0, min(1.0, (t - start) / length)) for t in (begin, end))
            if right > left:
                parts.append({"left": round(left * 100, 2), "width": round((right - left) * 100, 2), "title": title, "start": begin, "end": end})
        lines.append({"name": viewer.name_of(email), "email": email, "parts": parts})
    return lines


def search(page: Page) -> Response:
    """Events in whose title, place, description or guests every word is found; of a series the occurrence that is nearest."""
    viewer, query = who(page), page.query
    words = query.get("q").lower().split()
    now = today(page)
    first, last = day_of(query.get("from")) or now - timedelta(days=180), day_of(query.get("to")) or now + timedelta(days=180)
    wanted = query.get("calendar")
    found = [
        s for s in between(page, first, min(last, first + timedelta(days=1100)) + timedelta(days=1), shown_only=False) if words and _matches(s, words, wanted)
    ]
    found.sort(key=lambda s: (s.what.first_day < now, abs((s.what.first_day - now).days), s.what.start))
    nearest: dict[str, Seen] = {}
    for s in found:
        nearest.setdefault(s.what.event["recurring_event_id"] or s.what.event["id"], s)
    found = list(nearest.values())
    ids = Ids()
    listed = [(s, ids.of(s.ref)) for s in found[:MOST_FOUND]]
    return page.render(
        "search.html",
        q=query.get("q"),
        found=listed,
        total=len(found),
        wanted=wanted,
        first=query.get("from"),
        last=query.get("to"),
        calendars=viewer.calendars,
    )


def _matches(seen: Seen, words: list[str], calendar: str) -> bool:
    event = seen.what.event
    if seen.hidden or (calendar and event["calendar_id"] != calendar):
        return False
    text = " ".join([event["title"], event["location"], event["description"], *(f"{g['name']} {g['email']}" for g in seen.guests)]).lower()
    return all(word in text for word in words)


def trash(page: Page) -> Response:
    """Deleted events."""
    return page.render("trash.html", rows=page.db.rows("trash", order="deleted_at DESC, id DESC"))


def restore(page: Page) -> Response:
    """Bring a deleted event back."""
    row = page.db.get("trash", page.path("id"))
    changes.restore(page, row)
    return page.done(f"Restored “{row['title']}”", "/trash")


def purge(page: Page) -> Response:
    """Delete an event for good."""
    row = page.db.get("trash", page.path("id"))
    page.db.delete("trash", "id = ?", (row["id"],))
    return page.done(f"Deleted “{row['title']}” for good", "/trash")


def empty_trash(page: Page) -> Response:
    """Delete all deleted events for good."""
    count = page.db.delete("trash", "1 = 1")
    return page.done(f"Emptied the trash: {count} event{'s' if count != 1 else ''}", "/trash")


def dismiss(page: Page) -> Response:
    """A reminder was seen."""
    reminder = page.db.get("reminders", page.form.get("reminder"))
    try:
        page.db.insert("dismissals", reminder_id=reminder["id"], occurrence=page.form.get("occurrence"))
    except ValueError:
        raise Fault(422, "BadForm", "A reminder is of a time.") from None
    return page.done("Dismissed the reminder", page.back("/"))


def notices(page: Page) -> Response:
    """What Calendr sent to guests, newest first."""
    rows = page.db.rows("notices", order="sent_at DESC, length(id) DESC, id DESC")
    known = {e["id"] for e in page.db.rows("events")}
    return page.render("notices.html", rows=rows[:200], known=known)


def settings(page: Page) -> Response:
    """How the viewer likes it."""
    return _settings(page, who(page).settings, {})


def _settings(page: Page, values: Row, errors: dict[str, str]) -> Response:
    zones = zones_of(page.db.zone.key)
    return page.render(
        "settings.html",
        422 if errors else 200,
        s=values,
        errors=errors,
        zones=zones,
        home=page.db.zone.key,
        lengths=LENGTHS,
        reminders=[(m, before(m)) for m in (0, 5, 10, 15, 30, 60)],
    )


@lru_cache
def zones_of(home: str) -> list[str]:
    """The zones to choose from: one continent after the other, without the old names."""
    continents = ("Africa", "America", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")
    return sorted({home, "UTC", *(z for z in zoneinfo.available_timezones() if z.split("/")[0] in continents and z.count("/") == 1)})


def save_settings(page: Page) -> Response:
    """Keep the settings."""
    form, there = page.form, who(page).settings
    allowed = TABLES.by_name["settings"].values
    values: Row = {name: form.get(name) for name in ("week_start", "theme", "time_format", "default_view", "day_start", "day_end")}
    values |= {"show_weekends": form.get("show_weekends") == "1", "show_declined": form.get("show_declined") == "1"}
    zone = form.get("timezone")
    values["timezone"] = None if zone in ("", page.db.zone.key) else zone
    values["default_minutes"] = int(form.get("default_minutes")) if form.get("default_minutes").isdigit() and len(form.get("default_minutes")) < 4 else 30
    values["default_reminder"] = int(form.get("default_reminder")) if form.get("default_reminder").isdigit() and len(form.get("default_reminder")) < 6 else None
    errors = {name.replace("_", "-"): "Choose one of these." for name, found in allowed.items() if values[name] not in found}
    if zone and zone not in zones_of(page.db.zone.key):
        errors["timezone"] = "There is no such time zone."
    if not all(re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", values[n]) for n in ("day_start", "day_end")) or values["day_start"] >= values["day_end"]:
        errors["day-end"] = "The working day ends after it starts."
    if errors:
        return _settings(page, {**there, **values}, errors)
    page.db.update("settings", there["id"], **values)
    return page.done("Saved the settings", "/settings")


def shortcuts(page: Page) -> Response:
    """What the keys do."""
    return page.render("shortcuts.html")
