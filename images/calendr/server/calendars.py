"""Calendars: made, changed, shown or hidden, shared, deleted."""

from __future__ import annotations

from _server.faults import Fault
from _server.store import Row
from _web.pages import Page
from starlette.responses import Response

from . import changes
from .tables import COLORS
from .who import OWNER, who

ROLES = {"busy": "See only busy times", "viewer": "See all details", "editor": "Make changes"}


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
