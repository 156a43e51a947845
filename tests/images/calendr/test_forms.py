"""Calendr without JavaScript: every form does what it says, and only that."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.images.web.website import Visitor, Website


@pytest.fixture
def visitor(site: Website, request: pytest.FixtureRequest) -> Visitor:
    """A person in a fresh session of the test's own."""
    site.reset(request.node.name)
    return Visitor(site, request.node.name)


def rows(visitor: Visitor, table: str, **wanted: Any) -> list[dict[str, Any]]:
    """The rows of a table that have these values."""
    return [r for r in visitor.site.table(visitor.session, table) if all(r[k] == v for k, v in wanted.items())]


def starts(visitor: Visitor, title: str, address: str = "/agenda/2026-03-09") -> list[str]:
    """When an event is shown in two weeks, as day and time."""
    import re

    visitor.get(address)
    found = re.findall(r'data-start="([^"]+)"[^>]*>(.*?)</a>', visitor.html, re.DOTALL)
    return [start for start, inside in found if f"<strong>{title}</strong>" in inside]


def test_create(visitor: Visitor) -> None:
    visitor.get("/events/new?date=2026-03-12")
    answer = visitor.submit(
        "event-form",
        title="Coffee <b>& cake</b>",
        start_time="11:00",
        end_time="11:30",
        guests=["Jonas Weber", "new@lattice.example"],
        location="Bar",
        reminder="30",
    )
    assert answer.status == 303
    (event,) = rows(visitor, "events", title="Coffee <b>& cake</b>")
    assert event["id"] == "evt-1"
    assert event["start"] == "2026-03-12T11:00:00-04:00"
    assert event["organizer_id"] == "per-maya"
    assert event["created_at"] == "2026-03-11T09:12:00-04:00"
    assert [(g["email"], g["name"], g["response"]) for g in rows(visitor, "guests", event_id="evt-1")] == [
        ("jonas@harbor.example", "Jonas Weber", "needs_action"),
        ("new@lattice.example", "new@lattice.example", "needs_action"),
    ]
    assert [r["minutes"] for r in rows(visitor, "reminders", event_id="evt-1")] == [30]
    assert [n["kind"] for n in rows(visitor, "notices", event_id="evt-1")] == ["invitation", "invitation"]
    assert "Coffee &lt;b&gt;&amp; cake&lt;/b&gt;" in visitor.html
    assert "<b>&" not in visitor.html


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"title": ""}, "title"),
        ({"title": "x" * 301}, "title"),
        ({"start_date": "soon"}, "start-date"),
        ({"end_time": ""}, "end-time"),
        ({"start_time": "12:00", "end_time": "11:00"}, "end-time"),
        ({"calendar": "cal-product"}, "calendar"),
        ({"guests": "nobody at all"}, "guests"),
        ({"repeat": "weekly", "repeat_interval": "0"}, "repeat-interval"),
        ({"repeat": "daily", "repeat_end": "count", "repeat_count": "x"}, "repeat-count"),
        ({"repeat": "daily", "repeat_end": "until", "repeat_until": "2020-01-01"}, "repeat-until"),
        ({"repeat": "sometimes"}, "repeat"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(visitor: Visitor, changes: dict[str, str], field: str) -> None:
    visitor.get("/events/new")
    answer = visitor.submit("event-form", **{"title": "A title", "location": "kept", **changes})
    assert answer.status == 422
    assert f'id="{field}-error"' in visitor.html
    assert 'value="kept"' in visitor.html
    assert rows(visitor, "events", title="A title") == []


def test_all_day_and_several_days(visitor: Visitor) -> None:
    visitor.get("/events/new?date=2026-03-12&all_day=1")
    visitor.submit("event-form", title="Fair", end_date="2026-03-14")
    (event,) = rows(visitor, "events", title="Fair")
    assert (event["start"], event["end"], event["all_day"]) == ("2026-03-12", "2026-03-15", True)


def test_edit_and_undo(visitor: Visitor) -> None:
    before = visitor.site.get(f"/state?session_id={visitor.session}").json
    visitor.get("/events/evt-release/edit")
    assert visitor.submit("event-form", title="Release 4.3", start_time="15:00").status == 303
    (event,) = rows(visitor, "events", id="evt-release")
    assert (event["title"], event["start"], event["end"], event["color"]) == ("Release 4.3", "2026-03-11T15:00:00-04:00", "2026-03-11T17:00:00-04:00", "red")
    assert [n["to_email"] for n in rows(visitor, "notices", kind="update")] == ["tom@harbor.example"]
    assert visitor.submit("undo-form").status == 303
    assert visitor.site.get(f"/state?session_id={visitor.session}").json == before


def test_undo_refuses_what_was_changed_since(visitor: Visitor) -> None:
    visitor.get("/events/evt-release/edit")
    visitor.submit("event-form", title="One")
    visitor.get("/events/evt-release/edit")
    visitor.submit("event-form", title="Two")
    assert visitor.post("/undo", {"action": "1"}).status == 409
    assert visitor.post("/undo", {}).status == 303
    assert visitor.post("/undo", {"action": "1"}).status == 303
    assert rows(visitor, "events", id="evt-release")[0]["title"] == "Release 4.2"
    assert visitor.post("/undo", {}).status == 409


def test_series_this(visitor: Visitor) -> None:
    visitor.get("/events/evt-standup_2026-03-11/edit")
    visitor.submit("event-form", scope="this", start_time="11:00", end_time="11:15")
    (own,) = rows(visitor, "events", recurring_event_id="evt-standup", id="evt-1")
    assert (own["start"], own["original_start"], own["recurrence"]) == ("2026-03-11T11:00:00-04:00", "2026-03-11T09:30:00-04:00", None)
    assert len(rows(visitor, "guests", event_id="evt-1")) == 3
    assert starts(visitor, "Stand-up")[:3] == ["2026-03-09T09:30", "2026-03-10T09:30", "2026-03-11T11:00"]


def test_series_following(visitor: Visitor) -> None:
    visitor.get("/events/evt-standup_2026-03-11/edit")
    visitor.submit("event-form", scope="following", start_time="10:00", end_time="10:15")
    (head,) = rows(visitor, "events", id="evt-standup")
    assert "UNTIL=2026" in head["recurrence"]
    (tail,) = rows(visitor, "events", id="evt-1")
    assert (tail["start"], tail["recurrence"], tail["exdates"]) == ("2026-03-11T10:00:00-04:00", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", ["2026-03-13"])
    assert starts(visitor, "Stand-up")[:5] == ["2026-03-09T09:30", "2026-03-10T09:30", "2026-03-11T10:00", "2026-03-12T10:00", "2026-03-16T10:00"]


def test_series_all(visitor: Visitor) -> None:
    visitor.get("/events/evt-standup_2026-03-11/edit")
    visitor.submit("event-form", scope="all", title="Daily", start_time="10:00", end_time="10:15")
    (series,) = rows(visitor, "events", id="evt-standup")
    assert (series["title"], series["start"], series["recurrence"]) == ("Daily", "2026-02-23T10:00:00-05:00", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR")
    assert starts(visitor, "Daily")[:3] == ["2026-03-09T10:00", "2026-03-10T10:00", "2026-03-11T10:00"]
    assert starts(visitor, "Stand-up with the auditors") == ["2026-03-12T10:00"], "a changed occurrence stays where it was put"


def test_series_moved_to_another_weekday(visitor: Visitor) -> None:
    visitor.get("/events/evt-one-on-one_2026-03-10/edit")
    visitor.submit("event-form", scope="all", start_date="2026-03-11", end_date="2026-03-11")
    (series,) = rows(visitor, "events", id="evt-one-on-one")
    assert (series["start"], series["recurrence"]) == ("2026-03-11T14:00:00-04:00", "FREQ=WEEKLY;BYDAY=WE")


def test_one_occurrence_on_another_weekday(visitor: Visitor) -> None:
    for changes in (
        {"start_date": "2026-03-12", "end_date": "2026-03-12"},
        {"title": "1:1 outside"},
        # The page's script takes the only weekday along with the date.
        {"start_date": "2026-03-13", "end_date": "2026-03-13", "repeat_on": "FR"},
    ):
        visitor.get("/events/evt-1/edit" if rows(visitor, "events", id="evt-1") else "/events/evt-one-on-one_2026-03-10/edit")
        assert visitor.submit("event-form", scope="this", **changes).status == 303, changes
    (own,) = rows(visitor, "events", recurring_event_id="evt-one-on-one")
    assert (own["title"], own["start"], own["original_start"]) == ("1:1 outside", "2026-03-13T14:00:00-04:00", "2026-03-10T14:00:00-04:00")
    (series,) = rows(visitor, "events", id="evt-one-on-one")
    assert (series["start"], series["recurrence"]) == ("2026-03-10T14:00:00-04:00", "FREQ=WEEKLY;BYDAY=TU")
    assert starts(visitor, "1:1 Jonas") == ["2026-03-17T14:00"]


def test_one_occurrence_on_a_weekend_and_after_the_last(visitor: Visitor) -> None:
    visitor.get("/events/evt-standup_2026-03-11/edit")
    assert visitor.submit("event-form", scope="this", start_date="2026-03-14", end_date="2026-03-14").status == 303
    visitor.get("/events/evt-pickup_2026-03-09/edit")
    visitor.submit("event-form", scope="all", repeat_end="until", repeat_until="2026-03-13")
    visitor.get("/events/evt-pickup_2026-03-13/edit")
    assert visitor.submit("event-form", scope="this", start_date="2026-03-16", end_date="2026-03-16").status == 303
    assert starts(visitor, "School pick-up") == ["2026-03-09T16:30", "2026-03-11T16:30", "2026-03-16T16:30"]


@pytest.mark.parametrize(
    ("scope", "event", "start", "rule"),
    [
        ("all", "evt-one-on-one", "2026-03-10T14:00:00-04:00", "FREQ=WEEKLY;BYDAY=TU"),
        ("following", "evt-2", "2026-03-18T14:00:00-04:00", "FREQ=WEEKLY;BYDAY=WE"),
    ],
)
def test_the_series_from_an_occurrence_that_was_moved(visitor: Visitor, scope: str, event: str, start: str, rule: str) -> None:
    visitor.get("/events/evt-one-on-one_2026-03-17/edit")
    visitor.submit("event-form", scope="this", start_date="2026-03-18", end_date="2026-03-18")
    visitor.get("/events/evt-1/edit")
    assert visitor.submit("event-form", scope=scope, title="Walk").status == 303
    (series,) = rows(visitor, "events", id=event)
    assert (series["title"], series["start"], series["recurrence"]) == ("Walk", start, rule)


def test_a_monthly_series_moved_by_its_form(visitor: Visitor) -> None:
    visitor.get("/events/new?date=2026-03-10")
    visitor.submit("event-form", title="Rent", repeat="monthly", start_time="09:00", end_time="09:30")
    visitor.get("/events/evt-1_2026-04-10/edit")
    assert visitor.submit("event-form", scope="this", start_date="2026-04-13", end_date="2026-04-13").status == 303
    visitor.get("/events/evt-1_2026-05-10/edit")
    assert visitor.submit("event-form", scope="all", start_date="2026-05-12", end_date="2026-05-12").status == 303
    (series,) = rows(visitor, "events", id="evt-1")
    assert (series["start"], series["recurrence"]) == ("2026-03-12T09:00:00-04:00", "FREQ=MONTHLY;BYMONTHDAY=12")


@pytest.mark.parametrize(("base", "start", "original"), [("2026-03-09", "2026-04-10", "2026-04-09"), ("2025-01-06", "2025-02-14", "2025-02-13")])
def test_a_changed_occurrence_of_a_monthly_series_in_any_base_week(visitor: Visitor, base: str, start: str, original: str) -> None:
    visitor.site.reset(visitor.session, baseWeek=base)
    (own,) = rows(visitor, "events", id="evt-allhands-april")
    assert (own["start"][:16], own["end"][:16], own["original_start"][:16]) == (f"{start}T10:00", f"{start}T10:45", f"{original}T16:30")
    assert starts(visitor, "All hands", f"/agenda/{original}") == [], "nobody may change it here"
    visitor.get(f"/agenda/{original}")
    assert f'id="event-evt-allhands_{original}"' not in visitor.html
    assert 'id="event-evt-allhands-april"' in visitor.html


def test_another_rule(visitor: Visitor) -> None:
    visitor.get("/events/evt-one-on-one_2026-03-10/edit")
    assert visitor.submit("event-form", scope="this", repeat="daily").status == 422
    visitor.get("/events/evt-one-on-one_2026-03-10/edit")
    visitor.submit("event-form", scope="all", repeat="monthly-weekday", repeat_end="count", repeat_count="3")
    assert rows(visitor, "events", id="evt-one-on-one")[0]["recurrence"] == "FREQ=MONTHLY;BYDAY=2TU;COUNT=3"


@pytest.mark.parametrize(("scope", "shown"), [("this", 7), ("following", 0), ("all", 0)])
def test_delete_of_a_series(visitor: Visitor, scope: str, shown: int) -> None:
    visitor.get("/events/evt-standup_2026-03-09/delete")
    visitor.submit("delete-form", scope=scope)
    assert len(starts(visitor, "Stand-up")) == shown
    assert len(rows(visitor, "trash")) == (scope == "all")
    if scope == "following":
        assert starts(visitor, "Stand-up", "/agenda/2026-02-23") != []
    visitor.post("/undo", {})
    assert len(starts(visitor, "Stand-up")) == 8


def test_trash(visitor: Visitor) -> None:
    before = visitor.site.get(f"/state?session_id={visitor.session}").json
    visitor.get("/events/evt-standup_2026-03-09/delete")
    visitor.submit("delete-form", scope="all")
    (trashed,) = rows(visitor, "trash")
    assert [e["id"] for e in trashed["rows"]["events"]] == ["evt-standup", "evt-standup-thursday"]
    visitor.get("/trash")
    visitor.submit(f"restore-form-{trashed['id']}")
    after = visitor.site.get(f"/state?session_id={visitor.session}").json
    assert {k: v for k, v in after.items() if k != "notices"} == {k: v for k, v in before.items() if k != "notices"}
    for event in ("evt-retro", "evt-lunch"):
        visitor.get(f"/events/{event}/delete")
        visitor.submit("delete-form")
    visitor.get("/trash")
    visitor.submit("purge-form-trs-2")
    assert [r["event_id"] for r in rows(visitor, "trash")] == ["evt-lunch"]
    visitor.submit("empty-form")
    assert rows(visitor, "trash") == []
    assert "The trash is empty" in visitor.html


def test_an_answer(visitor: Visitor) -> None:
    visitor.get("/events/evt-roadmap")
    assert visitor.submit("respond-form", response="accepted", note="I bring the numbers").status == 303
    (mine,) = rows(visitor, "guests", event_id="evt-roadmap", email="maya@harbor.example")
    assert (mine["response"], mine["note"]) == ("accepted", "I bring the numbers")
    assert [(n["to_email"], n["kind"]) for n in rows(visitor, "notices")] == [("priya@harbor.example", "response")]
    visitor.get("/events/evt-guild_2026-03-31")
    visitor.submit("respond-form", response="declined", scope="this")
    assert rows(visitor, "guests", event_id="evt-guild", email="maya@harbor.example")[0]["response"] == "needs_action"
    assert rows(visitor, "guests", event_id="evt-1", email="maya@harbor.example")[0]["response"] == "declined"


def test_what_is_not_mine_cannot_be_changed(visitor: Visitor) -> None:
    before = visitor.site.table(visitor.session, "events")
    for address in ("/events/evt-roadmap/edit", "/events/evt-roadmap/delete", "/events/evt-jonas-review/edit"):
        assert visitor.get(address).status == 403
    visitor.get("/week")
    for address in ("/events/evt-roadmap", "/events/evt-roadmap/delete", "/events/evt-roadmap/move", "/events/evt-jonas-dentist/delete"):
        assert visitor.post(address, {"title": "Mine now", "start": "2026-03-11T10:00", "end": "2026-03-11T11:00"}).status == 403
    for address in ("/calendars/cal-product", "/calendars/cal-product/delete", "/calendars/cal-product/share", "/calendars/cal-product/unshare"):
        assert visitor.post(address, {"name": "Mine", "color": "red", "person": "per-tom", "role": "editor", "share": "shr-product"}).status == 403
    assert visitor.get("/events/evt-tom-window").status == 404
    assert visitor.site.table(visitor.session, "events") == before


def test_others_private_events_stay_private(visitor: Visitor) -> None:
    for address in (
        "/week/2026-03-09",
        "/agenda/2026-03-09",
        "/events/evt-jonas-dentist",
        "/people/per-jonas",
        "/search?q=physio",
        "/find-time?guests=jonas@harbor.example",
    ):
        visitor.get(address)
        assert "Physiotherapy" not in visitor.html, address
    assert "Busy" in visitor.get("/events/evt-jonas-dentist").content.decode()


def test_calendars(visitor: Visitor) -> None:
    visitor.get("/calendars/new")
    assert visitor.submit("calendar-form", name="").status == 422
    visitor.submit("calendar-form", name="Garden", color="green")
    (made,) = rows(visitor, "calendars", name="Garden")
    assert made["owner_id"] == "per-maya"
    visitor.submit("share-form", person="per-tom", role="editor")
    (share,) = rows(visitor, "shares", calendar_id=made["id"])
    assert (share["person_id"], share["role"]) == ("per-tom", "editor")
    visitor.submit(f"unshare-{share['id']}")
    assert rows(visitor, "shares", calendar_id=made["id"]) == []
    visitor.get("/week")
    visitor.submit("toggle-form-cal-team")
    assert rows(visitor, "calendars", id="cal-team")[0]["is_visible"] is False
    assert "Stand-up" not in visitor.html
    visitor.get("/calendars/cal-home/delete")
    visitor.submit("delete-calendar-form")
    assert rows(visitor, "calendars", id="cal-home") == []
    assert {r["event_id"] for r in rows(visitor, "trash")} == {"evt-dentist", "evt-pickup", "evt-birthday"}
    visitor.get("/trash")
    visitor.submit(f"restore-form-{rows(visitor, 'trash', event_id='evt-dentist')[0]['id']}")
    assert rows(visitor, "events", id="evt-dentist")[0]["calendar_id"] == "cal-maya"
    assert visitor.post("/calendars/cal-maya/delete", {}).status == 409


def test_settings(visitor: Visitor) -> None:
    visitor.get("/settings")
    visitor.submit("settings-form", week_start="sunday", time_format="12h", timezone="Europe/Berlin", theme="dark", show_weekends=None)
    (settings,) = rows(visitor, "settings")
    assert (settings["week_start"], settings["timezone"], settings["theme"], settings["show_weekends"]) == ("sunday", "Europe/Berlin", "dark", False)
    visitor.get("/week/2026-03-11")
    assert 'data-theme="dark"' in visitor.html
    assert "5 pm" in visitor.html
    assert 'data-start="2026-03-11T21:00"' in visitor.html, "16:00 in New York is 21:00 in Berlin in this week"
    assert 'data-day="2026-03-14"' not in visitor.html
    visitor.get("/settings")
    assert visitor.submit("settings-form", day_start="18:00", day_end="09:00").status == 422
    assert rows(visitor, "events", id="evt-release")[0]["start"] == "2026-03-11T16:00:00-04:00"


def test_find_a_time(visitor: Visitor) -> None:
    visitor.get("/find-time?guests=jonas@harbor.example&guests=tom@harbor.example&from=2026-03-12&days=1&minutes=60")
    assert 'id="slot-2026-03-12-0900"' in visitor.html
    assert 'id="slot-2026-03-12-1000"' not in visitor.html, "the stand-up is at ten"
    assert 'id="slot-2026-03-12-1100"' not in visitor.html, "Jonas has an appointment"
    assert 'id="slot-2026-03-12-1200"' in visitor.html


def test_reminders(visitor: Visitor) -> None:
    visitor.get("/events/new?date=2026-03-11")
    visitor.submit("event-form", title="Soon", start_time="09:20", end_time="09:40", reminder="10")
    assert "in 8 minutes" in visitor.html
    visitor.submit("dismiss-form-rem-1")
    assert "in 8 minutes" not in visitor.html
    assert rows(visitor, "dismissals")[0]["occurrence"] == "2026-03-11T09:20:00-04:00"


def test_search(visitor: Visitor) -> None:
    visitor.get("/search?q=kestrel+stand")
    assert 'id="event-evt-standup_2026-03-11"' in visitor.html
    assert "1 event for" in visitor.html
    visitor.get("/search?q=luc%C3%ADa")
    assert 'id="event-evt-roadmap"' in visitor.html, "guests are searched"
    assert 'id="event-evt-lunch"' in visitor.html
    visitor.get("/search?q=stand&calendar=cal-home")
    assert "Nothing found" in visitor.html


def test_where_to_go_back_to_is_on_this_site(visitor: Visitor) -> None:
    for evil in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\t/evil.example", "/\n/evil.example", "/x\\..\\/evil"):
        visitor.get("/events/evt-retro/delete")
        answer = visitor.post("/events/evt-retro/move", {"back": evil, "start": "2026-03-13T14:00", "end": "2026-03-13T15:30"})
        assert answer.headers["location"].startswith("/week/")


@pytest.mark.parametrize("digits", ["²", "١٢", "9" * 30, "9" * 5000, "-1", "1e3", " "])
def test_odd_numbers_are_no_numbers(visitor: Visitor, digits: str) -> None:
    asked = quote(digits)
    for address in (f"/week?done={asked}", f"/find-time?days={asked}&minutes={asked}"):
        assert visitor.get(address).status == 200, address
    assert visitor.site.get(f"/log?session_id={quote(visitor.session)}&since={asked}").status == 400
    visitor.get("/events/evt-retro/edit")
    assert visitor.post("/undo", {"action": digits}).status in (404, 409)
    visitor.get("/events/new?date=2026-03-12")
    for end in ({"repeat_interval": digits}, {"repeat_end": "count", "repeat_count": digits}):
        answer = visitor.submit("event-form", title="Odd", repeat="daily", reminder=digits, **end)
        assert answer.status == 422 or digits.strip() == "", answer.status
        visitor.get("/events/new?date=2026-03-12")
    visitor.get("/settings")
    assert visitor.post("/settings", {"default_minutes": digits, "default_reminder": digits}).status < 500


def test_what_a_script_saw_nested_too_deep_is_left_out(visitor: Visitor) -> None:
    visitor.get("/settings")
    assert visitor.post("/calendars/cal-home/toggle", {"_seen": "[" * 5000}).status == 303


def test_the_log_is_complete_without_scripts(visitor: Visitor) -> None:
    visitor.get("/events/evt-release/edit")
    visitor.submit("event-form", title="Release 4.4")
    log = visitor.site.log(visitor.session)
    pages = [(row["element_id"], row["url"]) for row in log if row["event_type"] == "navigate"]
    assert pages[:2] == [("edit-event", "/events/evt-release/edit"), ("week", "/week/2026-03-11")]
    (action,) = (row for row in log if row["event_type"] == "action")
    assert (action["element_id"], action["value"], action["url"]) == ("save-event", "Saved \u201cRelease 4.4\u201d", "/events/evt-release")
    assert action["detail"]["fields"]["title"] == ["Release 4.4"]
    assert {"table": "events", "id": "evt-release", "op": "update"} in action["detail"]["changes"]
