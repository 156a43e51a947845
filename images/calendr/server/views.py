"""Day, week, month and agenda."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from _server.faults import Fault
from _web.pages import Page
from starlette.responses import RedirectResponse, Response

from . import layout
from .occurrences import Seen, between
from .shell import day_of, today
from .texts import MONTHS, days_title, short_title, week_start
from .who import who

AGENDA_DAYS = 14
MONTH_LANES = 4


def home(page: Page) -> Response:
    """The view that the settings ask for, today."""
    return _VIEWS[who(page).settings["default_view"]](page)


def redirect_home(page: Page) -> Response:
    """To the default view."""
    return RedirectResponse("/", 303)


def asked_day(page: Page) -> date:
    """The day of the address; Fault 404."""
    text = page.request.path_params.get("day")
    if text is None:
        return today(page)
    day = day_of(str(text))
    if day is None:
        raise Fault(404, "NotFound", f"“{text}” is no day.", "Write it as 2026-03-10.")
    return day


def day(page: Page) -> Response:
    """One day by the hour."""
    shown = asked_day(page)
    return _grid(page, "day", [shown], shown - timedelta(days=1), shown + timedelta(days=1), short_title(shown))


def week(page: Page) -> Response:
    """Seven days by the hour, or five without the weekend."""
    viewer = who(page)
    first = week_start(asked_day(page), viewer.settings["week_start"])
    days = [first + timedelta(days=n) for n in range(7)]
    shown = days if viewer.settings["show_weekends"] else [d for d in days if d.weekday() < 5]
    return _grid(page, "week", shown, first - timedelta(days=7), first + timedelta(days=7), days_title(shown[0], shown[-1]))


def _grid(page: Page, view: str, days: list[date], previous: date, following: date, title: str) -> Response:
    viewer = who(page)
    seen = between(page, days[0], days[-1] + timedelta(days=1))
    ids = layout.Ids()
    bars = layout.bars(days, [s for s in seen if layout.is_bar(s)], ids)
    timed = [s for s in seen if not layout.is_bar(s)]
    columns = []
    for d in days:
        of_day = [s for s in timed if s.what.first_day <= d <= s.what.last_day]
        columns.append({"day": d, "blocks": layout.blocks(d, of_day, ids)})
    now = page.session.now.astimezone(viewer.zone)
    return page.render(
        "grid.html",
        view=view,
        title=title,
        columns=columns,
        bars=bars,
        lanes=max((b.lane + 1 for b in bars), default=0),
        now=now,
        now_minute=now.hour * 60 + now.minute,
        previous=f"/{view}/{previous}",
        next=f"/{view}/{following}",
        day_start=_minutes(viewer.settings["day_start"]),
        day_end=_minutes(viewer.settings["day_end"]),
        here_day=today(page) if days[0] <= today(page) <= days[-1] else days[0],
    )


def _minutes(text: str) -> int:
    moment = datetime.strptime(text, "%H:%M")
    return moment.hour * 60 + moment.minute


def month(page: Page) -> Response:
    """A month in weeks."""
    viewer = who(page)
    first = asked_day(page).replace(day=1)
    start = week_start(first, viewer.settings["week_start"])
    last = (first + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    count = ((last - start).days // 7 + 1) * 7
    seen = between(page, start, start + timedelta(days=count))
    ids = layout.Ids()
    weeks = []
    for n in range(0, count, 7):
        days = [start + timedelta(days=n + m) for m in range(7)]
        days = days if viewer.settings["show_weekends"] else [d for d in days if d.weekday() < 5]
        weeks.append(_week_row(days, seen, ids))
    return page.render(
        "month.html",
        view="month",
        title=f"{MONTHS[first.month - 1]} {first.year}",
        weeks=weeks,
        first=first,
        previous=f"/month/{_month(first - timedelta(days=1))}",
        next=f"/month/{_month(first + timedelta(days=32))}",
        here_day=max(first, min(today(page), last)) if first <= today(page) <= last else first,
    )


def _month(day: date) -> str:
    return f"{day.year:04}-{day.month:02}"


def _week_row(days: list[date], seen: list[Seen], ids: layout.Ids) -> dict[str, Any]:
    """One row of the month: bars in lanes, the rest of each day below, as many as there is room for, and how many more there are."""
    touching = [s for s in seen if s.what.first_day <= days[-1] and s.what.last_day >= days[0]]
    bars = layout.bars(days, touching, ids)
    # The last lane is for the number of those that are not shown, on days where some are not.
    full = {n for b in bars if b.lane >= MONTH_LANES for n in range(b.first, b.first + b.days)}
    shown: list[layout.Bar] = []
    hidden: list[layout.Bar] = []
    for b in bars:
        fits = b.lane < MONTH_LANES - 1 or (b.lane == MONTH_LANES - 1 and full.isdisjoint(range(b.first, b.first + b.days)))
        (shown if fits else hidden).append(b)
    more = [sum(1 for b in hidden if b.first <= n < b.first + b.days) for n in range(len(days))]
    return {"days": days, "bars": shown, "more": more}


def agenda(page: Page) -> Response:
    """Two weeks as a list."""
    first = asked_day(page)
    after = first + timedelta(days=AGENDA_DAYS)
    days: dict[date, list[Seen]] = {}
    for seen in between(page, first, after):
        d = max(seen.what.first_day, first)
        while d <= min(seen.what.last_day, after - timedelta(days=1)):
            days.setdefault(d, []).append(seen)
            d += timedelta(days=1)
    ids = layout.Ids()
    listed = [(d, [(s, ids.of(s.ref)) for s in sorted(days[d], key=lambda s: (not layout.is_bar(s), s.what.start))]) for d in sorted(days)]
    return page.render(
        "agenda.html",
        view="agenda",
        title=days_title(first, after - timedelta(days=1)),
        days=listed,
        previous=f"/agenda/{first - timedelta(days=AGENDA_DAYS)}",
        next=f"/agenda/{after}",
        here_day=first,
        now=page.session.now,
    )


_VIEWS = {"day": day, "week": week, "month": month, "agenda": agenda}
