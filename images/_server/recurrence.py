"""Recurrence rules of RFC 5545: checked, expanded in the event's own zone, shifted and cut in two."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import cast
from zoneinfo import ZoneInfo

from dateutil.rrule import rrule, rrulestr

from .times import utc_text


class RuleError(ValueError):
    """A rule cannot be what it says: `message`, and `hint`, the way out."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint


DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_LONGEST = timedelta(days=366)
_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYSETPOS", "WKST"})
_EXAMPLE = "for instance FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8"


def parts(rule: str) -> dict[str, str]:
    """The rule's parts by name, upper case; RuleError when it is not NAME=VALUE;NAME=VALUE."""
    found: dict[str, str] = {}
    for piece in rule.upper().removeprefix("RRULE:").strip().rstrip(";").split(";"):
        name, equals, value = piece.partition("=")
        if not equals or not value or name in found:
            raise RuleError(f"{rule!r} is no RFC 5545 rule: {piece!r}", _EXAMPLE)
        found[name] = value
    return found


def joined(found: dict[str, str]) -> str:
    """The rule made of these parts."""
    return ";".join(f"{name}={value}" for name, value in found.items())


def checked(rule: str, start: datetime) -> str:
    """`rule` in its normal form if `start` (wall clock of the event's zone) is its first occurrence; RuleError."""
    found = parts(rule)
    if unknown := sorted(found.keys() - _PARTS):
        raise RuleError(f"a rule here cannot have {', '.join(unknown)}", f"its parts are {', '.join(sorted(_PARTS))}")
    if found.get("FREQ") not in ("DAILY", "WEEKLY", "MONTHLY", "YEARLY"):
        raise RuleError("a rule needs FREQ=DAILY, WEEKLY, MONTHLY or YEARLY", _EXAMPLE)
    if "COUNT" in found and "UNTIL" in found:
        raise RuleError("a rule ends by COUNT or by UNTIL, not both")
    if "BYSETPOS" in found and found["FREQ"] not in ("MONTHLY", "YEARLY"):
        raise RuleError("BYSETPOS goes with FREQ=MONTHLY or YEARLY only")
    normal = joined(found)
    try:
        _check_numbers(found)
        first = _first(normal, found, start)
    except (ValueError, OverflowError, TypeError, AttributeError) as error:
        raise RuleError(f"{rule!r} is no RFC 5545 rule: {error}", _EXAMPLE) from error
    if first != start:
        near = f"the first such time is {first.isoformat()}" if first else "its month or day is another one"
        raise RuleError(
            f"the event starts at {start.isoformat()} ({DAYS[start.weekday()]}), which the rule {normal} does not give; {near}",
            "move the start or change the rule",
        )
    if not _parsed(normal, start, None).between(start, start, inc=True):
        raise RuleError(f"{normal} ends before the event starts", "give a later UNTIL")
    return normal


def _first(rule: str, found: dict[str, str], start: datetime) -> datetime | None:
    """The first occurrence in the year after `start`. dateutil walks to the year 9999 for one that never comes (30 February), so look first."""
    months, days = ([int(n) for n in found[name].split(",")] if name in found else [] for name in ("BYMONTH", "BYMONTHDAY"))
    last = (start.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
    if (months and start.month not in months) or (days and not {start.day, start.day - last.day - 1} & set(days)):
        return None
    return next(iter(_parsed(rule, start, None).replace(count=None, until=start + _LONGEST)), None)


def _check_numbers(found: dict[str, str]) -> None:
    """Ranges that dateutil lets through or loops over."""
    for name, low, high in (("INTERVAL", 1, 1000), ("COUNT", 1, 10000)):
        if name in found and not low <= int(found[name]) <= high:
            raise ValueError(f"{name} is {low} to {high}")
    for name, high in (("BYMONTH", 12), ("BYMONTHDAY", 31), ("BYSETPOS", 366)):
        for text in found.get(name, "1").split(","):
            if not 1 <= abs(int(text)) <= high or (name == "BYMONTH" and int(text) < 0):
                raise ValueError(f"{name} is 1 to {high}")
    if found["FREQ"] in ("DAILY", "WEEKLY") and any(len(day) > 2 for day in found.get("BYDAY", "").split(",")):
        raise ValueError("a numbered BYDAY goes with FREQ=MONTHLY or YEARLY only")


@lru_cache(maxsize=4096)
def _parsed(rule: str, start: datetime, zone: ZoneInfo | None) -> rrule:
    """dateutil's rule over wall-clock times; UNTIL becomes a wall-clock time too, since dateutil wants both alike."""
    found = parts(rule)
    until = found.pop("UNTIL", None)
    made = cast(rrule, rrulestr(joined(found), dtstart=start))
    return made.replace(until=_wall_clock(until, zone)) if until else made


def _wall_clock(until: str, zone: ZoneInfo | None) -> datetime:
    if len(until) == 8:
        return datetime.strptime(until, "%Y%m%d").replace(hour=23, minute=59, second=59)
    if not until.endswith("Z"):
        return datetime.strptime(until, "%Y%m%dT%H%M%S")
    return datetime.strptime(until, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).astimezone(zone or UTC).replace(tzinfo=None)


def wall(stored: str, zone: ZoneInfo) -> datetime:
    """A stored instant or day as a naive wall-clock time of `zone`."""
    moment = datetime.fromisoformat(stored)
    return moment if moment.tzinfo is None else moment.astimezone(zone).replace(tzinfo=None)


def stored(moment: datetime, zone: ZoneInfo, all_day: bool) -> str:
    """A wall-clock time of `zone` as it is stored. In the hour that spring leaves out, RFC 5545's reading: the offset before it."""
    return moment.date().isoformat() if all_day else utc_text(moment.replace(tzinfo=zone))


@lru_cache(maxsize=1024)
def length(start: str, end: str) -> timedelta:
    """How long an event takes; an all-day one at least a day."""
    took = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return max(took, timedelta(days=1)) if len(start) == 10 else took


@lru_cache(maxsize=8192)
def spans(rule: str, start: str, end: str, zone: ZoneInfo, after: str, before: str) -> tuple[tuple[str, str], ...]:
    """Stored (start, end) of every occurrence that can touch the instants [after, before), up to a day around them.

    `start`, `end` are the first occurrence's. Wall-clock times repeat; each lasts exactly as long as the first (RFC 5545, DTEND).
    """
    first, lasts, all_day = wall(start, zone), length(start, end), len(start) == 10
    margin = timedelta(days=1)
    found = _parsed(rule, first, zone).between(wall(after, zone) - lasts - margin, wall(before, zone) + margin, inc=True)
    return tuple((begin, plus(begin, lasts)) for begin in (stored(moment, zone, all_day) for moment in found))


def plus(begin: str, lasts: timedelta) -> str:
    """A stored time later by so much."""
    if len(begin) == 10:
        return (datetime.fromisoformat(begin) + lasts).date().isoformat()
    return utc_text(datetime.fromisoformat(begin) + lasts)


def upcoming(rule: str, start: str, zone: ZoneInfo, after: str, limit: int) -> list[str]:
    """The stored starts of the next `limit` occurrences at or after the instant `after`."""
    first = wall(start, zone)
    later = _parsed(rule, first, zone).xafter(wall(after, zone), inc=True)
    return [stored(moment, zone, len(start) == 10) for moment in islice(later, limit)]


def before(rule: str, start: str, zone: ZoneInfo, at: str) -> int:
    """How many occurrences the rule gives before the one at `at`."""
    first, cut = wall(start, zone), wall(at, zone)
    if cut <= first:
        return 0
    return len(_parsed(rule, first, zone).between(first, cut - timedelta(seconds=1), inc=True))


def cut(rule: str, start: str, zone: ZoneInfo, at: str) -> tuple[str, str]:
    """The rule up to but without the occurrence at `at`, and the rule from it on."""
    found = parts(rule)
    head = {name: value for name, value in found.items() if name not in ("COUNT", "UNTIL")}
    last = wall(at, zone) - timedelta(days=1) if len(at) == 10 else datetime.fromisoformat(at) - timedelta(seconds=1)
    head["UNTIL"] = last.strftime("%Y%m%d" if len(at) == 10 else "%Y%m%dT%H%M%SZ")
    if "COUNT" in found:
        found["COUNT"] = str(int(found["COUNT"]) - before(rule, start, zone, at))
    return joined(head), joined(found)


def shifted(rule: str, days: int) -> str:
    """The rule after its first occurrence moved by whole days: the weekdays that a daily or weekly rule names move along."""
    found = parts(rule)
    if days % 7 and found["FREQ"] in ("DAILY", "WEEKLY") and "BYDAY" in found:
        moved = {DAYS[(DAYS.index(day) + days) % 7] for day in found["BYDAY"].split(",")}
        found["BYDAY"] = ",".join(day for day in DAYS if day in moved)
    return joined(found)


def moved(rule: str, was: date, now: date) -> str:
    """The rule after one of its occurrences moved to another day and all others with it; RuleError where the days it names cannot move along."""
    found = parts(rule)
    if was == now:
        return joined(found)
    if found["FREQ"] in ("DAILY", "WEEKLY"):
        found = parts(shifted(rule, (now - was).days))
    else:
        found |= {name: _moved(name, found, was, now) for name in found.keys() & {"BYDAY", "BYMONTHDAY", "BYMONTH", "BYSETPOS"}}
    if "UNTIL" in found:
        found["UNTIL"] = _later(found["UNTIL"], now - was)
    return joined(found)


def _moved(name: str, found: dict[str, str], was: date, now: date) -> str:
    """What a part of a monthly or yearly rule that names days says of another day."""
    value, in_month = found[name], found["FREQ"] == "MONTHLY" or "BYMONTH" in found
    if name == "BYMONTH" and was.month == now.month:
        return value
    if "," in value or name == "BYSETPOS" or not in_month:
        raise RuleError("it repeats on several days, which cannot all be moved by moving one", "move only this one, or change how it repeats")
    if name == "BYMONTH":
        return str(now.month)
    if name == "BYMONTHDAY":
        return str(now.day if int(value) > 0 else now.day - _last_day(now) - 1)
    day = DAYS[now.weekday()]
    if len(value) == 2:
        return day
    from_end = (_last_day(now) - now.day) // 7 + 1
    return f"{-from_end if value.startswith('-') and from_end < 5 else nth_of_month(now)}{day}"  # few months have a fifth, from either end


def nth_of_month(day: date) -> int:
    """Which of its weekday in its month a day is; the fifth counts as the last."""
    nth = (day.day - 1) // 7 + 1
    return -1 if nth == 5 else nth


def _last_day(day: date) -> int:
    return ((day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)).day


def _later(until: str, by: timedelta) -> str:
    shape = "%Y%m%d" if len(until) == 8 else "%Y%m%dT%H%M%S" + ("Z" if until.endswith("Z") else "")
    return (datetime.strptime(until, shape) + by).strftime(shape)


def nearest(rule: str, moment: datetime) -> datetime:
    """The time nearest to a wall-clock time that a monthly or yearly rule gives, wherever it begins; that time where the rule fits any day."""
    found = {name: value for name, value in pattern(rule).items() if name != "INTERVAL"}
    if found["FREQ"] in ("DAILY", "WEEKLY") or not found.keys() & {"BYDAY", "BYMONTHDAY", "BYMONTH"}:
        return moment
    every = _parsed(joined(found), moment - 2 * _LONGEST, None)
    near = [t for t in (every.before(moment, inc=True), every.after(moment, inc=True)) if t is not None]
    return min(near, key=lambda t: abs(t - moment), default=moment)


def nth(rule: str, start: str, zone: ZoneInfo, n: int) -> str | None:
    """The stored start of the occurrence before which there are `n`; None: there are no more."""
    try:
        return stored(_parsed(rule, wall(start, zone), zone)[n], zone, len(start) == 10)
    except IndexError:
        return None


def is_given(rule: str, start: str, zone: ZoneInfo, at: str) -> bool:
    """Whether the rule gives the stored time `at`."""
    moment = wall(at, zone)
    return bool(_parsed(rule, wall(start, zone), zone).between(moment, moment, inc=True))


def until_text(day: date, zone: ZoneInfo, all_day: bool) -> str:
    """UNTIL for a series whose last day may be `day`: as RFC 5545 wants it, an instant for a series with times."""
    if all_day:
        return day.strftime("%Y%m%d")
    return datetime.combine(day, time(23, 59, 59), zone).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def until_day(until: str, zone: ZoneInfo) -> date:
    """The last day that an UNTIL allows."""
    return _wall_clock(until, zone).date()


def at_or_after(rule: str, start: datetime, moment: datetime) -> datetime | None:
    """The first occurrence at or after a wall-clock time of a series that begins at `start`; None: it has ended."""
    return _parsed(rule, start, None).after(moment, inc=True)


def first_wall(rule: str, start: datetime) -> datetime:
    """The first occurrence at or after a wall-clock time in a year; that time when there is none or the rule is none."""
    try:
        found = _parsed(rule, start, None).replace(count=None, until=start + _LONGEST)
    except (ValueError, RuleError):
        return start
    return next(iter(found), start)


def first(rule: str, start: str, zone: ZoneInfo) -> str:
    """The same of stored times."""
    return stored(first_wall(rule, wall(start, zone)), zone, len(start) == 10)


def pattern(rule: str) -> dict[str, str]:
    """The parts of a rule but for where it ends."""
    return {name: value for name, value in parts(rule).items() if name not in ("COUNT", "UNTIL")}
