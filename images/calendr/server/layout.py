"""Where events are drawn: side by side where they overlap in a day, in lanes where they last for days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from .occurrences import Seen

MINUTES = 24 * 60
SHORTEST = 22


@dataclass(frozen=True, slots=True)
class Block:
    """A part of an event in one day: minutes from midnight, its column of how many, and how many columns it may use."""

    seen: Seen
    id: str
    top: int
    height: int
    column: int
    of: int
    span: int
    begins: bool
    ends: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of an event over days of one row: first column, number of columns, lane."""

    seen: Seen
    id: str
    first: int
    days: int
    lane: int
    begins: bool
    ends: bool


class Ids:
    """Element ids of the parts of events: the first of a page has the plain one."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def of(self, ref: str) -> str:
        """The id of the next part of an event."""
        self._used[ref] = self._used.get(ref, 0) + 1
        return f"event-{ref}" if self._used[ref] == 1 else f"event-{ref}-{self._used[ref]}"


def is_bar(seen: Seen) -> bool:
    """Whether it is drawn over days: all-day, or at least a whole day long."""
    return seen.what.all_day or seen.what.end - seen.what.start >= timedelta(days=1)


def blocks(day: date, timed: Sequence[Seen], ids: Ids) -> list[Block]:
    """The timed events of one day, those that overlap side by side."""
    found: list[Block] = []
    group: list[tuple[Seen, int, int, int]] = []
    ends: list[int] = []
    for seen in timed:
        top, bottom = _minute(seen.what.start, day), max(_minute(seen.what.end, day), _minute(seen.what.start, day) + SHORTEST)
        if group and top >= max(ends):
            found += _placed(group, len(ends), day, ids)
            group, ends = [], []
        column = next((n for n, end in enumerate(ends) if end <= top), len(ends))
        ends[column:] = [bottom, *ends[column + 1 :]]
        group.append((seen, top, bottom, column))
    return found + _placed(group, len(ends), day, ids)


def _minute(moment: datetime, day: date) -> int:
    """Minutes since midnight by the wall clock, 0 to 1440."""
    return 0 if moment.date() < day else MINUTES if moment.date() > day else moment.hour * 60 + moment.minute


def _placed(group: list[tuple[Seen, int, int, int]], of: int, day: date, ids: Ids) -> list[Block]:
    made = []
    for seen, top, bottom, column in group:
        taken = [c for _, t, b, c in group if c > column and t < bottom and b > top]
        span = (min(taken) if taken else of) - column
        made.append(
            Block(seen, ids.of(seen.ref), top, bottom - top, column, of, span, seen.what.start.date() == day, seen.what.end.date() <= day or bottom < MINUTES)
        )
    return made


def bars(days: Sequence[date], seen: Sequence[Seen], ids: Ids) -> list[Bar]:
    """Events over the days of one row (in order), each in the first lane that is free; days that are not shown are left out."""
    free: list[int] = []
    found = []
    for s in sorted(seen, key=lambda s: (s.what.first_day, -(s.what.last_day - s.what.first_day).days, s.what.start, s.ref)):
        first, last = s.what.first_day, s.what.last_day
        shown = [n for n, day in enumerate(days) if first <= day <= last]
        if not shown:
            continue
        lane = next((n for n, until in enumerate(free) if until <= shown[0]), len(free))
        free[lane:] = [shown[-1] + 1, *free[lane + 1 :]]
        found.append(Bar(s, ids.of(s.ref), shown[0], len(shown), lane, first >= days[shown[0]], last <= days[shown[-1]]))
    return found
