"""Settings, the keyboard, reminders that were seen, what was sent to guests."""

from __future__ import annotations

import re
import zoneinfo
from functools import lru_cache

from _server.faults import Fault
from _server.numbers import whole
from _server.store import Row
from _web.pages import Page
from starlette.responses import Response

from .people import LENGTHS
from .tables import TABLES
from .texts import before
from .who import who


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
    values["default_minutes"] = whole(form.get("default_minutes"), 999) or 30
    values["default_reminder"] = whole(form.get("default_reminder"), 99999)
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
