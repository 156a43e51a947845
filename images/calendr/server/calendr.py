"""Calendr as a site: its pages at their addresses, and what a pack must hold."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

from _server import recurrence
from _server.store import Row
from _server.tables import REQUIRED
from _web.packs import Checked
from _web.site import Route, Site

from . import __version__, calendars, events, people, searching, settings, views
from .shell import shell
from .tables import TABLES

HERE = Path(__file__).parent
_GET = {
    "/": (views.home, "home"),
    "/events/new": (events.new, "new-event"),
    "/events/{ref}": (events.show, "event"),
    "/events/{ref}/edit": (events.edit, "edit-event"),
    "/events/{ref}/move": (events.ask_move, "ask-move"),
    "/events/{ref}/delete": (events.ask_delete, "ask-delete"),
    "/calendars": (calendars.calendars, "calendars"),
    "/calendars/new": (calendars.new_calendar, "new-calendar"),
    "/calendars/{id}": (calendars.calendar, "calendar"),
    "/calendars/{id}/delete": (calendars.ask_delete_calendar, "ask-delete-calendar"),
    "/people": (people.people, "people"),
    "/people/{id}": (people.person, "person"),
    "/find-time": (people.find_time, "find-time"),
    "/search": (searching.search, "search"),
    "/trash": (searching.trash, "trash"),
    "/notices": (settings.notices, "notices"),
    "/settings": (settings.settings, "settings"),
    "/shortcuts": (settings.shortcuts, "shortcuts"),
}
_POST = {
    "/events": (events.create, "create-event"),
    "/events/{ref}": (events.save, "save-event"),
    "/events/{ref}/move": (events.move, "move-event"),
    "/events/{ref}/delete": (events.delete, "delete-event"),
    "/events/{ref}/respond": (events.respond, "respond"),
    "/calendars": (calendars.create_calendar, "create-calendar"),
    "/calendars/{id}": (calendars.save_calendar, "save-calendar"),
    "/calendars/{id}/delete": (calendars.delete_calendar, "delete-calendar"),
    "/calendars/{id}/toggle": (calendars.toggle_calendar, "toggle-calendar"),
    "/calendars/{id}/share": (calendars.share, "share-calendar"),
    "/calendars/{id}/unshare": (calendars.unshare, "unshare-calendar"),
    "/trash/{id}/restore": (searching.restore, "restore"),
    "/trash/{id}/purge": (searching.purge, "purge"),
    "/trash/empty": (searching.empty_trash, "empty-trash"),
    "/reminders/dismiss": (settings.dismiss, "dismiss-reminder"),
    "/settings": (settings.save_settings, "save-settings"),
}
_VIEWS = {"day": views.day, "week": views.week, "month": views.month, "agenda": views.agenda}
ROUTES = [
    *(Route(path, "GET", name, handle) for name, handle in _VIEWS.items() for path in (f"/{name}", f"/{name}/{{day}}")),
    *(Route(path, "GET", name, handle) for path, (handle, name) in _GET.items()),
    *(Route(path, "POST", name, handle) for path, (handle, name) in _POST.items()),
]


def complete(checked: Checked) -> None:
    """Names of guests, settings left out, rules in their normal form; faults of events that no type shows."""
    rows = checked.rows
    people = {p["email"].lower(): p["name"] for p in rows.get("people", [])}
    for guest in rows.get("guests", []):
        guest["name"] = guest["name"] or people.get(guest["email"].lower(), "")
    if not rows.get("settings"):
        row = {c.name: None if c.default is REQUIRED else c.default for c in TABLES.by_name["settings"].columns.values()}
        checked.add("settings", {"id": "set-user", **row}, "settings.yaml", 1)
    _check_user(checked)
    series = {e["id"]: e for e in rows.get("events", [])}
    for n, event in enumerate(rows.get("events", [])):
        for fault in _event_faults(event, series):
            checked.fault("events", n, fault)
    if not checked.problems:
        _settle_changed(checked, series)


def _check_user(checked: Checked) -> None:
    user = checked.head["user"]
    if user not in {p["id"] for p in checked.rows.get("people", [])}:
        checked.fault("settings", 0, f"pack.yaml: user: no person {user!r}")
    if not any(c["owner_id"] == user and c["is_primary"] for c in checked.rows.get("calendars", [])):
        checked.fault("settings", 0, f"calendars.yaml: {user} owns no calendar with is_primary: true")
    if len(checked.rows["settings"]) != 1 or checked.rows["settings"][0]["id"] != "set-user":
        checked.fault("settings", 0, "must be one row with the id set-user")


def _event_faults(event: Row, series: dict[str, Row]) -> list[str]:
    start, end = event["start"], event["end"]
    faults = []
    if event["all_day"] is not (len(start) == 10) or len(start) != len(end):
        faults.append("start and end must be days of an all-day event, else times (all_day says which)")
    elif start > end or (event["all_day"] and start == end):
        faults.append(f"ends ({end}) before it starts ({start})" + (": an all-day event ends on the day after its last" if event["all_day"] else ""))
    if not isinstance(event["exdates"], list) or not all(isinstance(d, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", d) for d in event["exdates"]):
        faults.append("exdates must be a list of days")
    if event["recurring_event_id"] and (event["original_start"] is None or not series[event["recurring_event_id"]]["recurrence"]):
        faults.append("a changed occurrence needs original_start, and recurring_event_id must be a series")
    if event["recurrence"]:
        faults += _settle_rule(event)
    return faults


def _settle_rule(event: Row) -> list[str]:
    """Put a rule into its normal form. A monthly or yearly series begins on the first day that its rule gives: the base week decides which that is."""
    rule = re.sub(r"UNTIL=(\d{4})-(\d\d)-(\d\d)", r"UNTIL=\1\2\3", event["recurrence"])
    start, end = (datetime.fromisoformat(event[name]).replace(tzinfo=None) for name in ("start", "end"))
    try:
        first = recurrence.first_wall(rule, start) if recurrence.parts(rule).get("FREQ") in ("MONTHLY", "YEARLY") else start
        event["recurrence"] = recurrence.checked(rule, first)
    except recurrence.RuleError as error:
        return [f"recurrence: {error}"]
    if first != start:
        event["start"], event["end"] = (t.date().isoformat() if event["all_day"] else t.isoformat() for t in (first, end + (first - start)))
    return []


def _settle_changed(checked: Checked, series: dict[str, Row]) -> None:
    """Put each changed occurrence of a monthly or yearly series on the next day that the rule gives, and what it became as much later."""
    for n, event in enumerate(checked.rows.get("events", [])):
        of = series.get(event["recurring_event_id"] or "")
        if of is None or recurrence.parts(of["recurrence"])["FREQ"] not in ("MONTHLY", "YEARLY"):
            continue
        begins, original = (datetime.fromisoformat(t).replace(tzinfo=None) for t in (of["start"], event["original_start"]))
        given = recurrence.at_or_after(of["recurrence"], begins, original)
        if given is None:
            checked.fault("events", n, f"original_start: {of['id']} has no occurrence at or after {event['original_start']}")
            continue
        for name in ("start", "end", "original_start"):
            moved = datetime.fromisoformat(event[name]).replace(tzinfo=None) + (given - original)
            event[name] = moved.date().isoformat() if len(event[name]) == 10 else moved.isoformat()


SITE = Site("calendr", "Calendr", __version__, HERE, Path(os.environ.get("PACKS") or HERE.parent / "packs"), TABLES, ROUTES, complete, shell)
