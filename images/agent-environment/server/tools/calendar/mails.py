"""The mails that the calendar sends: invitations, changes, cancellations and answers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from _server.store import Row

from ...effects import send_mail
from ...registry import Context


def when_text(ctx: Context, event: Row) -> str:
    """When an event takes place, in words."""
    start, end = datetime.fromisoformat(event["start"]), datetime.fromisoformat(event["end"])
    if len(event["start"]) == 10:
        last = max(end - timedelta(days=1), start)
        text = f"{start:%a %-d %b %Y}" + (f" to {last:%a %-d %b %Y}" if last > start else "") + ", all day"
    else:
        finish = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%a %-d %b %Y, %H:%M}"
        text = f"{start:%a %-d %b %Y, %H:%M} to {finish} ({ctx.zone.key})"
    return f"{text}, repeating ({event['recurrence']})" if event["recurrence"] else text


def mail_guests(ctx: Context, kind: str, event: Row, addresses: Iterable[str], message: str = "") -> list[str]:
    """One mail `<kind>: <title>` to these addresses about an event; to whom it went."""
    to = list(dict.fromkeys(addresses))
    if to:
        lines = [message, "", event["title"], f"When: {when_text(ctx, event)}"]
        lines += [f"Where: {event['location']}"] if event["location"] else []
        lines += [f"Organizer: {event['organizer']}"]
        lines += ["", event["description"]] if event["description"] else []
        send_mail(ctx, to, f"{kind}: {event['title']}", "\n".join(lines).strip() + "\n")
    return to


def others(ctx: Context, event_id: str) -> list[str]:
    """The addresses of an event's attendees but the acting user's."""
    rows = ctx.db.rows("calendar.attendees", "event_id = ?", (event_id,))
    return [row["email"] for row in rows if row["email"].lower() != ctx.user.email.lower()]
