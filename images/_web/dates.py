"""Days relative to a base week: `{+N Day}` is the base Monday + 7 N + the weekday; texts turned to such templates and back."""

from __future__ import annotations

import re
from datetime import date, timedelta

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december")
_FULL_DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_TEMPLATE = re.compile(rf"\{{\s*([+-]\d{{1,6}})\s+({_FULL_DAYS}|Tues|Thurs|Thur|{'|'.join(DAYS)})\.?\s*\}}", re.IGNORECASE)

_WEEKDAY = rf"(?:(?P<weekday>{_FULL_DAYS}|Tues|Thurs|Thur|Weds|{'|'.join(DAYS)})\b\.?,?\s+(?:the\s+)?)?"
_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?"
# A day of a month is no more digits, no time (10:30), no decimal (1.5) and no share (15%).
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?(?![\d:%]|\.\d|[/-]\d|\s?(?:am|pm|AM|PM)\b|st|nd|rd|th)"
_YEAR = r"(?:,?\s+(?P<{0}>\d{{4}})(?![\d:]))?"
_TO = r"\s?[-\u2013\u2014]\s?|\s+(?:to|through|thru|until|till|and)\s+"
# A range may be written with a bare hyphen, which elsewhere cannot follow a day.
_FIRST = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"

_ISO = re.compile(rf"{_WEEKDAY}(?<![\d-])(?P<iso>\d{{4}}-\d{{2}}-\d{{2}})(?![\d-]|\.\d)")
_ISO_RANGE = re.compile(r"(?<![\d-])(?P<first>\d{4}-\d{2}-\d{2})-(?P<last>\d{4}-\d{2}-\d{2})(?![\d-]|\.\d)")
_MONTH_RANGE = re.compile(rf"{_WEEKDAY}\b(?P<month>{_MONTH})\s+(?P<from>{_FIRST})(?P<to>{_TO})(?P<day>{_DAY}){_YEAR.format('year')}")
_DAY_RANGE = re.compile(rf"{_WEEKDAY}\b(?P<from>{_FIRST})(?P<to>{_TO})(?P<day>{_DAY})\s+(?:of\s+)?(?P<month>{_MONTH}){_YEAR.format('year')}")
_MONTH_DAY = re.compile(rf"{_WEEKDAY}\b(?P<month>{_MONTH})\s+(?:the\s+)?(?P<day>{_DAY}){_YEAR.format('year')}")
_DAY_MONTH = re.compile(rf"{_WEEKDAY}\b(?P<day>{_FIRST})\s+(?:of\s+)?(?P<month>{_MONTH}){_YEAR.format('year')}")


def monday(day: date) -> date:
    """The Monday of a day's week; a day before the first Monday of the calendar is its own."""
    return day - timedelta(days=min(day.weekday(), day.toordinal() - 1))


def template(day: date, base: date) -> str:
    """`{+N Day}` for a day."""
    weeks, weekday = divmod((day - monday(base)).days, 7)
    return f"{{{weeks:+d} {DAYS[weekday]}}}"


def from_templates(text: str, base: date) -> str:
    """`text` with every `{+N Day}` as an ISO date; one outside the calendar (years 1 to 9999) stays."""

    def iso(found: re.Match[str]) -> str:
        weekday = DAYS.index(found[2][:3].title())
        try:
            return (monday(base) + timedelta(days=7 * int(found[1]) + weekday)).isoformat()
        except OverflowError:
            return found[0]

    return _TEMPLATE.sub(iso, text)


def unread(text: str) -> list[str]:
    """What looks like a template in `text` and is none."""
    return [found for found in re.findall(r"\{\s*[+-]\s*\d[^{}]{0,40}\}", text) if not _TEMPLATE.fullmatch(found)]


def to_templates(text: str, base: date) -> str:
    """`text` with every absolute date as `{+N Day}`.

    Known are ISO dates, `January 15, 2025`, `Jan 15`, `15 January 2025`, `the 15th of January`, ranges of them (`January 6-10`), each with or
    without its weekday.
    A date without a year is the one nearest to the base. Where a weekday disagrees with its date, or there is no such day, the text stays as it is.
    """

    def iso(found: re.Match[str]) -> str:
        return _replaced(found, _iso(found["iso"]), base)

    def iso_range(found: re.Match[str]) -> str:
        first, last = _iso(found["first"]), _iso(found["last"])
        return found[0] if first is None or last is None else f"{template(first, base)}-{template(last, base)}"

    def single(found: re.Match[str]) -> str:
        return _replaced(found, _day(found, found["day"], base), base)

    def double(found: re.Match[str]) -> str:
        last = _day(found, found["day"], base)
        first = _day(found, found["from"], base, last)
        if last is None or first is None or first > last or not _agrees(found["weekday"], first):
            return found[0]
        return f"{template(first, base)}{found['to']}{template(last, base)}"

    rules = ((_ISO_RANGE, iso_range), (_ISO, iso), (_MONTH_RANGE, double), (_DAY_RANGE, double), (_MONTH_DAY, single), (_DAY_MONTH, single))
    for pattern, put in rules:
        text = pattern.sub(put, text)
    return text


def _replaced(found: re.Match[str], day: date | None, base: date) -> str:
    if day is None or not _agrees(found["weekday"], day):
        return found[0]
    return template(day, base)


def _agrees(weekday: str | None, day: date) -> bool:
    return weekday is None or DAYS[day.weekday()] == weekday[:3].title()


def _iso(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _day(found: re.Match[str], number: str, base: date, year_of: date | None = None) -> date | None:
    """The day that a month's name and a number mean; without a year the one nearest to the base."""
    month = next(n for n, name in enumerate(_MONTHS, 1) if name.startswith(found["month"].rstrip(".").lower()[:3]))
    day = int(re.match(r"\d+", number)[0])  # type: ignore[index]  # the pattern begins with a digit
    if found["year"] or year_of:
        return _valid(int(found["year"]) if found["year"] else year_of.year if year_of else 0, month, day)
    near = [d for d in (_valid(base.year + n, month, day) for n in (-1, 0, 1)) if d is not None]
    return min(near, key=lambda d: abs((d - base).days), default=None)


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
