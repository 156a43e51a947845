"""Looking into the mailbox: search, folders, threads, what waits for an answer, who an address is."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from _server.store import Row
from _server.times import utc_text
from msgspec import Meta

from ...addresses import is_address
from ...lookup import Cursor, Limit, Name, near_names
from ...registry import Context, page, tool
from .mailbox import MessageId, attachments_of, headers, label_names, whole
from .query import FOLDERS, LANGUAGE

Folder = Literal["inbox", "sent", "drafts", "archive", "trash", "spam"]
_QUERY = (
    "words and operators: from: to: cc: subject: body: label: in:inbox|sent|drafts|archive|trash|spam|anywhere is:unread|read|starred"
    ' has:attachment filename: before:2026-03-10 after: older_than:7d newer_than:2w "a phrase" -not (a OR b)'
)
_NEWEST = "sent_at IS NOT NULL, sent_at DESC, id"


@tool("email", read_only=True, aliases=("email_search_messages", "email_search_emails", "search_emails"))
def search(
    ctx: Context,
    query: Annotated[str, Meta(max_length=800), _QUERY],
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Find messages, newest first. Every term must hold, OR joins its neighbors; trash and spam are left out unless in: says otherwise."""
    sql, params, used = LANGUAGE.compile(ctx, query)
    where = f"id IN (SELECT m.id FROM email_messages m WHERE {sql}){'' if 'in' in used else _KEPT}"
    return _headers(ctx, ctx.db.rows("email.messages", where, params, order=_NEWEST), limit, cursor)


_KEPT = " AND folder NOT IN ('trash', 'spam')"


def _headers(ctx: Context, rows: list[Row], limit: int, cursor: str | None) -> Row:
    answer = page(rows, limit, cursor, "messages")
    answer["messages"] = headers(ctx, answer["messages"])
    return answer


@tool("email", read_only=True, aliases=("email_list_emails", "email_get_emails", "email_get_inbox"))
def list_messages(
    ctx: Context,
    folder: Annotated[Folder, "which folder"] = "inbox",
    label: Annotated[str | None, "only messages with this label"] = None,
    unread_only: Annotated[bool, "only unread ones"] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """The messages of a folder, newest first, with the beginning of each."""
    where, params = "folder = ?", [str(folder)]
    if label is not None:
        where += " AND EXISTS (SELECT 1 FROM json_each(labels) WHERE value = ?)"
        params += label_names(ctx, [label])
    if unread_only:
        where += " AND NOT is_read"
    return _headers(ctx, ctx.db.rows("email.messages", where, params, order=_NEWEST), limit, cursor)


@tool("email", read_only=True, aliases=("email_read", "email_get_email", "email_read_message"))
def get_message(ctx: Context, message_id: MessageId) -> Row:
    """One message whole, with what is attached to it. It stays unread until email_mark_read."""
    return whole(ctx, ctx.db.get("email.messages", message_id))


@tool("email", read_only=True)
def get_thread(ctx: Context, thread_id: Annotated[str, Meta(max_length=200), "a thread's id, or that of one of its messages"]) -> Row:
    """A whole conversation, oldest message first (drafts last), with who takes part."""
    message = ctx.db.first("email.messages", "id = ?", (thread_id,))
    thread = ctx.db.get("email.threads", message["thread_id"] if message else thread_id)
    rows = ctx.db.rows("email.messages", "thread_id = ?", (thread["id"],), order="sent_at IS NULL, sent_at, id")
    attached = attachments_of(ctx, [r["id"] for r in rows])
    return {**thread, "participants": _participants(rows), "messages": [{**r, "attachments": attached.get(r["id"], [])} for r in rows]}


def _participants(rows: list[Row]) -> list[str]:
    found: dict[str, str] = {}
    for row in rows:
        for address in (row["from_address"], *row["to"], *row["cc"]):
            found.setdefault(address.lower(), address)
    return list(found.values())


@tool("email", read_only=True)
def list_threads(
    ctx: Context,
    folder: Annotated[Folder | None, "only threads with a message in this folder"] = "inbox",
    label: Annotated[str | None, "only threads with a message that has this label"] = None,
    participant: Annotated[Name | None, "only threads with this e-mail address in From, To or Cc"] = None,
    unread_only: Annotated[bool, "only threads with an unread message"] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Conversations, the one with the newest message first: how many messages, unread ones, who takes part."""
    wanted = label_names(ctx, [label])[0] if label is not None else None
    grouped: dict[str, list[Row]] = {}
    for row in ctx.db.rows("email.messages", order="sent_at IS NULL, sent_at, id"):
        grouped.setdefault(row["thread_id"], []).append(row)
    found = []
    for thread_id, rows in grouped.items():
        tests = (
            folder is None or any(r["folder"] == folder for r in rows),
            wanted is None or any(wanted in r["labels"] for r in rows),
            participant is None or participant.lower() in [p.lower() for p in _participants(rows)],
            not unread_only or any(not r["is_read"] for r in rows),
        )
        if all(tests):
            found.append(_summary(ctx, thread_id, rows))
    found.sort(key=lambda t: (t["last_at"] or "9999", t["id"]), reverse=True)
    for thread in found:
        thread["last_at"] = thread["last_at"] and ctx.local(thread["last_at"]).isoformat()
    return page(found, limit, cursor, "threads")


def _summary(ctx: Context, thread_id: str, rows: list[Row]) -> Row:
    last = rows[-1]
    sent = [utc_text(ctx.local(r["sent_at"])) for r in rows if r["sent_at"]]
    subject = ctx.db.get("email.threads", thread_id)["subject"]
    return {
        "id": thread_id, "subject": subject, "messages": len(rows), "unread": sum(not r["is_read"] for r in rows),
        "participants": _participants(rows), "last_at": max(sent, default=None), "last_from": last["from_address"],
        "snippet": " ".join(last["body"].split())[:160],
    }  # fmt: skip


@tool("email", read_only=True)
def find_unanswered(
    ctx: Context,
    waiting: Annotated[Literal["for_me", "for_others"], "for_me: the last word is somebody else's; for_others: it is yours"] = "for_me",
    older_than_days: Annotated[int, Meta(ge=0, le=3650), "only where the last message is at least so old"] = 0,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Conversations that wait for an answer, longest first. Looked at: inbox, archive and sent; not what you only got as a copy."""
    cut, me = utc_text(ctx.now - timedelta(days=older_than_days)), ctx.user.email.lower()
    latest: dict[str, Row] = {}
    for row in ctx.db.rows("email.messages", "folder IN ('inbox', 'archive', 'sent')", order="sent_at, id"):
        latest[row["thread_id"]] = row
    found = []
    for row in latest.values():
        by_me = row["from_address"].lower() == me
        if row["sent_at"] and utc_text(ctx.local(row["sent_at"])) <= cut and by_me == (waiting == "for_others"):
            found += [row] if by_me or me in [t.lower() for t in row["to"]] else []
    found.sort(key=lambda r: (utc_text(ctx.local(r["sent_at"])), r["id"]))
    return _headers(ctx, found, limit, cursor)


@tool("email", read_only=True, aliases=("email_get_counts",))
def mailbox_counts(ctx: Context) -> Row:
    """How many messages, and unread ones, are in each folder and under each label."""
    counts: dict[str, Any] = {f: {"total": 0, "unread": 0, "starred": 0} for f in FOLDERS}
    labels: dict[str, dict[str, int]] = {r["name"]: {"total": 0, "unread": 0} for r in ctx.db.rows("email.labels", order="name")}
    for row in ctx.db.rows("email.messages"):
        entry = counts[row["folder"]]
        entry["total"] += 1
        entry["unread"] += not row["is_read"]
        entry["starred"] += row["is_starred"]
        for name in row["labels"]:
            label = labels.setdefault(name, {"total": 0, "unread": 0})
            label["total"] += 1
            label["unread"] += not row["is_read"]
    return {"folders": counts, "labels": labels, "attachments": ctx.db.count("email.attachments")}


@tool("email", read_only=True)
def validate_addresses(
    ctx: Context, addresses: Annotated[list[Annotated[str, Meta(max_length=320)]], Meta(min_length=1, max_length=100), "e-mail addresses"]
) -> Row:
    """Per address: is it well formed, is it known (from slack, contacts, crm or accounting) and whose is it; near ones for what looks mistyped."""
    people = _known_people(ctx)
    answers = []
    for address in addresses:
        bare = address.strip()
        found = people.get(bare.lower())
        answer: Row = {
            "address": bare,
            "is_valid": is_address(bare),
            "is_known": found is not None,
            "name": found[0] if found else None,
            "source": found[1] if found else None,
        }
        if found is None:
            answer["near"] = near_names(bare, [(known, known) for known in people])
        answers.append(answer)
    return {"addresses": answers, "all_valid": all(a["is_valid"] for a in answers)}


def _known_people(ctx: Context) -> dict[str, tuple[str, str]]:
    """{address: (name, where from)}."""
    people: dict[str, tuple[str, str]] = {}
    for source in ("slack.users", "contacts.people", "crm.contacts", "accounting.customers", "accounting.vendors"):
        for row in ctx.db.rows(source):
            people.setdefault(row["email"].lower(), (row["name"], source))
    return people
