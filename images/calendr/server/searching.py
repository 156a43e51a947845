"""Search, and the events that were deleted: restored, or deleted for good."""

from __future__ import annotations

from datetime import timedelta

from _web.pages import Page
from starlette.responses import Response

from . import changes
from .layout import Ids
from .occurrences import Seen, between
from .shell import day_of, today
from .who import who

MOST_FOUND = 100


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
