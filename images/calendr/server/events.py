"""An event's pages: shown, made, changed, moved, answered, deleted."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from _server import recurrence
from _server.faults import Fault
from _server.store import Row
from _web.pages import Page
from starlette.responses import Response

from . import changes, eventform, texts
from .eventform import Filled, Wanted
from .occurrences import Occurrence, Seen, find, seen
from .tables import COLORS, RESPONSES
from .who import who


def _found(page: Page) -> tuple[Occurrence, Seen]:
    """The occurrence of the address as the viewer sees it; Fault 404 when they may not know of it."""
    what = find(page, page.path("ref"))
    as_seen = seen(page, what)
    if as_seen is None:
        raise Fault(404, "NotFound", f"There is no {page.path('ref')} in events.", "It may have been deleted, or belong to another session.")
    return what, as_seen


def _series_of(page: Page, what: Occurrence) -> Row:
    series = page.db.first("events", "id = ?", (what.event["recurring_event_id"],)) if what.event["recurring_event_id"] else None
    return series or what.event


def _week_of(what: Occurrence) -> str:
    return f"/week/{what.first_day}"


def show(page: Page) -> Response:
    """An event: when, where, who, and what can be done."""
    what, as_seen = _found(page)
    viewer = who(page)
    calendar = viewer.all_calendars[what.event["calendar_id"]]
    answers = {r: sum(1 for g in as_seen.guests if g["response"] == r) for r in RESPONSES}
    series = _series_of(page, what)
    mine = next((g for g in as_seen.guests if g["email"].lower() == viewer.me["email"].lower()), None)
    return page.render(
        "event.html",
        what=what,
        seen=as_seen,
        event=what.event,
        calendar=calendar,
        organizer=viewer.people[what.event["organizer_id"]],
        answers=answers,
        rule=texts.rule(series["recurrence"]) if series["recurrence"] and not as_seen.hidden else "",
        mine=mine,
        reminders=[]
        if as_seen.hidden
        else [texts.before(r["minutes"]) for r in page.db.rows("reminders", "event_id = ?", (what.event["id"],), order="minutes")],
        back=page.back(_week_of(what)),
    )


def new(page: Page) -> Response:
    """The form of a new event."""
    copied = page.query.get("copy")
    if not copied:
        return _form(page, eventform.blank(page), None)
    what = find(page, copied)
    as_seen = seen(page, what)
    if as_seen is None or as_seen.hidden:
        raise Fault(404, "NotFound", f"There is no {copied} in events.")
    filled = eventform.of_event(page, what, {"recurrence": None})
    if not who(page).can_edit(filled["calendar"]):
        filled.texts["calendar"] = who(page).primary["id"]
    return _form(page, filled, None)


def edit(page: Page) -> Response:
    """The form of an event."""
    what, as_seen = _found(page)
    if not as_seen.can_edit:
        changes.may_edit(page, what.event)
    return _form(page, eventform.of_event(page, what, _series_of(page, what)), what)


def _form(page: Page, filled: Filled, what: Occurrence | None) -> Response:
    viewer = who(page)
    default = _week_of(what) if what else "/"
    names = {email: viewer.name_of(email) for email in filled.guests}
    kept = texts.rule(filled["rule"]) if filled["repeat"] == "keep" and filled["rule"] else ""
    return page.render(
        "event_form.html",
        422 if filled.errors else 200,
        f=filled,
        what=what,
        colors=COLORS,
        names=names,
        back=page.back(default),
        kept_rule=kept,
        reminders=[(m, texts.before(m)) for m in eventform.REMINDERS],
        week_days=list(zip(recurrence.DAYS, texts.WEEKDAYS, strict=True)),
    )


def create(page: Page) -> Response:
    """Make an event of the form."""
    filled = eventform.posted(page.form)
    wanted = eventform.read(page, filled, None)
    if filled.errors:
        return _form(page, filled, None)
    event = changes.create(page, wanted)
    return page.done(f"Created “{event['title']}”", page.back(f"/week/{event['start'][:10]}"))


def save(page: Page) -> Response:
    """Change an event to what the form says."""
    what, _ = _found(page)
    changes.may_edit(page, what.event)
    series = _series_of(page, what)
    filled = eventform.posted(page.form)
    filled.texts["rule"] = series["recurrence"] or ""
    scope = changes.scope_of(page, what)
    kept = series["recurrence"] is not None and eventform.repeats_as_before(eventform.of_event(page, what, series), filled)
    wanted = eventform.read(page, filled, series["recurrence"], keeps_rule=kept)
    if filled.errors:
        return _form(page, filled, what)
    if scope == "this" and what.is_series and wanted.row["recurrence"] != series["recurrence"]:
        filled.errors["repeat"] = "How it repeats can be changed for all events, or for this and the following ones."
        return _form(page, filled, what)
    event = changes.update(page, what, wanted, scope)
    return page.done(f"Saved “{event['title']}”", page.back(_week_of(what)))


def ask_move(page: Page) -> Response:
    """Ask how far the move of a series reaches."""
    what, _ = _found(page)
    changes.may_edit(page, what.event)
    return page.render(
        "event_move.html", what=what, start=page.query.get("start"), end=page.query.get("end"), back=page.back(_week_of(what)), moved=_moved(page, what)
    )


def move(page: Page) -> Response:
    """Put an event to another time: `start` and `end` are times without offset in the viewer's zone, or days."""
    what, _ = _found(page)
    changes.may_edit(page, what.event)
    to = _moved(page, what)
    event = what.event
    row = {c: event[c] for c in (*changes.DETAILS, "all_day")} | {
        "start": to.first_day.isoformat() if what.all_day else to.start.isoformat(),
        "end": (to.last_day + timedelta(days=1)).isoformat() if what.all_day else to.end.isoformat(),
        "recurrence": _series_of(page, what)["recurrence"],
    }
    changes.update(page, what, Wanted(row, None, None), changes.scope_of(page, what))
    return page.done(f"Moved “{event['title']}” to {texts.short_day(to.first_day)}{'' if what.all_day else f' {to.start:%H:%M}'}", page.back(_week_of(to)))


def _moved(page: Page, what: Occurrence) -> Occurrence:
    """The occurrence at the times of the query or form; Fault 422."""
    fields = page.form if page.request.method == "POST" else page.query
    try:
        if what.all_day:
            first, after = date.fromisoformat(fields.get("start")), date.fromisoformat(fields.get("end"))
            start, end = (what.start.replace(year=d.year, month=d.month, day=d.day) for d in (first, after))
        else:
            start, end = (datetime.fromisoformat(fields.get(n)).replace(tzinfo=what.start.tzinfo) for n in ("start", "end"))
    except ValueError:
        raise Fault(422, "BadForm", "An event is moved to a start and an end.") from None
    if end < start or not 1971 <= start.year <= 2200 or end - start > timedelta(days=366):
        raise Fault(422, "BadForm", "The event would end before it starts.")
    return Occurrence(what.event, what.ref, start, end, what.all_day, what.day)


def ask_delete(page: Page) -> Response:
    """Ask before an event is deleted, and how far that reaches."""
    what, _ = _found(page)
    changes.may_edit(page, what.event)
    return page.render("event_delete.html", what=what, back=page.back(_week_of(what)))


def delete(page: Page) -> Response:
    """Delete an event."""
    what, _ = _found(page)
    changes.may_edit(page, what.event)
    label = changes.delete(page, what, changes.scope_of(page, what))
    return page.done(label, page.back(_week_of(what)))


def respond(page: Page) -> Response:
    """Answer an invitation."""
    what, _ = _found(page)
    answer = page.form.get("response")
    if answer not in RESPONSES[1:]:
        raise Fault(422, "BadForm", "Answer yes, maybe or no.")
    return page.done(
        changes.respond(page, what, answer, page.form.get("note")[:500], changes.scope_of(page, what) if "scope" in page.form else "all"),
        page.back(_week_of(what)),
    )
