"""Days and times as people read them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from _server.recurrence import DAYS, parts

from .occurrences import Occurrence

DASH = "\u2013"
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last"}
_UNITS = {"DAILY": ("day", "Daily"), "WEEKLY": ("week", "Weekly"), "MONTHLY": ("month", "Monthly"), "YEARLY": ("year", "Yearly")}


class Texts:
    """Texts in one viewer's clock (`24h` or `12h`)."""

    def __init__(self, time_format: str) -> None:
        self.is_24h = time_format == "24h"

    def time(self, moment: datetime) -> str:
        """09:30, or 9:30 am."""
        if self.is_24h:
            return f"{moment:%H:%M}"
        hour = moment.hour % 12 or 12
        return f"{hour}{f':{moment.minute:02}' if moment.minute else ''} {'am' if moment.hour < 12 else 'pm'}"

    def hour(self, hour: int) -> str:
        """The label of an hour's line."""
        return f"{hour:02}:00" if self.is_24h else f"{hour % 12 or 12} {'am' if hour < 12 else 'pm'}"

    def span(self, what: Occurrence) -> str:
        """When in its day an occurrence is."""
        return "All day" if what.all_day else f"{self.time(what.start)} {DASH} {self.time(what.end)}"

    def when(self, what: Occurrence) -> str:
        """Day and time of an occurrence."""
        if what.first_day == what.last_day:
            return f"{long_day(what.first_day)}, {'all day' if what.all_day else self.span(what)}"
        if what.all_day:
            return f"{long_day(what.first_day)} {DASH} {long_day(what.last_day)}"
        return f"{long_day(what.start.date())}, {self.time(what.start)} {DASH} {long_day(what.end.date())}, {self.time(what.end)}"


def long_day(day: date) -> str:
    """Tuesday, 10 March 2026"""
    return f"{WEEKDAYS[day.weekday()]}, {day.day} {MONTHS[day.month - 1]} {day.year}"


def short_day(day: date) -> str:
    """Tue 10 Mar"""
    return f"{WEEKDAYS[day.weekday()][:3]} {day.day} {MONTHS[day.month - 1][:3]}"


def short_title(day: date) -> str:
    """10 March 2026"""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def days_title(first: date, last: date) -> str:
    """9 - 15 March 2026, over two months or years as short as can be."""
    if first == last:
        return long_day(first)
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} {DASH} {last.day} {MONTHS[last.month - 1]} {last.year}"
    year = f" {first.year}" if first.year != last.year else ""
    return f"{first.day} {MONTHS[first.month - 1][:3]}{year} {DASH} {last.day} {MONTHS[last.month - 1][:3]} {last.year}"


def relative(moment: datetime, now: datetime) -> str:
    """in 8 minutes, in 2 hours, in 3 days; now."""
    minutes = round((moment - now).total_seconds() / 60)
    if minutes <= 0:
        return "now"
    for size, unit in ((1440, "day"), (60, "hour"), (1, "minute")):
        if minutes >= size:
            count = minutes // size
            return f"in {count} {unit}{'s' if count != 1 else ''}"
    return "now"


def before(minutes: int) -> str:
    """A reminder: 10 minutes before."""
    if minutes == 0:
        return "At the start"
    for size, unit in ((10080, "week"), (1440, "day"), (60, "hour")):
        if minutes % size == 0:
            return f"{minutes // size} {unit}{'s' if minutes > size else ''} before"
    return f"{minutes} minutes before"


def rule(text: str) -> str:
    """A recurrence rule in words."""
    found = parts(text)
    unit, every = _UNITS[found["FREQ"]]
    interval = int(found.get("INTERVAL", 1))
    said = every if interval == 1 else f"Every {interval} {unit}s"
    days = found.get("BYDAY", "")
    if found["FREQ"] == "WEEKLY" and days:
        said = "Every weekday" if interval == 1 and set(days.split(",")) == set(DAYS[:5]) else f"{said} on {_listed(_names(days))}"
    elif days:
        said = f"{said} on the {_listed(_numbered(days, found.get('BYSETPOS')))}"
    elif "BYMONTHDAY" in found:
        said = f"{said} on day {found['BYMONTHDAY']}"
    return said + _ending(found)


def _ending(found: dict[str, Any]) -> str:
    if "COUNT" in found:
        return f", {found['COUNT']} times"
    if "UNTIL" in found:
        day = datetime.strptime(found["UNTIL"][:8], "%Y%m%d").date()
        return f", until {day.day} {MONTHS[day.month - 1][:3]} {day.year}"
    return ""


def _names(days: str) -> list[str]:
    return [WEEKDAYS[DAYS.index(day)] for day in sorted(days.split(","), key=DAYS.index)]


def _numbered(days: str, position: str | None) -> list[str]:
    found = []
    for day in days.split(","):
        number = day[:-2] or position or ""
        found.append(f"{_ORDINALS.get(int(number), number) if number else 'every'} {WEEKDAYS[DAYS.index(day[-2:])]}")
    return found


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def week_start(day: date, starts: str) -> date:
    """The first day of a day's week."""
    offset = {"monday": 0, "sunday": 6, "saturday": 5}[starts]
    return day - timedelta(days=(day.weekday() - offset) % 7)
