"""People: who is free, what they share, and when several of them can meet."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from _server.faults import Fault
from _server.numbers import whole
from _web.pages import Page
from starlette.responses import Response

from .occurrences import busy, midnight
from .shell import day_of, today
from .who import who

LENGTHS = (15, 30, 45, 60, 90, 120)


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
    asked_minutes = whole(query.get("minutes"), max(LENGTHS))
    minutes = asked_minutes if asked_minutes in LENGTHS else 30
    first = max(day_of(query.get("from")) or today(page), today(page))
    count = whole(query.get("days"), 14, 1) or 5
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
