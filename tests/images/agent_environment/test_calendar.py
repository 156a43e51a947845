"""The calendar's own rules: recurrence over daylight saving, scopes, free/busy, conflicts, mails."""

from __future__ import annotations

from typing import Any

import pytest
from server.registry import Context
from server.store import ToolError

ME, AMIR, JO = "dana@harbor.example", "amir@harbor.example", "jo@harbor.example"


@pytest.fixture
def office(ctx: Context) -> Context:
    """Three people's calendars and a team's, a weekly stand-up (Tuesdays and Thursdays 09:30 since February) and some meetings."""
    db = ctx.db
    for name, owner, primary in (("dana", ME, True), ("amir", AMIR, True), ("jo", JO, True), ("team", JO, False)):
        db.put(
            _table("calendars"), {"id": f"cal-{name}", "name": name.title(), "owner": owner, "color": "#000000", "timezone": None, "is_primary": int(primary)}
        )
    _event(ctx, "evt-standup", "cal-dana", "Platform stand-up", "2026-02-03T09:30:00", "2026-02-03T09:45:00", recurrence="FREQ=WEEKLY;BYDAY=TU,TH")
    _event(ctx, "evt-review", "cal-dana", "Design review", "2026-03-10T09:40:00", "2026-03-10T10:30:00", location="Room Juniper")
    _event(ctx, "evt-offsite", "cal-team", "Harbor offsite", "2026-03-12", "2026-03-14", organizer=JO, all_day=True)
    _event(ctx, "evt-dentist", "cal-amir", "Dentist", "2026-03-10T14:00:00", "2026-03-10T15:00:00", organizer=AMIR, visibility="private")
    _event(ctx, "evt-budget", "cal-jo", "Budget", "2026-03-11T10:00:00", "2026-03-11T11:00:00", organizer=JO)
    _attend(ctx, "evt-standup", AMIR, "accepted")
    _attend(ctx, "evt-standup", JO, "declined")
    _attend(ctx, "evt-budget", ME, "needsAction")
    return ctx


def _table(name: str) -> Any:
    from server import store

    return store.table(f"calendar.{name}")


def _event(ctx: Context, id: str, calendar: str, title: str, start: str, end: str, organizer: str = ME, **more: Any) -> None:
    made = ctx.db.insert("calendar.events", calendar_id=calendar, title=title, start=start, end=end, organizer=organizer, **more)
    ctx.db.connection.execute("UPDATE calendar_events SET id = ? WHERE id = ?", (id, made["id"]))


def _attend(ctx: Context, event: str, email: str, response: str) -> None:
    ctx.db.insert("calendar.attendees", event_id=event, email=email, response=response)


def _ids(answer: Any) -> list[str]:
    return [e["id"] for e in answer["events"]]


def test_week_from_now_expands_series_in_order(office: Context, call: Any) -> None:
    answer = call(office, "calendar_get_events")
    assert _ids(answer) == [
        "evt-standup@2026-03-10T09:30:00-04:00", "evt-review", "evt-budget", "evt-offsite", "evt-standup@2026-03-12T09:30:00-04:00",
    ]  # fmt: skip
    assert answer["total"] == 5
    assert [a["email"] for a in answer["events"][0]["attendees"]] == [AMIR, JO]
    assert answer["events"][3]["start"] == "2026-03-12"


def test_wall_clock_stays_over_the_change_to_summer_time(office: Context, call: Any) -> None:
    answer = call(office, "calendar_get_calendar_events", start="2026-03-05T00:00:00", end="2026-03-11T00:00:00", query="stand-up")
    assert [e["start"] for e in answer["events"]] == ["2026-03-05T09:30:00-05:00", "2026-03-10T09:30:00-04:00"]


def test_series_in_another_zone_follows_that_zone(office: Context, call: Any) -> None:
    call(
        office,
        "calendar_add_event",
        title="Berlin sync",
        start="2026-03-24T15:00:00",
        end="2026-03-24T15:30:00",
        timezone="Europe/Berlin",
        recurrence="FREQ=WEEKLY;COUNT=2",
    )
    answer = call(office, "calendar_get_calendar_events", query="berlin", end="2026-04-10T00:00:00")
    assert [e["start"] for e in answer["events"]] == ["2026-03-24T10:00:00-04:00", "2026-03-31T09:00:00-04:00"]


def test_a_time_that_spring_leaves_out_keeps_the_offset_before_it(office: Context, call: Any) -> None:
    made = call(office, "calendar_add_event", title="Backup", start="2025-03-08T02:30:00", end="2025-03-08T03:00:00", recurrence="FREQ=DAILY;COUNT=2")
    answer = call(office, "calendar_list_occurrences", event_id=made["event"]["id"], start="2025-03-01T00:00:00")
    assert [o["start"] for o in answer["occurrences"]] == ["2025-03-08T02:30:00-05:00", "2025-03-09T03:30:00-04:00"]


def test_paging_and_filters(office: Context, call: Any) -> None:
    first = call(office, "calendar_get_calendar_events", limit=2)
    second = call(office, "calendar_get_calendar_events", limit=2, cursor=first["next_cursor"])
    assert _ids(second) == ["evt-budget", "evt-offsite"]
    with pytest.raises(ToolError) as caught:
        call(office, "calendar_get_calendar_events", cursor="77")
    assert caught.value.type == "bad_cursor"
    call(office, "calendar_add_tags", event_id="evt-review", tags=["Design", "design"])
    assert _ids(call(office, "calendar_get_calendar_events", tag="DESIGN")) == ["evt-review"]
    assert _ids(call(office, "calendar_get_calendar_events", attendee=AMIR)) == [
        "evt-standup@2026-03-10T09:30:00-04:00",
        "evt-standup@2026-03-12T09:30:00-04:00",
    ]
    assert _ids(call(office, "calendar_get_calendar_events", query="juniper review")) == ["evt-review"]
    assert _ids(call(office, "calendar_get_calendar_events", calendar_id="cal-amir")) == ["evt-dentist"]


def test_private_events_of_others_show_their_time_only(office: Context, call: Any) -> None:
    (event,) = call(office, "calendar_get_calendar_events", calendar_id="cal-amir")["events"]
    assert (event["title"], event["start"]) == ("Busy", "2026-03-10T14:00:00-04:00")
    assert call(office, "calendar_get_calendar_events", calendar_id="cal-amir", query="dentist")["total"] == 0
    assert "Dentist" not in str(call(office, "calendar_get_free_busy", emails=[AMIR], start="2026-03-10T00:00:00", end="2026-03-11T00:00:00"))
    assert call(office, "calendar_get_event", event_id="evt-dentist")["title"] == "Busy"


def test_an_invitation_reaches_mailboxes(office: Context, call: Any) -> None:
    answer = call(office, "add_calendar_event", title="Roadmap", start="2026-03-13T13:00:00", attendees=[AMIR, ME], location="Pier 4")
    assert answer["event"]["end"] == "2026-03-13T14:00:00-04:00"
    assert [(a["email"], a["response"]) for a in answer["event"]["attendees"]] == [(AMIR, "needsAction"), (ME, "accepted")]
    mails = office.db.rows("email.messages", order="id")
    assert [(m["folder"], m["subject"], m["to"]) for m in mails] == [("sent", "Invitation: Roadmap", [AMIR, ME]), ("inbox", "Invitation: Roadmap", [AMIR, ME])]
    assert "Fri 13 Mar 2026, 13:00 to 14:00" in mails[0]["body"]
    assert "Where: Pier 4" in mails[0]["body"]


def test_move_one_occurrence_only(office: Context, call: Any) -> None:
    answer = call(office, "calendar_reschedule_event", event_id="evt-standup@2026-03-10T09:30:00-04:00", start="2026-03-10T11:00:00", message="Fire drill.")
    assert answer["scope"] == "this"
    assert answer["mailed"] == [AMIR, JO]
    assert answer["event"]["end"] == "2026-03-10T11:15:00-04:00"
    assert call(office, "calendar_reschedule_event", event_id=answer["event"]["id"], start="2026-03-10T11:00:00")["mailed"] == []
    assert answer["event"]["original_start"] == "2026-03-10T09:30:00-04:00"
    starts = [e["start"] for e in call(office, "calendar_get_calendar_events", query="stand-up")["events"]]
    assert starts == ["2026-03-10T11:00:00-04:00", "2026-03-12T09:30:00-04:00"]
    again = call(office, "calendar_update_event", event_id="evt-standup@2026-03-10T09:30:00-04:00", title="Late stand-up", notify=False)
    assert again["event"]["id"] == answer["event"]["id"]
    assert office.db.count("calendar.events") == 6
    assert office.db.rows("email.messages", "folder = 'sent'")[0]["body"].startswith("Fire drill.")


def test_change_this_and_the_following(office: Context, call: Any) -> None:
    answer = call(office, "calendar_update_event", event_id="evt-standup@2026-03-12T09:30:00-04:00", start="2026-03-12T10:00:00", scope="following")
    tail = answer["event"]
    assert tail["recurrence"] == "FREQ=WEEKLY;BYDAY=TU,TH"
    assert office.db.get("calendar.events", "evt-standup")["recurrence"] == "FREQ=WEEKLY;BYDAY=TU,TH;UNTIL=20260312T132959Z"
    starts = [e["start"][:16] for e in call(office, "calendar_get_calendar_events", query="stand-up", end="2026-03-18T00:00:00")["events"]]
    assert starts == ["2026-03-10T09:30", "2026-03-12T10:00", "2026-03-17T10:00"]
    assert {a["email"] for a in tail["attendees"]} == {AMIR, JO}


def test_moving_all_takes_rule_and_exceptions_along(office: Context, call: Any) -> None:
    call(office, "calendar_delete_event", event_id="evt-standup@2026-03-17T09:30:00-04:00")
    call(office, "calendar_update_event", event_id="evt-standup@2026-03-19T09:30:00-04:00", location="Deck", notify=False)
    answer = call(office, "calendar_reschedule_event", event_id="evt-standup@2026-03-10T09:30:00-04:00", start="2026-03-11T08:00:00", scope="all")
    assert answer["event"]["id"] == "evt-standup"
    assert answer["event"]["recurrence"] == "FREQ=WEEKLY;BYDAY=WE,FR"
    assert answer["event"]["exdates"] == ["2026-03-18T08:00:00-04:00"]
    shown = call(office, "calendar_list_occurrences", event_id="evt-standup", limit=4)["occurrences"]
    assert [(o["original_start"][:16], o["changed"]) for o in shown] == [
        ("2026-03-11T08:00", False), ("2026-03-13T08:00", False), ("2026-03-20T08:00", True), ("2026-03-25T08:00", False),
    ]  # fmt: skip


def test_count_is_shared_when_a_series_is_cut(office: Context, call: Any) -> None:
    made = call(office, "calendar_add_event", title="Course", start="2026-03-16T17:00:00", recurrence="FREQ=DAILY;COUNT=5")["event"]["id"]
    answer = call(office, "calendar_delete_event", event_id=f"{made}@2026-03-19T17:00:00-04:00", scope="following")
    assert answer["scope"] == "following"
    days = [o["start"][:10] for o in call(office, "calendar_list_occurrences", event_id=made)["occurrences"]]
    assert days == ["2026-03-16", "2026-03-17", "2026-03-18"]
    tail = call(office, "calendar_update_event", event_id=f"{made}@2026-03-17T17:00:00-04:00", title="Course II", scope="following")["event"]
    assert tail["recurrence"].startswith("FREQ=DAILY;UNTIL=20260319")


def test_wrong_ids_name_near_ones(office: Context, call: Any) -> None:
    with pytest.raises(ToolError, match="no occurrence at") as caught:
        call(office, "calendar_get_event", event_id="evt-standup@2026-03-11T09:30:00-04:00")
    assert "evt-standup@2026-03-10T09:30:00-04:00" in caught.value.hint
    with pytest.raises(ToolError) as caught:
        call(office, "calendar_get_event", event_id="evt-standpu")
    assert caught.value.type == "not_found"
    assert "evt-standup (Platform stand-up)" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"start": "2026-03-13T10:00:00", "end": "2026-03-13T09:00:00"}, "not after the start"),
        ({"start": "2026-03-13", "end": "2026-03-13"}, "not after the start"),
        ({"start": "2026-03-13", "end": "2026-03-13T10:00:00"}, "not both times or both days"),
        ({"start": "2026-02-30"}, "is no time"),
        ({"start": "2026-03-13T10:00:00", "timezone": "America/New_Yrok"}, "no time zone"),
        ({"start": "2026-03-13T10:00:00", "recurrence": "FREQ=WEEKLY;BYDAY=MO"}, "first such time is 2026-03-16"),
        ({"start": "2026-03-13T10:00:00", "recurrence": "FREQ=SECONDLY"}, "FREQ=DAILY"),
        ({"start": "2026-03-13T10:00:00", "recurrence": "FREQ=DAILY;COUNT=2;UNTIL=20260401"}, "not both"),
        ({"start": "2026-03-13T10:00:00", "recurrence": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"}, "does not give"),
        ({"start": "2026-03-13T10:00:00", "attendees": ["amir@harbor"]}, "no e-mail address"),
    ],
)
def test_refused_events(office: Context, call: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        call(office, "calendar_add_event", title="X", **fields)
    assert caught.value.type == "invalid"


def test_free_busy_knows_answers(office: Context, call: Any) -> None:
    answer = call(office, "calendar_get_free_busy", emails=[AMIR, JO, "jo@harbour.example"], start="2026-03-10T09:00:00", end="2026-03-10T17:00:00")
    amir, jo, nobody = answer["people"]
    assert [(b["start"][11:16], b["end"][11:16], b["title"]) for b in amir["busy"]] == [("09:30", "09:45", "Platform stand-up"), ("14:00", "15:00", "Busy")]
    assert jo["busy"] == []  # declined
    assert nobody["has_calendar"] is False
    assert JO in nobody["note"]
    mine = call(office, "calendar_get_free_busy", emails=[ME], start="2026-03-11T09:00:00", end="2026-03-11T12:00:00")["people"][0]
    assert mine["busy"] == []  # not answered yet
    call(office, "calendar_respond_to_event", event_id="evt-budget", response="tentative")
    mine = call(office, "calendar_get_free_busy", emails=[ME], start="2026-03-11T09:00:00", end="2026-03-11T12:00:00")["people"][0]
    assert [(b["status"], b["title"]) for b in mine["busy"]] == [("tentative", "Budget")]
    assert [(f["start"][11:16], f["end"][11:16]) for f in mine["free"]] == [("09:00", "10:00"), ("11:00", "12:00")]


def test_meeting_time_avoids_everybody(office: Context, call: Any) -> None:
    answer = call(office, "calendar_find_meeting_time", attendees=[AMIR], duration_minutes=60, start="2026-03-10T09:00:00", end="2026-03-10T16:00:00", limit=3)
    assert [s["start"][11:16] for s in answer["slots"]] == ["10:30", "11:00", "11:30"]
    none = call(office, "calendar_find_meeting_time", attendees=[AMIR], duration_minutes=240, start="2026-03-10T11:00:00", end="2026-03-10T16:00:00")
    assert none["slots"] == []
    assert none["blocked_by"] == [{"email": AMIR, "slots": 3}]


def test_conflicts_and_overlaps(office: Context, call: Any) -> None:
    (pair,) = call(office, "calendar_find_overlaps")["overlaps"]
    assert [e["id"] for e in pair["events"]] == ["evt-standup@2026-03-10T09:30:00-04:00", "evt-review"]
    assert pair["minutes"] == 5
    answer = call(office, "calendar_check_conflicts", event_id="evt-review", start="2026-03-10T14:30:00", attendees=[AMIR])
    assert [(c["email"], c["title"]) for c in answer["conflicts"]] == [(AMIR, "Busy")]
    assert answer["end"] == "2026-03-10T15:20:00-04:00"
    with pytest.raises(ToolError, match="not everybody is free") as caught:
        call(office, "calendar_reschedule_event", event_id="evt-standup@2026-03-12T09:30:00-04:00", start="2026-03-10T14:00:00", only_if_free=True)
    assert caught.value.type == "conflict"
    assert office.db.count("calendar.events") == 5


def test_answering_an_invitation_mails_the_organizer(office: Context, call: Any) -> None:
    answer = call(office, "calendar_respond_to_event", event_id="evt-budget", response="declined", message="On leave.")
    assert answer["event"]["attendees"][0]["response"] == "declined"
    mail = office.db.rows("email.messages")[0]
    assert (mail["to"], mail["subject"]) == ([JO], "Declined: Budget")
    with pytest.raises(ToolError) as caught:
        call(office, "calendar_respond_to_event", event_id="evt-dentist", response="accepted")
    assert caught.value.type == "forbidden"


def test_others_events_are_theirs(office: Context, call: Any) -> None:
    for name, more in (("calendar_delete_event", {}), ("calendar_update_event", {"title": "Mine"}), ("calendar_invite_attendees", {"emails": [ME]})):
        with pytest.raises(ToolError) as caught:
            call(office, name, event_id="evt-budget", **more)
        assert caught.value.type == "forbidden"
    call(office, "calendar_update_event", event_id="evt-offsite", location="Mystic")  # a shared calendar
    made = call(office, "calendar_create_calendar", name="Side")["calendar"]["id"]
    call(office, "calendar_add_event", title="X", start="2026-03-13", calendar_id=made)
    with pytest.raises(ToolError, match="has 1 events: evt_6") as caught:
        call(office, "calendar_delete_calendar", calendar_id=made)
    assert caught.value.type == "conflict"


def test_deleting_a_series_takes_everything_of_it(office: Context, call: Any) -> None:
    call(office, "calendar_update_event", event_id="evt-standup@2026-03-12T09:30:00-04:00", title="Long stand-up", notify=False)
    answer = call(office, "calendar_delete_event", event_id="evt-standup")
    assert answer["mailed"] == [AMIR, JO]
    assert office.db.count("calendar.events", "title LIKE '%stand-up'") == 0
    assert office.db.count("calendar.attendees") == 1
    assert office.db.rows("email.messages")[0]["subject"] == "Cancelled: Platform stand-up"


def test_removed_attendees_and_summaries(office: Context, call: Any) -> None:
    with pytest.raises(ToolError) as caught:
        call(office, "calendar_remove_attendees", event_id="evt-standup", emails=["amri@harbor.example"])
    assert AMIR in caught.value.hint
    answer = call(office, "calendar_remove_attendees", event_id="evt-standup", emails=[JO])
    assert answer["mailed"] == [JO]
    assert [a["email"] for a in answer["event"]["attendees"]] == [AMIR]
    day = call(office, "calendar_get_agenda", day="2026-03-10")
    assert (day["weekday"], day["booked_minutes"]) == ("Tuesday", 60)
    assert [(f["start"][11:16], f["minutes"]) for f in day["free"]] == [("09:00", 30), ("10:30", 390)]
    sums = call(office, "calendar_summarize_time", start="2026-03-09T00:00:00", end="2026-03-16T00:00:00", by="day")
    assert sums["sums"] == [
        {"day": "2026-03-10", "minutes": 65, "events": 2}, {"day": "2026-03-11", "minutes": 60, "events": 1}, {"day": "2026-03-12", "minutes": 15, "events": 1},
    ]  # fmt: skip


def test_whole_days_stay_days(office: Context, call: Any) -> None:
    made = call(office, "calendar_add_event", title="Leave", start="2026-03-16", end="2026-03-18", reminders=[60])["event"]
    assert (made["start"], made["end"], made["all_day"]) == ("2026-03-16", "2026-03-18", True)
    moved = call(office, "calendar_reschedule_event", event_id=made["id"], start="2026-03-23")["event"]
    assert (moved["start"], moved["end"]) == ("2026-03-23", "2026-03-25")
    assert [e["title"] for e in call(office, "calendar_get_agenda", day="2026-03-24")["all_day"]] == ["Leave"]
    assert call(office, "calendar_get_agenda", day="2026-03-25")["all_day"] == []
    busy = call(office, "calendar_find_meeting_time", attendees=[ME], duration_minutes=30, start="2026-03-23T00:00:00", end="2026-03-26T00:00:00", limit=1)
    assert busy["slots"][0]["start"] == "2026-03-25T09:00:00-04:00"
    timed = call(office, "calendar_update_event", event_id=made["id"], start="2026-03-23T09:00:00", end="2026-03-23T10:00:00", all_day=False)["event"]
    assert (timed["start"], timed["all_day"]) == ("2026-03-23T09:00:00-04:00", False)


def test_birthdays_repeat_as_days_and_cancelled_ones_are_hidden(office: Context, call: Any) -> None:
    made = call(office, "calendar_add_event", title="Amir's birthday", start="2024-03-12", recurrence="FREQ=YEARLY")["event"]["id"]
    assert f"{made}@2026-03-12" in _ids(call(office, "calendar_get_calendar_events"))
    call(office, "calendar_cancel_event", event_id=f"{made}@2026-03-12")
    assert call(office, "calendar_get_calendar_events", query="birthday")["total"] == 0
    (hidden,) = call(office, "calendar_get_calendar_events", query="birthday", include_cancelled=True)["events"]
    assert (hidden["status"], hidden["original_start"]) == ("cancelled", "2026-03-12")
