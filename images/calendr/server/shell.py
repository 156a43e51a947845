"""What the frame of every page shows: calendars, the small month, reminders that are due, invitations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from _server.store import Row
from _server.times import stored_time, utc_text
from _web.pages import Page

from . import marks, texts
from .occurrences import Occurrence, Seen, between
from .texts import Texts, week_start
from .who import OWNER, Who, who


@dataclass(frozen=True, slots=True)
class Due:
    """A reminder that is due: the row, what it reminds of, and when that begins."""

    reminder: Row
    seen: Seen
    when: str
    occurrence: str


def today(page: Page) -> date:
    """The day it is for the viewer."""
    return page.session.now.astimezone(who(page).zone).date()


def shell(page: Page) -> dict[str, Any]:
    """The frame's context."""
    viewer = who(page)
    shown = page.request.path_params.get("day")
    focus = day_of(str(shown)) if shown else None
    return {
        "viewer": viewer,
        "today": today(page),
        "due": due(page),
        "invited": invited(page),
        "month": small_month(page, viewer, focus or today(page)),
        "focus": focus or today(page),
        "theme": viewer.settings["theme"],
        "t": Texts(viewer.settings["time_format"]),
        "texts": texts,
        "marks": marks,
        "clock": page.session.now,
        "view": None,
        "own": [c for c in viewer.calendars.values() if viewer.roles[c["id"]] == OWNER],
        "others": [c for c in viewer.calendars.values() if viewer.roles[c["id"]] != OWNER],
    }


def day_of(text: str) -> date | None:
    """A day (or month) of an address; None for one that is none, or too far away."""
    try:
        day = date.fromisoformat(text if len(text) == 10 else f"{text}-01" if len(text) == 7 else "")
    except ValueError:
        return None
    return day if 1972 <= day.year <= 2199 else None


def small_month(page: Page, viewer: Who, day: date) -> dict[str, Any]:
    """The month of a day in weeks, with the days that have something."""
    first = day.replace(day=1)
    start = week_start(first, viewer.settings["week_start"])
    days = [start + timedelta(days=n) for n in range(42)]
    return {
        "first": first,
        "weeks": [days[n : n + 7] for n in range(0, 42, 7)],
        "previous": (first - timedelta(days=1)).replace(day=1),
        "next": (first + timedelta(days=32)).replace(day=1),
    }


def due(page: Page) -> list[Due]:
    """Reminders that came and were not dismissed, of what has not ended, by time."""
    return page.db.remembered("due", lambda: _due(page))


def _due(page: Page) -> list[Due]:
    now = page.session.now
    dismissed = {(d["reminder_id"], stored_time(d["occurrence"], page.db.zone)) for d in page.db.rows("dismissals")}
    found = []
    reminders: dict[str, list[Row]] = {}
    for row in page.db.rows("reminders"):
        reminders.setdefault(row["event_id"], []).append(row)
    day = today(page)
    for seen in between(page, day, day + timedelta(days=15), among=frozenset(reminders)):
        for row in reminders.get(seen.what.event["id"], []):
            occurrence = occurrence_text(seen.what)
            is_time = row["method"] == "popup" and seen.what.start - timedelta(minutes=row["minutes"]) <= now < seen.what.start
            if is_time and not seen.faded and (row["id"], occurrence) not in dismissed:
                found.append(Due(row, seen, texts.relative(seen.what.start, now), occurrence))
    return found


def occurrence_text(what: Occurrence) -> str:
    """Stored start of an occurrence, by which dismissals know it."""
    return what.first_day.isoformat() if what.all_day else utc_text(what.start)


def invited(page: Page) -> list[Seen]:
    """Invitations of the next weeks that wait for an answer; of a series only the first."""
    return page.db.remembered("invited", lambda: _invited(page))


def _invited(page: Page) -> list[Seen]:
    day, mine = today(page), who(page).me["email"].lower()
    asked = page.db.rows("guests", "response = 'needs_action' AND lower(email) = ?", (mine,))
    found: dict[str, Seen] = {}
    for seen in between(page, day, day + timedelta(days=35), shown_only=False, among=frozenset(g["event_id"] for g in asked)):
        if seen.unanswered and seen.what.end > page.session.now:
            found.setdefault(seen.what.event["id"], seen)
    return list(found.values())
