"""What is done to events: made, changed in one occurrence, from one on or as a whole, answered, deleted, restored; and what guests are told."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from _server import recurrence
from _server.faults import Fault
from _server.store import Row, encode
from _server.times import show_time, stored_time
from _web.pages import Page
from _web.store import Db

from . import texts
from .eventform import Wanted
from .occurrences import Occurrence, series_day, zone_of
from .who import who

SCOPES = ("this", "following", "all")
DETAILS = ("title", "calendar_id", "location", "description", "color", "show_as", "visibility")


def scope_of(page: Page, what: Occurrence) -> str:
    """How far a change reaches: what the form says for an occurrence of a series, else all."""
    asked = page.form.get("scope") or "this"
    if not what.is_series:
        return "all"
    if asked not in SCOPES:
        raise Fault(400, "BadForm", "Choose whether this event, this and the following ones, or all of them are meant.")
    return asked


def may_edit(page: Page, event: Row) -> None:
    """Fault 403 for who may not change the event."""
    viewer = who(page)
    if not viewer.can_edit(event["calendar_id"]):
        raise Fault(403, "NotAllowed", f"You may not change “{event['title']}”.", "Its calendar is somebody else's. You can answer, or ask its organizer.")


def create(page: Page, wanted: Wanted) -> Row:
    """A new event with its guests and reminders."""
    viewer = who(page)
    zone = None if viewer.zone.key == page.db.zone.key or wanted.row["all_day"] or not wanted.row["recurrence"] else viewer.zone.key
    rule = _checked(page, wanted.row, wanted.row["recurrence"], zone)
    start, end = _first_fit(page, wanted.row, rule, zone)
    now = _now(page)
    event = page.db.insert(
        "events",
        **{**wanted.row, "recurrence": rule, "start": start, "end": end, "timezone": zone},
        organizer_id=viewer.me["id"],
        created_at=now,
        updated_at=now,
    )
    _put_guests(page, event, wanted.guests or {})
    _put_reminders(page.db, event["id"], wanted.reminders or [])
    _tell(page, event, "invitation", "Invitation")
    return event


def _first_fit(page: Page, row: Row, rule: str | None, zone: str | None) -> tuple[str, str]:
    """Start and end moved to the first day that the rule gives: a weekly event may be made on a day that it leaves out."""
    if not rule:
        return row["start"], row["end"]
    own = zone_of({"timezone": zone}, page.db)
    start, end = stored_time(row["start"], page.db.zone), stored_time(row["end"], page.db.zone)
    first = recurrence.first(rule, start, own)
    return first, recurrence.plus(first, recurrence.length(start, end))


def _checked(page: Page, row: Row, rule: str | None, zone: str | None) -> str | None:
    if not rule:
        return None
    try:
        own = zone_of({"timezone": zone}, page.db)
        start = recurrence.first(rule, stored_time(row["start"], page.db.zone), own)
        return recurrence.checked(rule, recurrence.wall(start, own))
    except recurrence.RuleError as error:
        raise Fault(422, "BadForm", f"It cannot repeat like that: {error}") from None


def update(page: Page, what: Occurrence, wanted: Wanted, scope: str) -> Row:
    """Change an event, or of a series: this occurrence, this and the following ones, or all of them; the row that has it now."""
    series, day = _series(page.db, what)
    if series is None:
        event = _rewrite(page, what.event, wanted)
    elif scope == "this":
        event = _rewrite(page, _own_row(page, series, what), Wanted({**wanted.row, "recurrence": None}, wanted.guests, wanted.reminders))
    elif scope == "following" and _has_before(page.db, series, day):
        event = _from_here(page, series, day, what, wanted)
    else:
        event = _rewrite(page, series, *_shifted(page, series, day, what, wanted))
    _tell(page, event, "update", "Changed")
    return event


def _series(db: Db, what: Occurrence) -> tuple[Row | None, date]:
    """The series of an occurrence (None for a single event) and the day that its rule gives."""
    event = what.event
    if what.day is not None:
        return event, what.day
    series = db.first("events", "id = ?", (event["recurring_event_id"],)) if event["recurring_event_id"] else None
    if series is None or not event["original_start"]:
        return None, what.first_day
    return series, series_day(stored_time(event["original_start"], db.zone), zone_of(series, db))


def _has_before(db: Db, series: Row, day: date) -> bool:
    """Whether anything of a series comes before a day: not when all of it was deleted."""
    own, start = zone_of(series, db), stored_time(series["start"], db.zone)
    at, _ = _given(db, series, day)
    gone = sum(d[:10] < day.isoformat() for d in series["exdates"])
    return bool(recurrence.before(series["recurrence"], start, own, at) > gone)


def _own_row(page: Page, series: Row, what: Occurrence) -> Row:
    """The row of one occurrence, made from its series if need be."""
    if what.day is None:
        return what.event
    db = page.db
    start, end = _given(db, series, what.day)
    columns = {c: series[c] for c in (*DETAILS, "all_day", "timezone", "organizer_id", "created_at")}
    made = db.insert("events", **columns, start=start, end=end, recurring_event_id=series["id"], original_start=start, updated_at=_now(page))
    _copy_children(db, series["id"], made["id"])
    return made


def _given(db: Db, series: Row, day: date) -> tuple[str, str]:
    """Stored start and end that a series' rule gives on a day of its zone."""
    own = zone_of(series, db)
    start, end = stored_time(series["start"], db.zone), stored_time(series["end"], db.zone)
    wall = datetime.combine(day, recurrence.wall(start, own).time())
    first = recurrence.stored(wall, own, series["all_day"])
    return first, recurrence.plus(first, recurrence.length(start, end))


def _copy_children(db: Db, source: str, to: str) -> None:
    for guest in db.rows("guests", "event_id = ?", (source,)):
        db.insert("guests", **{k: v for k, v in guest.items() if k not in ("id", "event_id")}, event_id=to)
    for reminder in db.rows("reminders", "event_id = ?", (source,)):
        db.insert("reminders", event_id=to, minutes=reminder["minutes"], method=reminder["method"])


def _along(rule: str, was: date, now: date) -> str:
    try:
        return recurrence.moved(rule, was, now)
    except recurrence.RuleError as error:
        raise Fault(422, "BadForm", f"All events cannot be moved like that: {error.message}.", f"{error.hint[:1].upper()}{error.hint[1:]}.") from None


def _shifted(page: Page, series: Row, day: date, what: Occurrence, wanted: Wanted) -> tuple[Wanted, bool]:
    """What a whole series shall be when its occurrence of a day is moved: its first one moves as far. And whether it goes on by its own rule."""
    db = page.db
    own = zone_of(series, db)
    start = recurrence.wall(stored_time(series["start"], db.zone), own)
    was = recurrence.wall(stored_time(_start_text(what), db.zone), own)
    new_start, new_end = (stored_time(wanted.row[c], db.zone) for c in ("start", "end"))
    moved = recurrence.wall(new_start, own) - was
    if wanted.row["all_day"] != series["all_day"]:
        moved = datetime.combine(recurrence.wall(new_start, own).date(), start.time()) - datetime.combine(was.date(), start.time())
        first = start + moved
        first = first if wanted.row["all_day"] else datetime.combine(first.date(), recurrence.wall(new_start, own).time())
    else:
        first = start + moved
    rule = wanted.row["recurrence"]
    if goes_on := bool(rule) and rule == series["recurrence"]:
        rule = _along(rule, day, day + (first.date() - start.date()))
        first = recurrence.nearest(rule, first)
    begins = recurrence.stored(first, own, wanted.row["all_day"])
    row = {**wanted.row, "start": begins, "end": recurrence.plus(begins, recurrence.length(new_start, new_end)), "recurrence": rule}
    return Wanted(row, wanted.guests, wanted.reminders), goes_on or (bool(rule) and recurrence.pattern(rule) == recurrence.pattern(series["recurrence"]))


def _start_text(what: Occurrence) -> str:
    return what.first_day.isoformat() if what.all_day else what.start.isoformat()


def _rewrite(page: Page, event: Row, wanted: Wanted, goes_on: bool = False) -> Row:
    """Change one row of events; exceptions of a series that goes on by its rule follow it, and else are dropped."""
    db = page.db
    rule = _checked(page, wanted.row, wanted.row.get("recurrence"), event["timezone"])
    row = {**wanted.row, "recurrence": rule, "updated_at": _now(page)}
    row["start"], row["end"] = _first_fit(page, row, rule, event["timezone"])
    if event["recurrence"]:
        _follow(db, event, row, goes_on)
    changed = db.update("events", event["id"], **row)
    if wanted.guests is not None:
        _put_guests(page, changed, wanted.guests)
    if wanted.reminders is not None:
        _put_reminders(db, event["id"], wanted.reminders)
    return changed


def _follow(db: Db, series: Row, row: Row, goes_on: bool) -> None:
    """Put the exceptions of a series on the days that its rule now gives: the tenth occurrence's stays the tenth's."""
    for occurrence in db.rows("events", "recurring_event_id = ?", (series["id"],)):
        at = _same(db, series, row, stored_time(occurrence["original_start"], db.zone)) if goes_on and row["all_day"] == series["all_day"] else None
        if at is None:
            remove_rows(db, [occurrence])
        else:
            db.update("events", occurrence["id"], original_start=at)
    row["exdates"] = _left_out(db, series, row, series["exdates"]) if goes_on else []


def _left_out(db: Db, series: Row, row: Row, days: list[str]) -> list[str]:
    """The days left out of a series, as the rule of another gives them."""
    starts = [_same(db, series, row, _given(db, series, date.fromisoformat(day[:10]))[0]) for day in days]
    return sorted({series_day(start, zone_of(series, db)).isoformat() for start in starts if start})


def _same(db: Db, series: Row, row: Row, at: str) -> str | None:
    """The stored start of the occurrence of `row` that the one of `series` at `at` is; None for what its rule does not give, or no more."""
    own = zone_of(series, db)
    start = stored_time(series["start"], db.zone)
    if not recurrence.is_given(series["recurrence"], start, own, at):
        return None
    return recurrence.nth(row["recurrence"], stored_time(row["start"], db.zone), own, recurrence.before(series["recurrence"], start, own, at))


def _from_here(page: Page, series: Row, day: date, what: Occurrence, wanted: Wanted) -> Row:
    """End a series before a day, and begin another with what is wanted."""
    db = page.db
    tail = _cut(page, series, day)
    rule = wanted.row["recurrence"]
    goes_on = rule == series["recurrence"]
    given = _given(db, series, day)
    if goes_on:
        # From where the rule had put this one: it may have been moved before.
        own = zone_of(series, db)
        rule = _along(tail, day, recurrence.wall(stored_time(wanted.row["start"], db.zone), own).date())
    row = {**wanted.row, "recurrence": _checked(page, wanted.row, rule, series["timezone"])}
    row["start"], row["end"] = _first_fit(page, row, row["recurrence"], series["timezone"])
    rest = {**series, "recurrence": tail, "start": given[0], "end": given[1]}
    later = _left_out(db, rest, row, [d for d in series["exdates"] if d[:10] >= day.isoformat()]) if goes_on else []
    made = db.insert(
        "events", **row, timezone=series["timezone"], organizer_id=series["organizer_id"], exdates=later, created_at=_now(page), updated_at=_now(page)
    )
    _copy_children(db, series["id"], made["id"])
    if wanted.guests is not None:
        _put_guests(page, made, wanted.guests)
    if wanted.reminders is not None:
        _put_reminders(db, made["id"], wanted.reminders)
    return made


def _cut(page: Page, series: Row, day: date) -> str:
    """End a series before a day; the rule that would go on from it. Changed occurrences and days left out from it on go."""
    db = page.db
    own = zone_of(series, db)
    at, _ = _given(db, series, day)
    head, tail = recurrence.cut(series["recurrence"], stored_time(series["start"], db.zone), own, at)
    kept = [d for d in series["exdates"] if d[:10] < day.isoformat()]
    db.update("events", series["id"], recurrence=head, exdates=kept, updated_at=_now(page))
    later = db.rows("events", "recurring_event_id = ? AND original_start >= ?", (series["id"], at))
    remove_rows(db, later)
    return tail


def delete(page: Page, what: Occurrence, scope: str) -> str:
    """Delete an event, or of a series: one occurrence, from one on, or all of them; what was done, in words."""
    db = page.db
    series, day = _series(db, what)
    _tell(page, what.event, "cancellation", "Cancelled")
    if series is not None and scope == "this":
        if what.day is None:
            remove_rows(db, [what.event])
        db.update("events", series["id"], exdates=sorted({*series["exdates"], day.isoformat()}), updated_at=_now(page))
        return f"Deleted “{what.event['title']}” on {texts.short_day(what.first_day)}"
    if series is not None and scope == "following" and _has_before(db, series, day):
        _cut(page, series, day)
        return f"Ended “{series['title']}” before {texts.short_day(what.first_day)}"
    to_trash(page, series or what.event)
    return f"Moved “{what.event['title']}” to the trash"


def to_trash(page: Page, event: Row) -> Row:
    """Move an event, with all that belongs to it, to the trash."""
    db = page.db
    events = [event, *db.rows("events", "recurring_event_id = ?", (event["id"],))]
    rows: dict[str, list[Any]] = {"events": events}
    for child in ("guests", "reminders"):
        rows[child] = [r for e in events for r in db.rows(child, "event_id = ?", (e["id"],))]
    remove_rows(db, events[::-1])
    return db.insert(
        "trash", event_id=event["id"], title=event["title"], start=event["start"], calendar_id=event["calendar_id"], deleted_at=_now(page), rows=rows
    )


def remove_rows(db: Db, events: list[Row]) -> None:
    """Remove rows of events with their guests and reminders."""
    for event in events:
        db.delete("guests", "event_id = ?", (event["id"],))
        db.delete("reminders", "event_id = ?", (event["id"],))
        db.delete("events", "id = ?", (event["id"],))


def restore(page: Page, trashed: Row) -> None:
    """Bring an event back from the trash; into the viewer's own calendar when its calendar is gone."""
    db = page.db
    known = {c["id"] for c in db.rows("calendars")}
    for name in ("events", "guests", "reminders"):
        table = db.find(name)
        for row in trashed["rows"][name]:
            if name == "events" and row["calendar_id"] not in known:
                row = {**row, "calendar_id": who(page).primary["id"]}
            db.write(name, row["id"], {"id": row["id"]} | {c.name: encode(c, row[c.name], db.zone) for c in table.columns.values()})
    db.delete("trash", "id = ?", (trashed["id"],))


def respond(page: Page, what: Occurrence, answer: str, note: str, scope: str) -> str:
    """The viewer's answer to an invitation; what was done, in words."""
    viewer = who(page)
    series, _ = _series(page.db, what)
    event = _own_row(page, series, what) if series is not None and scope == "this" else (series or what.event)
    guest = page.db.first("guests", "event_id = ? AND lower(email) = ?", (event["id"], viewer.me["email"].lower()))
    if guest is None:
        raise Fault(403, "NotInvited", f"You are not invited to “{event['title']}”.")
    page.db.update("guests", guest["id"], response=answer, note=note or guest["note"])
    organizer = viewer.people[event["organizer_id"]]
    said = {"accepted": "Accepted", "tentative": "Answered maybe to", "declined": "Declined"}[answer]
    if organizer["id"] != viewer.me["id"]:
        page.db.insert(
            "notices",
            event_id=event["id"],
            to_email=organizer["email"],
            kind="response",
            subject=f"{said.split()[0]}: {event['title']}",
            body=note,
            sent_at=_now(page),
        )
    return f"{said} “{event['title']}”"


def _put_guests(page: Page, event: Row, wanted: dict[str, str]) -> None:
    """Make the guests of an event be these; who stays keeps their answer, who organizes has accepted."""
    viewer, db = who(page), page.db
    there = {g["email"].lower(): g for g in db.rows("guests", "event_id = ?", (event["id"],))}
    organizer = viewer.people[event["organizer_id"]]["email"].lower()
    for email, name in wanted.items():
        if email.lower() not in there:
            answer = "accepted" if email.lower() == organizer else "needs_action"
            db.insert("guests", event_id=event["id"], email=email, name=name or viewer.name_of(email), response=answer)
    gone = there.keys() - {email.lower() for email in wanted}
    for email in sorted(gone):
        db.delete("guests", "id = ?", (there[email]["id"],))
        _notice(page, event, there[email]["email"], "cancellation", "No longer invited")


def _put_reminders(db: Db, event_id: str, wanted: list[int]) -> None:
    there = {r["minutes"]: r["id"] for r in db.rows("reminders", "event_id = ?", (event_id,))}
    for minutes in sorted(there.keys() - set(wanted)):
        db.delete("reminders", "id = ?", (there[minutes],))
    for minutes in sorted(set(wanted) - there.keys()):
        db.insert("reminders", event_id=event_id, minutes=minutes)


def _tell(page: Page, event: Row, kind: str, word: str) -> None:
    """Tell every guest but the viewer."""
    for guest in page.db.rows("guests", "event_id = ?", (event["id"],)):
        _notice(page, event, guest["email"], kind, word)


def _notice(page: Page, event: Row, email: str, kind: str, word: str) -> None:
    if email.lower() == who(page).me["email"].lower():
        return
    start = show_time(stored_time(event["start"], page.db.zone), page.db.zone)
    body = f"{event['title']}, {start[:16].replace('T', ' ')}" + (f", {event['location']}" if event["location"] else "")
    page.db.insert("notices", event_id=event["id"], to_email=email, kind=kind, subject=f"{word}: {event['title']}", body=body, sent_at=_now(page))


def _now(page: Page) -> str:
    return page.session.now.isoformat()
