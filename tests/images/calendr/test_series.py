"""Series that repeat by month and by year: moved as a whole or from one on, with the days left out of them and the occurrences changed."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from _server import recurrence
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.images.calendr.conftest import Open
from tests.images.calendr.test_browser import drag, settled
from tests.images.calendr.test_forms import rows, visitor
from tests.images.web.website import Visitor, Website, website

__all__ = ["visitor"]
ZONE = ZoneInfo("America/New_York")
START = datetime(2026, 3, 10, 9)
RULES = (
    "FREQ=MONTHLY", "FREQ=MONTHLY;BYMONTHDAY=10", "FREQ=MONTHLY;BYDAY=2TU", "FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=10", "FREQ=MONTHLY;BYDAY=-4TU",
    "FREQ=YEARLY", "FREQ=YEARLY;BYMONTH=3;BYMONTHDAY=10", "FREQ=YEARLY;BYMONTH=3;BYDAY=2TU", "FREQ=WEEKLY;BYDAY=TU", "FREQ=WEEKLY;BYDAY=TU,FR", "FREQ=DAILY",
)  # fmt: skip


def text(moment: datetime) -> str:
    return recurrence.stored(moment, ZONE, False)


@settings(max_examples=300, deadline=None)
@example(rule="FREQ=MONTHLY;BYDAY=-4TU", n=2, days=-3, end="")  # 2 May is a fifth Saturday from the end, and the first
@given(rule=st.sampled_from(RULES), n=st.integers(0, 8), days=st.integers(-9, 9), end=st.sampled_from(["", ";COUNT=9", ";UNTIL=20400101T000000Z"]))
def test_a_rule_moved_by_one_occurrence_gives_that_day(rule: str, n: int, days: int, end: str) -> None:
    before = recurrence.checked(rule + end, START)
    was = recurrence.nth(before, text(START), ZONE, n)
    assert was is not None
    old = recurrence.wall(was, ZONE)
    new = old + timedelta(days=days)
    after = recurrence.moved(before, old.date(), new.date())
    start = recurrence.nearest(after, START + timedelta(days=days))
    # Months differ in length and in where their weekdays fall: the series moves by about as much, and stays one of its rule.
    assert abs(start - START - timedelta(days=days)) <= timedelta(days=16)
    recurrence.checked(after, start)
    assert recurrence.pattern(after).keys() == recurrence.pattern(before).keys()
    fits_any_day = not recurrence.parts(rule).keys() & {"BYDAY", "BYMONTHDAY"}
    if not fits_any_day and "INTERVAL" not in rule:
        assert recurrence.is_given(after.partition(";COUNT")[0], text(start), ZONE, text(new)), (after, start, new)


@pytest.mark.parametrize(
    "rule", ["FREQ=MONTHLY;BYMONTHDAY=10,25", "FREQ=MONTHLY;BYDAY=MO,TU,WE;BYSETPOS=-1", "FREQ=YEARLY;BYMONTH=3,9;BYMONTHDAY=10", "FREQ=YEARLY;BYDAY=10TU"]
)
def test_several_days_cannot_move_by_moving_one(rule: str) -> None:
    with pytest.raises(recurrence.RuleError, match="several days"):
        recurrence.moved(rule, date(2026, 3, 31), date(2026, 4, 2))
    assert recurrence.moved(rule, date(2026, 3, 10), date(2026, 3, 10)) == rule


def made(visitor: Visitor, repeat: str, **more: str) -> None:
    """evt-1: a series of a month or year that begins on Tuesday 10 March; its third occurrence is left out, its second is an hour later (evt-2)."""
    visitor.get("/events/new?date=2026-03-10")
    assert visitor.submit("event-form", title="Rent", repeat=repeat, start_time="09:00", end_time="09:30", **more).status == 303


def move(visitor: Visitor, ref: str, start: str, scope: str) -> int:
    """Drag an occurrence of half an hour to another time; the answer's status."""
    end = (datetime.fromisoformat(start) + timedelta(minutes=30)).isoformat()
    visitor.get("/week/2026-03-09")
    return visitor.post(f"/events/{ref}/move", {"start": start, "end": end, "scope": scope}).status


def shown(visitor: Visitor, *months: str) -> list[str]:
    """When anything called Rent is shown in these months."""
    import re

    found: list[str] = []
    for month in months:
        visitor.get(f"/month/{month}")
        events = re.findall(r'data-start="([^"]+)"[^>]*>(.*?)</a>', visitor.html, re.DOTALL)
        found += [start for start, inside in events if "Rent" in inside and start.startswith(month)]
    return sorted(set(found))


MONTHS = ("2026-03", "2026-04", "2026-05", "2026-06", "2026-07")


def with_exceptions(visitor: Visitor, second: str, third: str) -> None:
    assert move(visitor, f"evt-1_{second}", f"{second}T10:00", "this") == 303
    visitor.get(f"/events/evt-1_{third}/delete")
    assert visitor.submit("delete-form", scope="this").status == 303


@pytest.mark.parametrize(
    ("repeat", "second", "third", "dragged", "to", "rule", "exdate", "original", "seen"),
    [
        (
            "monthly", "2026-04-10", "2026-05-10", "2026-06-10", "2026-06-12", "FREQ=MONTHLY;BYMONTHDAY=12", "2026-05-12", "2026-04-12",
            ["2026-03-12T09:00", "2026-04-10T10:00", "2026-06-12T09:00", "2026-07-12T09:00"],
        ),
        (
            "monthly-weekday", "2026-04-14", "2026-05-12", "2026-06-09", "2026-06-11", "FREQ=MONTHLY;BYDAY=2TH", "2026-05-14", "2026-04-09",
            ["2026-03-12T09:00", "2026-04-14T10:00", "2026-06-11T09:00", "2026-07-09T09:00"],
        ),
        (  # the last Thursday of a month is another week of it
            "monthly-weekday", "2026-04-14", "2026-05-12", "2026-03-10", "2026-03-05", "FREQ=MONTHLY;BYDAY=1TH", "2026-05-07", "2026-04-02",
            ["2026-03-05T09:00", "2026-04-14T10:00", "2026-06-04T09:00", "2026-07-02T09:00"],
        ),
    ],
)  # fmt: skip
def test_all_of_a_monthly_series_dragged(
    visitor: Visitor, repeat: str, second: str, third: str, dragged: str, to: str, rule: str, exdate: str, original: str, seen: list[str]
) -> None:
    made(visitor, repeat)
    with_exceptions(visitor, second, third)
    assert move(visitor, f"evt-1_{dragged}", f"{to}T09:00", "all") == 303
    (series,) = rows(visitor, "events", id="evt-1")
    assert (series["recurrence"], series["exdates"]) == (rule, [exdate])
    (own,) = rows(visitor, "events", recurring_event_id="evt-1")
    assert own["original_start"][:10] == original, "the second one stays the second one"
    assert shown(visitor, *MONTHS) == seen
    visitor.post("/undo", {})
    assert rows(visitor, "events", id="evt-1")[0]["exdates"] == [third]


def test_the_following_of_a_monthly_series_dragged(visitor: Visitor) -> None:
    made(visitor, "monthly", repeat_end="until", repeat_until="2026-07-10")
    visitor.get("/events/evt-1_2026-06-10/delete")
    visitor.submit("delete-form", scope="this")
    assert move(visitor, "evt-1_2026-05-10", "2026-05-12T09:00", "following") == 303
    (head,) = rows(visitor, "events", id="evt-1")
    (tail,) = rows(visitor, "events", id="evt-2")
    assert head["recurrence"] == "FREQ=MONTHLY;BYMONTHDAY=10;UNTIL=20260510T125959Z"
    assert (tail["start"], tail["exdates"]) == ("2026-05-12T09:00:00-04:00", ["2026-06-12"])
    assert shown(visitor, *MONTHS) == ["2026-03-10T09:00", "2026-04-10T09:00", "2026-05-12T09:00", "2026-07-12T09:00"], "none is lost at the end"


def test_all_of_a_yearly_series(visitor: Visitor) -> None:
    made(visitor, "yearly")
    visitor.get("/events/evt-1_2027-03-10/delete")
    visitor.submit("delete-form", scope="this")
    assert move(visitor, "evt-1_2028-03-10", "2028-03-13T09:00", "all") == 303
    (series,) = rows(visitor, "events", id="evt-1")
    assert (series["start"], series["exdates"], series["recurrence"]) == ("2026-03-13T09:00:00-04:00", ["2027-03-13"], "FREQ=YEARLY")
    assert shown(visitor, "2026-03", "2027-03", "2028-03") == ["2026-03-13T09:00", "2028-03-13T09:00"]


def test_the_form_moves_a_series_like_a_drag(visitor: Visitor) -> None:
    made(visitor, "monthly-weekday", repeat_end="count", repeat_count="4")
    with_exceptions(visitor, "2026-04-14", "2026-05-12")
    visitor.get("/events/evt-1_2026-06-09/edit")
    assert visitor.submit("event-form", scope="all", start_date="2026-06-10", end_date="2026-06-10", title="Rent due").status == 303
    (series,) = rows(visitor, "events", id="evt-1")
    assert (series["start"][:10], series["recurrence"], series["exdates"]) == ("2026-03-11", "FREQ=MONTHLY;BYDAY=2WE;COUNT=4", ["2026-05-13"])
    assert [own["original_start"][:10] for own in rows(visitor, "events", recurring_event_id="evt-1")] == ["2026-04-08"]


def test_another_rule_forgets_what_was_left_out(visitor: Visitor) -> None:
    made(visitor, "monthly")
    with_exceptions(visitor, "2026-04-10", "2026-05-10")
    visitor.get("/events/evt-1_2026-03-10/edit")
    assert visitor.submit("event-form", scope="all", repeat="monthly-weekday").status == 303
    assert rows(visitor, "events", id="evt-1")[0]["exdates"] == []
    assert rows(visitor, "events", recurring_event_id="evt-1") == []


def test_from_the_first_that_is_left_on_is_all(visitor: Visitor) -> None:
    made(visitor, "monthly")
    visitor.get("/events/evt-1_2026-03-10/delete")
    visitor.submit("delete-form", scope="this")
    assert move(visitor, "evt-1_2026-04-10", "2026-04-10T11:00", "following") == 303
    assert rows(visitor, "events", id="evt-2") == []
    assert rows(visitor, "events", id="evt-1")[0]["start"] == "2026-03-10T11:00:00-04:00"
    visitor.get("/events/evt-1_2026-04-10/delete")
    visitor.submit("delete-form", scope="following")
    assert [row["event_id"] for row in rows(visitor, "trash")] == ["evt-1"], "nothing of it is left"


def test_days_left_out_move_with_a_week(visitor: Visitor) -> None:
    """The stand-up, Mondays to Fridays, has no Friday 13 March."""
    visitor.get("/week/2026-03-09")
    visitor.post("/events/evt-standup_2026-03-10/move", {"start": "2026-03-11T09:30", "end": "2026-03-11T09:45", "scope": "following"})
    (tail,) = rows(visitor, "events", id="evt-1")
    assert (tail["recurrence"], tail["exdates"]) == ("FREQ=WEEKLY;BYDAY=TU,WE,TH,FR,SA", ["2026-03-14"])


def test_a_month_dragged_by_the_mouse(site: Website, visit: Open, request: pytest.FixtureRequest) -> None:
    name = request.node.name
    site.reset(name)
    visitor = Visitor(site, name)
    made(visitor, "monthly")
    with_exceptions(visitor, "2026-04-10", "2026-05-10")
    page = visit("/month/2026-06", session=name)
    cell = page.locator(".cell").first.bounding_box()
    assert cell is not None
    drag(page, "#event-evt-1_2026-06-10", 2 * cell["width"], 0)
    page.wait_for_selector("dialog[open] #scope-all")
    page.check("#scope-all")
    page.click("#confirm-move")
    settled(page, "Moved")
    page.wait_for_selector("#event-evt-1_2026-06-12")
    (series,) = rows(visitor, "events", id="evt-1")
    assert (series["start"], series["recurrence"], series["exdates"]) == ("2026-03-12T09:00:00-04:00", "FREQ=MONTHLY;BYMONTHDAY=12", ["2026-05-12"])
    page.click("#undo")
    settled(page, "Undone")
    page.wait_for_selector("#event-evt-1_2026-06-10")


def test_a_series_of_several_days_says_why_it_stays(tmp_path_factory: pytest.TempPathFactory) -> None:
    import shutil

    from tests.images.web.website import PACKS

    folder = tmp_path_factory.mktemp("packs")
    shutil.copytree(PACKS / "studio", folder / "studio")
    with (folder / "studio" / "events.yaml").open("a", encoding="utf-8") as file:
        file.write('- {id: evt-pay, calendar_id: cal-maya, title: Rent, start: "{+0 Mon} 09:00", end: "{+0 Mon} 09:30", organizer_id: per-maya,')
        file.write(' recurrence: "FREQ=MONTHLY;BYMONTHDAY=9,24"}\n')
    with website(tmp_path_factory.mktemp("data"), PACKS=str(folder)) as site:
        site.reset("pay")
        visitor = Visitor(site, "pay")
        before = rows(visitor, "events", id="evt-pay")
        assert move(visitor, "evt-pay_2026-03-24", "2026-03-25T09:00", "all") == 422
        assert rows(visitor, "events", id="evt-pay") == before
        assert move(visitor, "evt-pay_2026-03-24", "2026-03-24T11:00", "all") == 303, "another time of day is no other day"
        assert rows(visitor, "events", id="evt-pay")[0]["start"] == "2026-03-09T11:00:00-04:00"
        assert move(visitor, "evt-pay_2026-03-24", "2026-03-25T09:00", "this") == 303
