"""What was done and what is to do with contacts, companies and deals."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from _server.store import Row
from _server.times import utc_text
from msgspec import Meta

from ...effects import send_mail
from ...lookup import Cursor, Limit, Name, Text, Where, address, has_words, person, resolve, select
from ...registry import Context, Time, page, tool
from ...store import ToolError

ActivityType = Literal["call", "email", "meeting", "note", "task"]
ABOUT_CONTACT = Annotated[str | None, "the contact it concerns (id, e-mail or name)"]
ABOUT_COMPANY = Annotated[str | None, "the company it concerns (id, name or domain); left out: that of the contact or deal"]
ABOUT_DEAL = Annotated[str | None, "the deal it concerns (id or name)"]
TOUCHES = ("call", "email", "meeting")


def _about(ctx: Context, contact: str | None, company: str | None, deal: str | None) -> Row:
    """The three references of an activity, completed from the deal and the contact; ToolError invalid when there are none."""
    found_deal = resolve(ctx, "crm.deals", deal, "name") if deal is not None else None
    contact_id = resolve(ctx, "crm.contacts", contact, "name", "email")["id"] if contact is not None else (found_deal and found_deal["contact_id"])
    company_id = resolve(ctx, "crm.companies", company, "name", "domain")["id"] if company is not None else (found_deal and found_deal["company_id"])
    if company_id is None and contact_id:
        company_id = ctx.db.get("crm.contacts", contact_id)["company_id"]
    if not (contact_id or company_id or found_deal):
        raise ToolError("invalid", "an activity concerns a contact, a company or a deal", "give contact_id, company_id or deal_id")
    return {"contact_id": contact_id, "company_id": company_id, "deal_id": found_deal and found_deal["id"]}


def _touch(ctx: Context, activity: Row) -> Row | None:
    """The contact of a call, mail or meeting, with last_contacted_at brought up to it; None for others."""
    if activity["type"] not in TOUCHES or not activity["contact_id"]:
        return None
    contact = ctx.db.get("crm.contacts", activity["contact_id"])
    last = contact["last_contacted_at"]
    if last is None or ctx.local(last) < ctx.local(activity["occurred_at"]):
        contact = ctx.db.update("crm.contacts", contact["id"], last_contacted_at=activity["occurred_at"])
    return contact


@tool("crm")
def log_activity(
    ctx: Context,
    type: Annotated[ActivityType, "what it was"],
    subject: Annotated[Name, "what it was about, in a line"],
    body: Annotated[Text, "what was said or found"] = "",
    contact_id: ABOUT_CONTACT = None,
    company_id: ABOUT_COMPANY = None,
    deal_id: ABOUT_DEAL = None,
    occurred_at: Annotated[Time | None, "when it happened; left out: now"] = None,
) -> Row:
    """Log something that has happened; a call, e-mail or meeting brings the contact's last_contacted_at up to date."""
    at = occurred_at or ctx.now_text
    if at > ctx.now_text:
        raise ToolError("invalid", f"occurred_at {at} is still to come", "use crm_schedule_follow_up for what is to be done")
    activity = ctx.db.insert(
        "crm.activities", type=type, subject=subject, body=body, owner=ctx.user.email, occurred_at=at, is_done=True,
        **_about(ctx, contact_id, company_id, deal_id),
    )  # fmt: skip
    return {"activity": activity, "contact": _touch(ctx, activity)}


@tool("crm")
def schedule_follow_up(
    ctx: Context,
    subject: Annotated[Name, "what is to be done, in a line"],
    due_at: Annotated[Time, "when it is due, in the future"],
    type: Annotated[ActivityType, "what it will be"] = "task",
    body: Annotated[Text, "details"] = "",
    contact_id: ABOUT_CONTACT = None,
    company_id: ABOUT_COMPANY = None,
    deal_id: ABOUT_DEAL = None,
    owner: Annotated[str | None, "who does it: `me`, an e-mail address, a handle or a name; left out: you"] = None,
    add_to_calendar: Annotated[bool, "also block half an hour in your primary calendar"] = False,
) -> Row:
    """Put something on the list of things to do; optionally into your calendar too."""
    if due_at <= ctx.now_text:
        raise ToolError("invalid", f"due_at {due_at} is past", "use crm_log_activity for what has happened")
    activity = ctx.db.insert(
        "crm.activities", type=type, subject=subject, body=body, owner=person(ctx, owner or "me"), due_at=due_at,
        **_about(ctx, contact_id, company_id, deal_id),
    )  # fmt: skip
    return {"activity": activity, "event": _calendar_event(ctx, activity, due_at) if add_to_calendar else None}


def _calendar_event(ctx: Context, activity: Row, start: str) -> Row:
    calendar = ctx.db.first("calendar.calendars", "lower(owner) = ? AND is_primary", (ctx.user.email.lower(),))
    if calendar is None:
        raise ToolError("not_found", "you have no primary calendar", "leave add_to_calendar out")
    end = utc_text(datetime.fromisoformat(start) + timedelta(minutes=30))
    return ctx.db.insert(
        "calendar.events", calendar_id=calendar["id"], title=activity["subject"], description=activity["body"], start=start, end=end,
        organizer=ctx.user.email, created_at=ctx.now_text, updated_at=ctx.now_text,
    )  # fmt: skip


@tool("crm")
def complete_activity(
    ctx: Context,
    activity_id: Annotated[str, "id of the activity"],
    outcome: Annotated[Text, "what came of it; added to the body"] = "",
) -> Row:
    """Mark a planned activity as done now; a call, e-mail or meeting brings the contact's last_contacted_at up to date."""
    activity = ctx.db.get("crm.activities", activity_id)
    if activity["is_done"]:
        raise ToolError("conflict", f"{activity_id} is already done", "log a new activity with crm_log_activity")
    body = "\n".join(part for part in (activity["body"].rstrip(), outcome) if part)
    activity = ctx.db.update("crm.activities", activity_id, is_done=True, occurred_at=ctx.now_text, body=body)
    return {"activity": activity, "contact": _touch(ctx, activity)}


@tool("crm", read_only=True)
def list_activities(
    ctx: Context,
    query: Annotated[str, "words that must all occur in subject or body"] = "",
    type: Annotated[ActivityType | None, "only this type"] = None,
    owner: Annotated[str | None, "only those of this owner: `me`, an e-mail address, a handle or a name"] = None,
    is_done: Annotated[bool | None, "only those done, or only those to do"] = None,
    deal_id: Annotated[str | None, "only those of this deal (id or name)"] = None,
    due_before: Annotated[Time | None, "due before this"] = None,
    overdue: Annotated[bool, "only those to do whose time is past"] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Activities by type, owner, deal, state and due time, the earliest first."""
    deal = resolve(ctx, "crm.deals", deal_id, "name")["id"] if deal_id is not None else None
    where = Where().add("type = ?", type).add("lower(owner) = ?", address(ctx, owner)).add("is_done = ?", is_done).add("deal_id = ?", deal)
    where.add("due_at < ?", due_before).add("NOT is_done AND due_at < ?", ctx.now_text if overdue else None)
    rows = select(ctx, "crm.activities", where, order="coalesce(due_at, occurred_at), id")
    return page([r for r in rows if has_words(query, r, ("subject", "body"))], limit, cursor, "activities")


@tool("crm", read_only=True)
def timeline(
    ctx: Context,
    contact_id: Annotated[str | None, "a contact (id, e-mail or name)"] = None,
    company_id: Annotated[str | None, "a company (id, name or domain): with all its contacts"] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Everything about one contact or one company, newest first: activities, and the mails in your mailbox with them."""
    if (contact_id is None) == (company_id is None):
        raise ToolError("invalid", "a timeline is of one contact or of one company", "give contact_id or company_id")
    if contact_id is not None:
        contact = resolve(ctx, "crm.contacts", contact_id, "name", "email")
        emails, where = {contact["email"].lower()}, ("contact_id = ?", [contact["id"]])
    else:
        company = resolve(ctx, "crm.companies", company_id or "", "name", "domain")
        emails = {c["email"].lower() for c in ctx.db.rows("crm.contacts", "company_id = ?", (company["id"],))}
        where = ("company_id = ?1 OR contact_id IN (SELECT id FROM crm_contacts WHERE company_id = ?1)", [company["id"]])
    entries = [{"at": a["occurred_at"] or a["due_at"], "kind": "activity", "row": a} for a in ctx.db.rows("crm.activities", *where)]
    entries += [{"at": m["sent_at"], "kind": "email", "row": m} for m in _mails(ctx, emails)]
    dated = sorted((e for e in entries if e["at"]), key=lambda e: (ctx.local(e["at"]), e["row"]["id"]), reverse=True)
    return page(dated + [e for e in entries if not e["at"]], limit, cursor, "entries")


def _mails(ctx: Context, emails: set[str]) -> list[Row]:
    rows = ctx.db.rows("email.messages", "folder IN ('inbox', 'sent', 'archive')")
    return [m for m in rows if emails & {a.lower() for a in (m["from_address"], *m["to"], *m["cc"])}]


@tool("crm")
def email_contact(
    ctx: Context,
    contact_id: Annotated[str, "id, e-mail address or full name of the contact"],
    subject: Annotated[Name, "the mail's subject"],
    body: Annotated[str, Meta(min_length=1, max_length=50_000), "the mail's text"],
    deal_id: ABOUT_DEAL = None,
) -> Row:
    """Send a mail to a contact and log it as an activity; last_contacted_at follows."""
    contact = resolve(ctx, "crm.contacts", contact_id, "name", "email")
    message = send_mail(ctx, [contact["email"]], subject, body)
    activity = ctx.db.insert(
        "crm.activities", type="email", subject=subject, body=body, owner=ctx.user.email, occurred_at=ctx.now_text, is_done=True,
        **_about(ctx, contact["id"], None, deal_id),
    )  # fmt: skip
    return {"message": message, "activity": activity, "contact": _touch(ctx, activity)}
