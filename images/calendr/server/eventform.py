"""The event form: what it shows for an event, and what it says when it comes back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from _server import recurrence
from _server.numbers import whole
from _server.recurrence import DAYS
from _server.store import Row
from _web.pages import Form, Page

from .occurrences import Occurrence, midnight, zone_of
from .tables import COLORS
from .who import Who, who

ADDRESS = re.compile(r"[^@\s<>,;\"()]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
REMINDERS = (0, 5, 10, 15, 30, 60, 120, 1440, 2880, 10080)
REPEATS = ("", "daily", "weekdays", "weekly", "monthly", "monthly-weekday", "yearly")
MAX_TITLE = 300


@dataclass
class Filled:
    """A filled form: texts as its fields have them, by field; guests; `errors` by field's id."""

    texts: dict[str, str]
    guests: list[str] = field(default_factory=list)
    on: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.texts.get(name, "")


@dataclass
class Wanted:
    """What an event shall be: `row` are its columns, `guests` addresses with names, `reminders` minutes; None: as they were."""

    row: Row
    guests: dict[str, str] | None
    reminders: list[int] | None


def blank(page: Page) -> Filled:
    """The form of a new event: from the query, else the next half hour."""
    viewer, query = who(page), page.query
    now = page.session.now.astimezone(viewer.zone)
    day = _day(query.get("date")) or now.date()
    minutes = viewer.settings["default_minutes"]
    soon = now.replace(minute=0, second=0, tzinfo=None) + timedelta(minutes=30 if now.minute < 30 else 60)
    start = datetime.combine(day, _time(query.get("start")) or soon.time())
    end = datetime.combine(_day(query.get("end_date")) or start.date(), _time(query.get("end")) or (start + timedelta(minutes=minutes)).time())
    if end <= start:
        end = start + timedelta(minutes=minutes) if not query.get("end") else end + timedelta(days=1)
    all_day = query.get("all_day") == "1"
    last = _day(query.get("end_date")) or (day if all_day else end.date())
    reminder = viewer.settings["default_reminder"]
    texts = {
        "title": query.get("title"),
        "all_day": "1" if all_day else "",
        "start_date": day.isoformat(),
        "start_time": f"{start:%H:%M}",
        "end_date": last.isoformat(),
        "end_time": f"{end:%H:%M}",
        "calendar": query.get("calendar") or viewer.primary["id"],
        "location": query.get("location"),
        "description": query.get("description"),
        "reminder": "" if reminder is None else str(reminder),
        "show_as": "free" if all_day else "busy",
        "visibility": "default",
        "repeat_interval": "1",
        "repeat_end": "never",
        "repeat_count": "10",
        "repeat_until": (day + timedelta(days=90)).isoformat(),
    }
    return Filled(texts, [g for g in re.split(r"[,\s]+", query.get("guests")) if g], [DAYS[day.weekday()]])


def of_event(page: Page, what: Occurrence, series: Row) -> Filled:
    """The form of an event or an occurrence; `series` is the row that has its recurrence."""
    event = what.event
    minutes = [r["minutes"] for r in page.db.rows("reminders", "event_id = ?", (event["id"],), order="minutes")]
    texts = {
        "title": event["title"],
        "all_day": "1" if what.all_day else "",
        "start_date": what.first_day.isoformat(),
        "start_time": f"{what.start:%H:%M}",
        "end_date": what.last_day.isoformat() if what.all_day else what.end.date().isoformat(),
        "end_time": f"{what.end:%H:%M}",
        "calendar": event["calendar_id"],
        "location": event["location"],
        "description": event["description"],
        "color": event["color"] or "",
        "show_as": event["show_as"],
        "visibility": event["visibility"],
        "reminder": str(minutes[0]) if minutes else "",
        "reminder_2": str(minutes[1]) if len(minutes) > 1 else "",
        "repeat_interval": "1",
        "repeat_end": "never",
        "repeat_count": "10",
        "repeat_until": (what.first_day + timedelta(days=90)).isoformat(),
    }
    if what.all_day:
        texts |= {"start_time": "09:00", "end_time": "09:30"}
    guests = [g["email"] for g in page.db.rows("guests", "event_id = ?", (event["id"],))]
    filled = Filled(texts, guests, [DAYS[what.first_day.weekday()]])
    if series["recurrence"]:
        _show_rule(filled, series["recurrence"], zone_of(series, page.db))
    return filled


def _show_rule(filled: Filled, rule: str, zone: ZoneInfo) -> None:
    found = recurrence.parts(rule)
    days = found.get("BYDAY", "")
    repeat = _repeat_of(found, days)
    filled.texts |= {"repeat": repeat, "rule": rule, "repeat_interval": found.get("INTERVAL", "1")}
    if days and found["FREQ"] == "WEEKLY":
        filled.on = days.split(",")
    if "COUNT" in found:
        filled.texts |= {"repeat_end": "count", "repeat_count": found["COUNT"]}
    if "UNTIL" in found:
        until = recurrence.until_day(found["UNTIL"], zone)
        filled.texts |= {"repeat_end": "until", "repeat_until": until.isoformat()}


def _repeat_of(found: dict[str, str], days: str) -> str:
    """The choice of the form that gives this rule; `keep` for one that none gives."""
    if "BYMONTH" in found or ("BYSETPOS" in found) or (found["FREQ"] == "DAILY" and days):
        return "keep"
    if found["FREQ"] == "WEEKLY":
        return "weekdays" if set(days.split(",")) == set(DAYS[:5]) and found.get("INTERVAL", "1") == "1" else "weekly"
    if found["FREQ"] == "MONTHLY":
        return "monthly-weekday" if days and "," not in days else "keep" if days or "," in found.get("BYMONTHDAY", "") else "monthly"
    return {"DAILY": "daily", "YEARLY": "keep" if days else "yearly"}[found["FREQ"]]


def posted(form: Form) -> Filled:
    """The form as it came back."""
    texts = {name: form.get(name) for name in form.fields if not name.startswith("_")}
    guests = [g.strip() for text in form.all("guests") for g in re.split(r"[,;\n]", text) if g.strip()]
    return Filled(texts, guests, [d for d in form.all("repeat_on") if d in DAYS])


def repeats_as_before(before: Filled, after: Filled) -> bool:
    """Whether nobody touched how it repeats: `before` is what the form was filled with, `after` what came back."""
    if _repeats(before) != _repeats(after):
        return False
    if after["repeat"] != "weekly" or sorted(before.on) == sorted(after.on):
        return True
    # The page's script takes the only day of a weekly event along with the date.
    day = _day(after["start_date"])
    return day is not None and len(before.on) == 1 and before["start_date"] != after["start_date"] and after.on == [DAYS[day.weekday()]]


def _repeats(filled: Filled) -> tuple[str, ...]:
    """What a form says of the recurrence but for its days; fields that do not count are left out."""
    repeat, end = filled["repeat"], filled["repeat_end"] or "never"
    if repeat in ("", "keep"):
        return (repeat,)
    interval = "1" if repeat == "weekdays" else filled["repeat_interval"] or "1"
    return repeat, interval, end, filled[f"repeat_{end}"]


def read(page: Page, filled: Filled, rule: str | None, *, keeps_rule: bool = False) -> Wanted:
    """What the form says; every fault of it is in its `errors`. `rule` is the recurrence there was, `keeps_rule`: and is to stay."""
    viewer, errors = who(page), filled.errors
    start, end = _times(filled, viewer)
    if len(filled["title"]) > MAX_TITLE:
        errors["title"] = f"A title has at most {MAX_TITLE} characters."
    if not filled["title"]:
        errors["title"] = "Give the event a title."
    if not viewer.can_edit(filled["calendar"]):
        errors["calendar"] = "Choose a calendar in which you may write."
    row: Row = {
        "title": filled["title"],
        "calendar_id": filled["calendar"],
        "location": filled["location"],
        "description": filled["description"].replace("\r\n", "\n"),
        "all_day": bool(filled["all_day"]),
        "start": start,
        "end": end,
        "color": filled["color"] if filled["color"] in COLORS else None,
        "show_as": "free" if filled["show_as"] == "free" else "busy",
        "visibility": "private" if filled["visibility"] == "private" else "default",
    }
    if not errors.keys() & {"start-date", "start-time"}:
        row["recurrence"] = rule if keeps_rule else _rule(filled, rule, start, viewer)
    minutes = sorted({found for t in (filled["reminder"], filled["reminder_2"]) if (found := whole(t, 99999)) is not None})
    return Wanted(row, _guests(filled, viewer), minutes)


def _times(filled: Filled, viewer: Who) -> tuple[str, str]:
    errors = filled.errors
    first, last = _day(filled["start_date"]), _day(filled["end_date"])
    errors |= {f"{name}-date": "Give a day." for name, day in (("start", first), ("end", last)) if day is None}
    if filled["all_day"]:
        if first and last and last < first:
            errors["end-date"] = "The event ends before it starts."
        return (first or date.min).isoformat(), ((last or date.min) + timedelta(days=1)).isoformat()
    return _clock_times(filled, viewer, first, last)


def _clock_times(filled: Filled, viewer: Who, first: date | None, last: date | None) -> tuple[str, str]:
    errors = filled.errors
    begin, finish = _time(filled["start_time"]), _time(filled["end_time"])
    if begin is None:
        errors["start-time"] = "Give a time, such as 09:30."
    if finish is None:
        errors["end-time"] = "Give a time, such as 10:00."
    if first is None or last is None or begin is None or finish is None:
        return "", ""
    start, end = (midnight(d, viewer.zone).replace(hour=t.hour, minute=t.minute) for d, t in ((first, begin), (last, finish)))
    if end < start or end - start > timedelta(days=60):
        errors["end-time"] = "The event ends before it starts." if end < start else "An event with times lasts at most 60 days; make it all-day."
    return start.isoformat(), end.isoformat()


def _rule(filled: Filled, rule: str | None, start: str, viewer: Who) -> str | None:
    repeat = filled["repeat"]
    if not repeat:
        return None
    if repeat == "keep":
        return rule
    moment = datetime.fromisoformat(start)
    named = {
        "daily": {"FREQ": "DAILY"},
        "weekdays": {"FREQ": "WEEKLY", "BYDAY": ",".join(DAYS[:5])},
        "weekly": {"FREQ": "WEEKLY", "BYDAY": ",".join(_week_days(filled, rule, moment))},
        "monthly": {"FREQ": "MONTHLY", "BYMONTHDAY": str(moment.day)},
        "yearly": {"FREQ": "YEARLY"},
        "monthly-weekday": {"FREQ": "MONTHLY", "BYDAY": f"{recurrence.nth_of_month(moment.date())}{DAYS[moment.weekday()]}"},
    }.get(repeat)
    if named is None:
        filled.errors["repeat"] = "Choose how it repeats."
        return None
    interval = whole(filled["repeat_interval"] or "1", 99, 1)
    if interval is None:
        filled.errors["repeat-interval"] = "A number from 1 to 99."
        return None
    if interval > 1 and repeat != "weekdays":
        named["INTERVAL"] = str(interval)
    _end(filled, named, moment, viewer)
    if repeat == "weekdays" and moment.weekday() > 4:
        filled.errors["repeat"] = "The event is on a weekend: it cannot repeat on weekdays."
    return recurrence.joined(named)


def _week_days(filled: Filled, rule: str | None, start: datetime) -> list[str]:
    """The days of a weekly event: what is checked; where that is only the one day that there was, the day it is moved to."""
    before = recurrence.parts(rule).get("BYDAY", "").split(",") if rule else []
    own = DAYS[start.weekday()]
    return [own] if not filled.on or (filled.on == before and len(before) == 1) else [d for d in DAYS if d in filled.on]


def _end(filled: Filled, named: dict[str, str], start: datetime, viewer: Who) -> None:
    if filled["repeat_end"] == "count":
        count = whole(filled["repeat_count"], 999, 1)
        if count is None:
            filled.errors["repeat-count"] = "A number from 1 to 999."
        named["COUNT"] = str(count)
    if filled["repeat_end"] == "until":
        until = _day(filled["repeat_until"])
        if until is None or until < start.date():
            filled.errors["repeat-until"] = "A day on or after the start."
        else:
            named["UNTIL"] = recurrence.until_text(until, viewer.zone, bool(filled["all_day"]))


def _guests(filled: Filled, viewer: Who) -> dict[str, str]:
    """Addresses and names of the guests; a name of somebody in the house stands for the address."""
    by_name = {p["name"].lower(): p for p in viewer.people.values()}
    found: dict[str, str] = {}
    for text in filled.guests:
        address = re.sub(r"^.*<([^<>]+)>$", r"\1", text).strip()
        person = viewer.by_email.get(address.lower()) or by_name.get(text.lower())
        if person is not None:
            found.setdefault(person["email"], person["name"])
        elif ADDRESS.fullmatch(address) and len(address) <= 254:
            if address.lower() not in (e.lower() for e in found):
                found[address] = ""
        else:
            filled.errors["guests"] = f"“{text[:80]}” is nobody here and no e-mail address."
    if len(found) > 200:
        filled.errors["guests"] = "At most 200 guests."
    return found


def _day(text: str) -> date | None:
    try:
        day = date.fromisoformat(text) if len(text) == 10 else None
    except ValueError:
        return None
    return day if day and 1971 <= day.year <= 2200 else None


def _time(text: str) -> time | None:
    try:
        return time.fromisoformat(text).replace(second=0, microsecond=0, tzinfo=None) if len(text) in (5, 8) else None
    except ValueError:
        return None
