"""Attendees: inviting, uninviting, answering; each tells the others by mail."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...addresses import Recipient, addresses
from ...effects import send_mail
from ...registry import Context, tool
from ...store import ToolError
from .mails import mail_guests, when_text
from .series import Reach, Scope, check_rights, copy_guests, find, scope_of, series_of, single_out, split
from .viewing import EventId, row_of

Addresses = Annotated[list[Recipient], Meta(min_length=1, max_length=200)]


def name_of(ctx: Context, email: str) -> str:
    """The name that goes with an address, in slack, contacts or crm; else empty."""
    for source in ("slack.users", "contacts.people", "crm.contacts"):
        if found := ctx.db.first(source, "email = ? COLLATE NOCASE", (email,)):
            return str(found["name"])
    return ctx.user.name if email.lower() == ctx.user.email.lower() else ""


def add_guests(ctx: Context, event: Row, emails: Iterable[str], *, optional: bool = False, notify: bool, message: str = "") -> list[str]:
    """Attendee rows for those who have none yet, and one invitation to them by mail; to whom it went."""
    present = {r["email"].lower() for r in ctx.db.rows("calendar.attendees", "event_id = ?", (event["id"],))}
    added = []
    for email in addresses(ctx, emails):
        if email.lower() in present:
            continue
        mine = email.lower() == ctx.user.email.lower() == event["organizer"].lower()
        ctx.db.insert(
            "calendar.attendees", event_id=event["id"], email=email, name=name_of(ctx, email), optional=optional, response="accepted" if mine else "needsAction"
        )
        present.add(email.lower())
        added.append(email)
    return mail_guests(ctx, "Invitation", event, added, message) if notify else []


def _row_reached(ctx: Context, event_id: str, scope: Scope | None) -> Row:
    """The row that a change to the attendees of an event is made in: of one occurrence, of what follows, or of all."""
    target = find(ctx, event_id)
    reach = scope_of(target, scope)
    if reach == "this":
        return single_out(ctx, target)
    master, first = series_of(ctx, target)
    return split(ctx, master, first) if reach == "following" else master


def _rows_with_guests(ctx: Context, row: Row) -> list[Row]:
    """The row, and the changed occurrences of it that have attendees of their own."""
    changed = ctx.db.rows("calendar.events", "recurring_event_id = ?", (row["id"],))
    return [row, *(c for c in changed if ctx.db.count("calendar.attendees", "event_id = ?", (c["id"],)))]


@tool("calendar", idempotent=True, aliases=("calendar_add_attendees",))
def invite_attendees(
    ctx: Context,
    event_id: EventId,
    emails: Annotated[Addresses, "e-mail addresses"],
    optional: Annotated[bool, "their presence is optional"] = False,
    message: Annotated[str, Meta(max_length=20000), "a line to the new attendees"] = "",
    scope: Reach = None,
    notify: Annotated[bool, "mail an invitation to the new attendees"] = True,
) -> Row:
    """Invite people to an event; those who are new get an invitation by mail, who is invited already stays as is."""
    check_rights(ctx, find(ctx, event_id).event)
    row = _row_reached(ctx, event_id, scope)
    changed = _rows_with_guests(ctx, row)[1:]
    mailed = add_guests(ctx, row, emails, optional=optional, notify=notify, message=message)
    for occurrence in changed:
        add_guests(ctx, occurrence, emails, optional=optional, notify=False)
    return {"event": row_of(ctx, row["id"]), "mailed": mailed}


@tool("calendar", destructive=True, idempotent=True, aliases=("calendar_uninvite_attendees",))
def remove_attendees(
    ctx: Context,
    event_id: EventId,
    emails: Annotated[Addresses, "e-mail addresses of attendees"],
    scope: Reach = None,
    notify: Annotated[bool, "mail a cancellation to those removed"] = True,
) -> Row:
    """Take people off an event's list of attendees; they get a cancellation by mail."""
    target = find(ctx, event_id)
    check_rights(ctx, target.event)
    known = {a["email"].lower(): a["email"] for a in row_of(ctx, event_id)["attendees"]}
    for email in emails:
        if email.lower() not in known:
            near = difflib.get_close_matches(email.lower(), known, n=3, cutoff=0.5) or sorted(known)
            raise ToolError("not_found", f"{email} is no attendee of {target.event['title']!r}", f"near: {', '.join(near)}" if near else "it has no attendees")
    row = _row_reached(ctx, event_id, scope)
    for reached in _rows_with_guests(ctx, row):
        for email in emails:
            ctx.db.delete("calendar.attendees", "event_id = ? AND email = ? COLLATE NOCASE", (reached["id"], email))
    to = [known[e.lower()] for e in emails if e.lower() != ctx.user.email.lower()]
    mailed = mail_guests(ctx, "Cancelled", row, to) if notify else []
    return {"event": row_of(ctx, row["id"]), "mailed": mailed}


@tool("calendar", aliases=("calendar_respond_to_invitation", "calendar_rsvp"))
def respond_to_event(
    ctx: Context,
    event_id: EventId,
    response: Annotated[Literal["accepted", "declined", "tentative"], "your answer"],
    message: Annotated[str, Meta(max_length=20000), "a line to the organizer"] = "",
    scope: Reach = None,
    notify: Annotated[bool, "mail the answer to the organizer"] = True,
) -> Row:
    """Answer an invitation that you got; the organizer gets the answer by mail."""
    target = find(ctx, event_id)
    master = series_of(ctx, target)[0]
    me = ctx.user.email
    if not ctx.db.count("calendar.attendees", "event_id IN (?, ?) AND email = ? COLLATE NOCASE", (target.event["id"], master["id"], me)):
        raise ToolError(
            "forbidden",
            f"you are not invited to {target.event['title']!r}",
            "only attendees answer; calendar_get_calendar_events with attendee finds your invitations",
        )
    row = _row_reached(ctx, event_id, scope)
    if row["status"] == "cancelled":
        raise ToolError("conflict", f"{row['title']!r} is cancelled")
    for reached in _rows_with_guests(ctx, row):
        if reached["recurring_event_id"]:
            copy_guests(ctx, reached["recurring_event_id"], reached["id"])
        for mine in ctx.db.rows("calendar.attendees", "event_id = ? AND email = ? COLLATE NOCASE", (reached["id"], me)):
            ctx.db.update("calendar.attendees", mine["id"], response=response)
    mailed = []
    if notify and row["organizer"].lower() != me.lower():
        word = {"accepted": "Accepted", "declined": "Declined", "tentative": "Tentatively accepted"}[response]
        body = f"{ctx.user.name} has answered: {word.lower()}.\n\n{row['title']}\nWhen: {when_text(ctx, row)}\n"
        send_mail(ctx, [row["organizer"]], f"{word}: {row['title']}", f"{message}\n\n{body}" if message else body)
        mailed = [row["organizer"]]
    return {"event": row_of(ctx, row["id"]), "mailed": mailed}


@tool("calendar", read_only=True)
def list_invitations(
    ctx: Context,
    response: Annotated[Literal["needsAction", "accepted", "declined", "tentative"], "your answer so far"] = "needsAction",
    limit: Annotated[int, Meta(ge=1, le=200), "how many at the most"] = 50,
) -> Row:
    """Invitations to you from others that are still to come and that you have answered in this way (or not yet), soonest first."""
    rows = ctx.db.rows(
        "calendar.events",
        "id IN (SELECT event_id FROM calendar_attendees WHERE email = ? COLLATE NOCASE AND response = ?) AND organizer != ? COLLATE NOCASE"
        " AND status != 'cancelled' AND (\"end\" > ? OR recurrence IS NOT NULL)",
        (ctx.user.email, response, ctx.user.email, ctx.now_text), order="start, id",
    )  # fmt: skip
    return {"events": [row_of(ctx, r["id"]) for r in rows[:limit]], "total": len(rows)}
